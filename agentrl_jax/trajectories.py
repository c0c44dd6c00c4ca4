"""Recorded rollouts: `Call`, `Turn`, `Trajectory`, `Episode`, `Group`.

They live on the host, are ragged, and hold token ids as sampled.
"""

import dataclasses
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from agentrl_jax.call_checksum import call_checksum
from agentrl_jax.messages import ImagePart, Message, ToolSchema

Source = Literal["sampled", "demonstration", "patch", "scripted", "ranked"]
FinishReason = Literal["stop", "budget", "context"]
# The environment's end ("terminated") or horizon ("truncated"); a limit of the agent (its turns,
# its sampled tokens) or a full context; a rollout strategy ("early"); an error.
StopReason = Literal["terminated", "truncated", "turns", "tokens", "context", "early", "error"]
# What identifies a random number: (run, step, task, sample, agent, turn); the token position is
# folded in on the device.
RandomKey = tuple[int, ...]


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of a call; any field may differ between calls without recompilation.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 filter nothing. A stop id ends the
    call and is part of the action; a stop string ends it too, and the tokens after the string are
    dropped.
    """

    budget: int = 64  # the maximal number of sampled tokens
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    # The action's first tokens, given instead of sampled; they count towards the budget.
    forced: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if (
            self.budget < 1
            or not 0 <= self.temperature < math.inf
            or self.top_k < 0
            or not 0 < self.top_p <= 1
            or not 0 <= self.min_p <= 1
        ):
            raise ValueError(
                "sampling needs budget >= 1, 0 <= temperature < inf, top_k >= 0, 0 < top_p <= 1, "
                f"0 <= min_p <= 1: {self}"
            )


def environment_label(task_name: str) -> str:
    """The label of a task's environment, before the "#" of its name: "kuhn#5" -> "kuhn"."""
    return task_name.partition("#")[0]


def sum_parts(rewards: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each named part over the rewards of several turns."""
    parts: dict[str, float] = {}
    for turn_rewards in rewards:
        for name, value in turn_rewards.items():
            parts[name] = parts.get(name, 0.0) + float(value)
    return parts


def turn_checksum(reward: float, terminated: bool, truncated: bool) -> int:
    """A number other than 0 that depends on every bit of an environment's reward and end."""
    return zlib.crc32(struct.pack("<d??", reward, terminated, truncated)) or 1


def starts_with(ids: np.ndarray, prefix: np.ndarray) -> bool:
    """Whether `ids` begins with `prefix`, token by token."""
    n = len(prefix)
    if len(ids) < n:
        return False
    if ids.dtype == prefix.dtype:  # bytes compare several times faster than short arrays
        return ids[:n].tobytes() == prefix.tobytes()
    return bool(np.array_equal(ids[:n], prefix))


@dataclass(frozen=True)
class CallTime:
    """When an engine did what for a call: seconds since the Unix epoch.

    It waits until `admitted`, is prefilled until `prefilled` and decodes until `finished`. A server
    is sent the call at `admitted` and does not report its prefill: `prefilled` is `admitted`.
    """

    submitted: float
    admitted: float  # has a row of the engine, or a connection to the server
    prefilled: float  # the programs that prefill it, and other calls with it, have run
    finished: float
    slot: int | None = None  # the engine's row; None: of a server


@dataclass(frozen=True)
class TurnTime:
    """When the environment was stepped: seconds since the Unix epoch.

    The step includes its wait for a worker that other environments keep busy.
    """

    environment_start: float
    environment_end: float


@dataclass(frozen=True, eq=False)
class Call:
    """One generation: prompt and action as token ids, and one entry per action token elsewhere."""

    prompt: np.ndarray  # int32 [prompt tokens]
    action: np.ndarray  # int32 [action tokens]
    sampler_logp: np.ndarray  # float32: log-prob under the behavior policy, all filters applied
    version: np.ndarray  # int32: the version of the weights that sampled the token
    sampling: Sampling
    finish_reason: FinishReason
    source: Source = "sampled"
    key: RandomKey = ()
    entropy: np.ndarray | None = None  # float32, nats
    # int32 [action tokens, k]: the most likely tokens, best first
    alternatives: np.ndarray | None = None
    alternative_logp: np.ndarray | None = None  # float32 [action tokens, k]
    image_spans: tuple[tuple[int, int], ...] = ()  # [start, end) of placeholder tokens in `prompt`
    images: tuple[ImagePart, ...] = ()  # what stands there
    parent: "Call | None" = None  # the call whose prompt + action this prompt extends exactly
    time: CallTime | None = None  # None: no engine sampled it, or it was not measured
    checksum: int = 0  # `call_checksum` when an engine sampled it; 0: not known

    def compute_checksum(self) -> int:
        """`call_checksum` of the call as it is now."""
        return call_checksum(
            self.prompt,
            self.action,
            self.sampler_logp,
            self.version,
            self.sampling.temperature,
        )

    def with_checksum(self) -> "Call":
        """The call as its engine sampled it."""
        return dataclasses.replace(self, checksum=self.compute_checksum())

    @property
    def ids(self) -> np.ndarray:
        """Prompt and action."""
        return np.concatenate([self.prompt, self.action])

    @property
    def length(self) -> int:
        """Tokens of prompt and action."""
        return len(self.prompt) + len(self.action)

    def extends(self, parent: "Call") -> bool:
        """Whether this prompt starts with the parent's prompt and action, token by token, and
        shows the parent's images first.
        """
        n = len(parent.prompt)
        return (
            starts_with(self.prompt, parent.prompt)
            and starts_with(self.prompt[n:], parent.action)
            and self.images[: len(parent.images)] == parent.images
        )


@dataclass(frozen=True, eq=False)
class Turn:
    """One environment step of one agent: the policy's calls, the observation and the reward.

    The last call wrote the action; those before it wrote notes for a context manager.
    """

    calls: tuple[Call, ...]
    action: Message
    observation: tuple[Message, ...]  # the new messages only
    reward: float
    rewards: Mapping[str, float] = field(default_factory=dict)  # its named components
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()
    time: TurnTime | None = None  # None: no environment was stepped, or it was not measured
    # `turn_checksum` of the environment's reply to an agent's session, or of what a strategy has
    # made of it; 0: not known
    checksum: int = 0

    def with_reward(self, reward: float, rewards: Mapping[str, float]) -> "Turn":
        """The turn with another reward than the environment's, and its named components."""
        checksum = turn_checksum(reward, self.terminated, self.truncated) if self.checksum else 0
        return dataclasses.replace(self, reward=reward, rewards=rewards, checksum=checksum)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One agent's episode.

    `parent` and `branch_turn` are set where it was branched; its turns still start at the root.
    """

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    task: str = ""
    group: int = 0
    sample: int = 0
    agent_index: int = 0
    seed: int = 0
    agent: str = "policy"
    success: bool | None = None
    stop_reason: StopReason = "terminated"
    error: str | None = None
    parent: int | None = None
    branch_turn: int | None = None
    tools: tuple[ToolSchema, ...] = ()  # that the agent was offered
    record: str = ""  # the line of a file in OpenAI's form that it was read from

    @property
    def environment(self) -> str:
        """The label of its environment in a mixture, or else the environment's id."""
        return environment_label(self.task)

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def reward_parts(self) -> dict[str, float]:
        """The named parts of the turns' rewards, each summed over the episode."""
        return sum_parts(turn.rewards for turn in self.turns)

    @property
    def truncated(self) -> bool:
        """Whether a horizon or a limit cut it: the value of the rest is unknown, not 0."""
        return self.stop_reason not in ("terminated", "error")

    @property
    def succeeded(self) -> bool | None:
        """`success`; False where a limit or an error ended the episode before its environment could
        report one. None where the environment does not report success.
        """
        was_cut = self.stop_reason != "terminated"
        return False if self.success is None and was_cut else self.success

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return self.opening + tuple(
            m for turn in self.turns for m in (turn.action, *turn.observation)
        )

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for turn in self.turns for call in turn.calls)

    def replace(self, **changes: Any) -> "Trajectory":
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of an environment: its seed and one trajectory per agent.

    A reward accrues to an agent's last turn until it acts again.
    """

    seed: int
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Trajectories that share a task, or a prefix."""

    task: str
    trajectories: tuple[Trajectory, ...]
    # Episodes given up: their environments failed at every attempt, or the group's timeout passed.
    num_dropped: int = 0
    discarded_turns: int = 0  # turns played in episodes that a strategy discarded

    @property
    def num_turns_played(self) -> int:
        """The number of environment steps taken: the turns that branches share count once."""
        return self.discarded_turns + sum(
            len(t.turns) - (t.branch_turn or 0) for t in self.trajectories
        )
