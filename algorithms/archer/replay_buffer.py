"""Turns as transitions for utterance critics, and the bounded replay buffer that they are sampled
from (ArCHer, arXiv 2402.19446).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.returns import reward_to_go
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Trajectory


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text as the policy's token ids, and as a string for encoders with another tokenizer."""

    ids: np.ndarray  # int32, the policy's; of an utterance with its end-of-turn token
    text: str


EMPTY_TEXT = TokenizedText(np.zeros(0, np.int32), "")


@dataclass(frozen=True, eq=False)
class Transition:
    """One turn. `terminated`: the environment ended the episode; `truncated`: it was cut off."""

    state: TokenizedText  # the prompt of the turn
    utterance: TokenizedText
    reward: float
    next_state: TokenizedText  # empty where the episode has terminated
    terminated: bool
    truncated: bool
    return_to_go: float  # discounted rewards of this turn and all after it
    temperature: float = 1.0  # of the sampling


def decode_ids(ids: np.ndarray, agent: Agent) -> TokenizedText:
    """Ids with their text."""
    return TokenizedText(np.asarray(ids, np.int32), agent.renderer.parse(ids).text)


def transitions_of(trajectory: Trajectory, agent: Agent, gamma: float) -> list[Transition]:
    """The trajectory's turns, discounted by `gamma` per turn. Notes that a context manager adds
    belong to the state.

    Raises:
        UserError: a turn has no call.
    """
    turns = trajectory.turns
    if any(not turn.calls for turn in turns):
        raise UserError("a turn without a call cannot be replayed: give demonstrations their calls")
    calls = [turn.calls[-1] for turn in turns]
    states = [decode_ids(call.prompt, agent) for call in calls]
    if not turns or turns[-1].terminated:
        states.append(EMPTY_TEXT)
    else:
        context = agent.for_task(trajectory.task).context
        messages = list(context.view(trajectory.opening, turns))
        states.append(decode_ids(agent.renderer.render(messages, trajectory.tools).ids, agent))
    rewards = np.array([turn.reward for turn in turns])
    to_go = reward_to_go(rewards, np.zeros(len(turns), np.int64), gamma)
    return [
        Transition(
            states[t],
            decode_ids(call.action, agent),
            float(turn.reward),
            states[t + 1],
            terminated=turn.terminated,
            truncated=t + 1 == len(turns) and not turn.terminated,
            return_to_go=float(to_go[t]),
            temperature=call.sampling.temperature,
        )
        for t, (turn, call) in enumerate(zip(turns, calls))
        if len(call.action)
    ]


class ReplayBuffer:
    """The last `capacity` transitions, sampled with replacement. Consecutive ones share their
    texts, in memory and in a checkpoint.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise UserError(f"a replay keeps at least 1 transition, not {capacity}")
        self._transitions: deque[Transition] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._transitions)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append; the oldest are dropped beyond the capacity."""
        self._transitions.extend(transitions)

    def draw(self, count: int, rng: np.random.Generator) -> list[Transition]:
        """Uniform samples with replacement."""
        transitions = list(self._transitions)
        indices = rng.integers(len(transitions), size=count).tolist()
        return [transitions[i] for i in indices]

    def state(self) -> dict[str, Any]:
        """Plain JSON data."""
        texts: dict[int, int] = {}
        table: list[Any] = []

        def index_of(text: TokenizedText) -> int:
            if id(text) not in texts:
                texts[id(text)] = len(table)
                table.append([text.text, text.ids.tolist()])
            return texts[id(text)]

        rows = [
            [
                index_of(t.state),
                index_of(t.utterance),
                index_of(t.next_state),
                t.reward,
                t.terminated,
                t.truncated,
                t.return_to_go,
                t.temperature,
            ]
            for t in self._transitions
        ]
        return {"texts": table, "kept": rows}

    def load(self, state: Mapping[str, Any]) -> None:
        table = [TokenizedText(np.asarray(ids, np.int32), text) for text, ids in state["texts"]]
        self._transitions.clear()
        for before, utterance, after, reward, *rest in state["kept"]:
            self._transitions.append(
                Transition(table[before], table[utterance], reward, table[after], *rest)
            )
