"""The record of what happened: `Call`, `Turn`, `Trajectory`, `Episode`, `Group`. Host only, ragged, tokens first."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from agentrl_jax.messages import Message

Source = Literal["sampled", "demonstration", "patch", "scripted", "ranked"]
FinishReason = Literal["stop", "budget", "context"]
# The world's own end or horizon; a limit of the agent (its turns, its sampled tokens) or a full context; a strategy; an error.
StopReason = Literal["terminated", "truncated", "turns", "tokens", "context", "early", "error"]
# Where a random number comes from: (run, step, task, sample, seat, turn); the token position is folded in on the device.
Key = tuple[int, ...]


@dataclass(frozen=True)
class Sampling:
    """How a call is sampled; every field may differ from call to call without a new compilation.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 filter nothing. A stop id ends the call and is part of
    the action; a stop string ends it too, and what the model wrote after the string is dropped.
    """

    budget: int = 64  # at most so many sampled tokens
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    forced: tuple[int, ...] = ()  # the action's first tokens, given and not sampled; they count towards the budget

    def __post_init__(self) -> None:
        if self.budget < 1 or self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise ValueError(f"sampling needs budget >= 1, temperature >= 0, top_k >= 0, 0 < top_p <= 1, 0 <= min_p <= 1: {self}")


def starts_with(ids: np.ndarray, prefix: np.ndarray) -> bool:
    """Whether `ids` begins with `prefix`, token by token."""
    return len(ids) >= len(prefix) and bool(np.array_equal(ids[: len(prefix)], prefix))


@dataclass(frozen=True, eq=False)
class Call:
    """One generation. `prompt` and `action` are token ids; the arrays have one entry per action token."""

    prompt: np.ndarray  # int32 [prompt tokens]
    action: np.ndarray  # int32 [action tokens]
    sampler_logp: np.ndarray  # float32: log-prob under the distribution really sampled from
    version: np.ndarray  # int32: the weights that sampled the token
    sampling: Sampling
    finish_reason: FinishReason
    source: Source = "sampled"
    key: Key = ()
    entropy: np.ndarray | None = None  # float32, nats
    alternatives: np.ndarray | None = None  # int32 [action tokens, k]: the likeliest tokens, best first
    alternative_logp: np.ndarray | None = None  # float32 [action tokens, k]
    image_spans: tuple[tuple[int, int], ...] = ()  # [start, end) of placeholder tokens in `prompt`
    parent: "Call | None" = None  # the call whose prompt + action this prompt extends exactly

    @property
    def ids(self) -> np.ndarray:
        """Prompt and action."""
        return np.concatenate([self.prompt, self.action])

    def extends(self, other: "Call") -> bool:
        """Whether this prompt starts with the other's prompt and action, token by token."""
        return starts_with(self.prompt, other.ids)


@dataclass(frozen=True, eq=False)
class Turn:
    """One environment step of one seat: what the policy wrote, what came back, and what it was worth.

    The last call wrote the action; those before it wrote the notes that a context manager had asked for.
    """

    calls: tuple[Call, ...]
    action: Message
    observation: tuple[Message, ...]  # the new messages only
    reward: float
    rewards: Mapping[str, float] = field(default_factory=dict)  # its named parts
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One seat's episode. `parent` and `branch_turn` are set when it was branched; its turns still start at the root."""

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    task: str = ""
    group: int = 0
    sample: int = 0
    seat: int = 0
    seed: int = 0
    agent: str = "policy"
    success: bool | None = None
    stop_reason: StopReason = "terminated"
    error: str | None = None
    parent: int | None = None
    branch_turn: int | None = None

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def truncated(self) -> bool:
        """Cut by a horizon or a limit: what would have come is unknown, not worth 0."""
        return self.stop_reason not in ("terminated", "error")

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return self.opening + tuple(m for turn in self.turns for m in (turn.action, *turn.observation))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for turn in self.turns for call in turn.calls)

    def replace(self, **changes: Any) -> "Trajectory":
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Episode:
    """One world: its seed and its seats' trajectories. A reward accrues to a seat's last turn until it acts again."""

    seed: int
    seats: tuple[Trajectory, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Trajectories that share a task, or a prefix."""

    task: str
    trajectories: tuple[Trajectory, ...]
    dropped: int = 0  # episodes given up: their worlds failed at every attempt, or the group's deadline came first
    spent: int = 0  # turns that were played for episodes which a strategy threw away

    @property
    def played(self) -> int:
        """Turns that were really played: what branches share counts once."""
        return self.spent + sum(len(t.turns) - (t.branch_turn or 0) for t in self.trajectories)
