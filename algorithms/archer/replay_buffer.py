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
from agentrl_jax.images.prompts import refuse_images
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
    refuse_images(calls, "an utterance critic")
    states = [decode_ids(call.prompt, agent) for call in calls]
    if not turns or turns[-1].terminated:
        states.append(EMPTY_TEXT)
    else:
        context = agent.for_task(trajectory.task).context
        messages = list(context.view(trajectory.opening, turns))
        states.append(decode_ids(agent.renderer.render(messages, trajectory.tools).text_ids, agent))
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


@dataclass(frozen=True)
class RecentShare:
    """Recent and older turns are drawn apart: `fraction` of a batch from the last `iterations`
    iterations, so that the replay's older turns, and demonstrations, do not outvote the policy's.
    """

    fraction: float = 0.5
    iterations: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1 or self.iterations < 1:
            raise UserError(
                "the recent share of a replay is a fraction in [0, 1] of the last 1 or more "
                f"iterations, not {self}"
            )


@dataclass(frozen=True, eq=False)
class ReplayedEpisode:
    """The turns of an episode, and the iteration that added them."""

    turns: Sequence[Transition]
    iteration: int


class ReplayBuffer:
    """The last `capacity` transitions, sampled with replacement. Consecutive ones share their
    texts, in memory and in a checkpoint.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise UserError(f"a replay keeps at least 1 transition, not {capacity}")
        self._capacity, self._turns, self._iteration = capacity, 0, 0
        self._episodes: deque[ReplayedEpisode] = deque()

    def __len__(self) -> int:
        return self._turns

    def begin_iteration(self) -> None:
        """What is added from now on belongs to a new iteration."""
        self._iteration += 1

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append an episode; the oldest turns are dropped beyond the capacity."""
        if not transitions:
            return
        self._episodes.append(ReplayedEpisode(list(transitions), self._iteration))
        self._turns += len(transitions)
        while (excess := self._turns - self._capacity) > 0:
            oldest = self._episodes.popleft()
            if excess < len(oldest.turns):
                remaining = ReplayedEpisode(oldest.turns[excess:], oldest.iteration)
                self._episodes.appendleft(remaining)
            self._turns -= min(excess, len(oldest.turns))

    def draw(
        self, count: int, rng: np.random.Generator, recent: RecentShare | None = None
    ) -> list[Transition]:
        """Uniform samples of turns, with replacement."""
        sample: list[Transition] = []
        parts = self._parts(recent)
        ends = np.round(np.cumsum([share for _, share in parts]) * count).astype(int)
        for (episodes, _), end in zip(parts, ends.tolist()):
            turns = [turn for episode in episodes for turn in episode.turns]
            indices = rng.integers(len(turns), size=end - len(sample))
            sample += [turns[i] for i in indices.tolist()]
        return sample

    def draw_episodes(
        self, count: int, rng: np.random.Generator, recent: RecentShare | None = None
    ) -> list[Transition]:
        """About `count` turns: all of as many episodes as have `count` turns on average, at least
        one, drawn uniformly with replacement; a turn is drawn as often as by `draw`.
        """
        sample: list[Transition] = []
        for episodes, share in self._parts(recent):
            mean_turns = sum(len(episode.turns) for episode in episodes) / len(episodes)
            size = max(round(share * count / mean_turns), 1)
            for i in rng.integers(len(episodes), size=size).tolist():
                sample += episodes[i].turns
        return sample

    def _parts(self, recent: RecentShare | None) -> list[tuple[Sequence[ReplayedEpisode], float]]:
        """The episodes that are drawn from apart, each with its share of a batch."""
        episodes = list(self._episodes)
        if recent is None:
            return [(episodes, 1.0)]
        first = self._iteration - recent.iterations + 1
        new = [episode for episode in episodes if episode.iteration >= first]
        old = [episode for episode in episodes if episode.iteration < first]
        if not (new and old):
            return [(new or old, 1.0)]
        parts = [(new, recent.fraction), (old, 1.0 - recent.fraction)]
        return [(part, share) for part, share in parts if share]

    def state(self) -> dict[str, Any]:
        """Plain JSON data."""
        texts: dict[int, int] = {}
        table: list[Any] = []

        def index_of(text: TokenizedText) -> int:
            if id(text) not in texts:
                texts[id(text)] = len(table)
                table.append([text.text, text.ids.tolist()])
            return texts[id(text)]

        episodes = [
            [
                episode.iteration,
                [
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
                    for t in episode.turns
                ],
            ]
            for episode in self._episodes
        ]
        return {"texts": table, "episodes": episodes, "iteration": self._iteration}

    def load(self, state: Mapping[str, Any]) -> None:
        table = [TokenizedText(np.asarray(ids, np.int32), text) for text, ids in state["texts"]]
        self._iteration = state["iteration"]
        self._episodes.clear()
        for iteration, rows in state["episodes"]:
            turns = [
                Transition(table[before], table[utterance], reward, table[after], *rest)
                for before, utterance, after, reward, *rest in rows
            ]
            self._episodes.append(ReplayedEpisode(turns, iteration))
        self._turns = sum(len(episode.turns) for episode in self._episodes)
