"""`Links`: single turns of trajectories as experience, each with the turn after it (LMRL-Gym's chained data, arXiv 2311.18232)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.algorithms.keying import place_of_turn
from agentrl_jax.experiment import Feed, Source
from agentrl_jax.keys import seed_of
from agentrl_jax.rows import Indices
from agentrl_jax.run import Run
from agentrl_jax.trajectories import Group, Trajectory


@dataclass
class Links:
    """`count` turns a step, each of an episode that another source has in it: all turns of a few would pull values one way together.

    Any episode is drawn as likely as another, and then any turn of it: the few that reach a far goal are the short ones, and would
    hardly be seen among all turns of all.
    A link is a trajectory of two turns, of which `first_turns` weighs the first alone, or of an episode's last one. Values that look one
    action ahead (`Expectile`) need no more; returns do.
    """

    source: Source
    count: int = 32
    on_policy: bool = field(default=False, init=False)

    def open(self, run: Run) -> Feed:
        return LinkFeed(self.source.open(run), len(run.hosts.mine(range(self.count))), seed_of(run.experiment.seed, 4, run.hosts.index))


@dataclass(frozen=True)
class LinkFeed:
    feed: Feed
    count: int
    seed: int

    def next(self, step: int) -> list[Group]:
        groups = self.feed.next(step)
        episodes = [t for group in groups for t in group.trajectories if t.turns]
        rng = np.random.default_rng([self.seed, step])
        drawn = [episodes[i] for i in rng.integers(len(episodes), size=self.count)]
        return [linked(episode, int(rng.integers(len(episode.turns)))) for episode in drawn]

    def state(self) -> Any:
        return self.feed.state()

    def load(self, state: Any) -> None:
        self.feed.load(state)


def linked(trajectory: Trajectory, turn: int) -> Group:
    """The turn and the next; what comes after them is cut off, which nobody looks at."""
    return Group(trajectory.task, (trajectory.replace(turns=trajectory.turns[turn : turn + 2]),))


def first_turns(indices: Indices) -> np.ndarray:
    """Mean over the tokens of each trajectory's first turn."""
    first = (place_of_turn(indices) == 0)[indices.token_turn]
    return first / max(int(first.sum()), 1)
