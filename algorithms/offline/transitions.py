"""`TurnTransitions`: single turns of trajectories as experience, each with the turn after it
(LMRL-Gym's chained data, arXiv 2311.18232).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import turn_index
from agentrl_jax.keys import seed_of
from agentrl_jax.learner.sequences import TokenIndex
from agentrl_jax.training.config import ExperienceIterator, RunContext, Source
from agentrl_jax.trajectories import Group, Trajectory


@dataclass
class TurnTransitions:
    """`count` turns a step, each sampled from an episode of another source: all turns of a few
    episodes would be strongly correlated.

    Episodes are sampled uniformly, then a turn of the episode uniformly: the few that reach a
    distant goal are the short ones, and would be rare among all turns of all episodes. Each sample
    is a trajectory of two turns, of which `first_turn_mean` weights the first alone, or of an
    episode's last turn. One-step targets (`ExpectileTarget`) need no more; returns do.
    """

    source: Source
    count: int = 32
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return TurnTransitionIterator(
            self.source.open(run),
            len(run.process_group.local_items(range(self.count))),
            seed_of(run.experiment.seed, 4, run.process_group.index),
        )


@dataclass(frozen=True)
class TurnTransitionIterator(ExperienceIterator):
    iterator: ExperienceIterator
    count: int
    seed: int

    def next(self, step: int) -> list[Group]:
        groups = self.iterator.next(step)
        episodes = [t for group in groups for t in group.trajectories if t.turns]
        rng = np.random.default_rng([self.seed, step])
        sampled = [episodes[i] for i in rng.integers(len(episodes), size=self.count)]
        return [two_turn_group(x, int(rng.integers(len(x.turns)))) for x in sampled]

    def state(self) -> Any:
        return self.iterator.state()

    def load(self, state: Any) -> None:
        self.iterator.load(state)


def two_turn_group(trajectory: Trajectory, turn: int) -> Group:
    """The turn and the next; those after them are cut off, which no one-step target uses."""
    return Group(trajectory.task, (trajectory.replace(turns=trajectory.turns[turn : turn + 2]),))


def first_turn_mean(token_index: TokenIndex) -> np.ndarray:
    """Mean over the tokens of each trajectory's first turn."""
    first = (turn_index(token_index) == 0)[token_index.token_turn]
    return first / max(int(first.sum()), 1)
