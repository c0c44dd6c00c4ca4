"""Turns as transitions for critics of whole utterances, and the bounded replay that they are drawn from (ArCHer, arXiv 2402.19446)."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.returns import reward_to_go
from agentrl_jax.errors import UserError
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Trajectory


@dataclass(frozen=True, eq=False)
class Said:
    """A text as the policy has it, and as others read it: a critic's encoder has a tokenizer of its own."""

    ids: np.ndarray  # int32, the policy's; of an utterance with its end
    text: str


NOTHING = Said(np.zeros(0, np.int32), "")


@dataclass(frozen=True, eq=False)
class Transition:
    """One turn. `terminated` is the world's end, `truncated` a cut: what would have come after that is unknown."""

    state: Said  # all that the policy was shown before it
    utterance: Said
    reward: float
    following: Said  # the state after it; nothing where the world has ended
    terminated: bool
    truncated: bool
    to_go: float  # discounted rewards of the turn and all after it
    temperature: float = 1.0  # that the utterance was sampled with


def said(ids: np.ndarray, agent: Agent) -> Said:
    """Ids with their text."""
    return Said(np.asarray(ids, np.int32), agent.renderer.parse(ids).text)


def transitions_of(trajectory: Trajectory, agent: Agent, gamma: float) -> list[Transition]:
    """The trajectory's turns; `gamma` discounts by turns. Notes that a context manager asks for belong to the state.

    Raises UserError where a turn has no call.
    """
    turns = trajectory.turns
    if any(not turn.calls for turn in turns):
        raise UserError("a turn without a call cannot be replayed: give demonstrations their calls")
    calls = [turn.calls[-1] for turn in turns]
    states = [said(call.prompt, agent) for call in calls]
    over = not turns or turns[-1].terminated
    states.append(NOTHING if over else said(agent.renderer.render(list(agent.context.view(trajectory.opening, turns))).ids, agent))
    to_go = reward_to_go(np.array([turn.reward for turn in turns]), np.zeros(len(turns), np.int64), gamma)
    return [
        Transition(
            states[t], said(call.action, agent), float(turn.reward), states[t + 1], turn.terminated,
            t + 1 == len(turns) and not turn.terminated, float(to_go[t]), call.sampling.temperature,
        )
        for t, (turn, call) in enumerate(zip(turns, calls)) if len(call.action)
    ]  # fmt: skip


class TurnReplay:
    """The last `size` transitions, drawn with replacement. Neighbours share their texts, in memory and in a checkpoint."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise UserError(f"a replay keeps at least 1 transition, not {size}")
        self._kept: deque[Transition] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, transitions: Sequence[Transition]) -> None:
        """The oldest make room."""
        self._kept.extend(transitions)

    def draw(self, count: int, rng: np.random.Generator) -> list[Transition]:
        """Any of them, equally likely each time."""
        kept = list(self._kept)
        return [kept[i] for i in rng.integers(len(kept), size=count).tolist()]

    def state(self) -> dict[str, Any]:
        """Plain JSON data."""
        texts: dict[int, int] = {}
        table: list[Any] = []

        def place(one: Said) -> int:
            if id(one) not in texts:
                texts[id(one)] = len(table)
                table.append([one.text, one.ids.tolist()])
            return texts[id(one)]

        kept = [
            [place(t.state), place(t.utterance), place(t.following), t.reward, t.terminated, t.truncated, t.to_go, t.temperature]
            for t in self._kept
        ]
        return {"texts": table, "kept": kept}

    def load(self, state: Mapping[str, Any]) -> None:
        table = [Said(np.asarray(ids, np.int32), text) for text, ids in state["texts"]]
        self._kept.clear()
        for before, utterance, after, reward, terminated, truncated, to_go, temperature in state["kept"]:
            self._kept.append(Transition(table[before], table[utterance], reward, table[after], terminated, truncated, to_go, temperature))
