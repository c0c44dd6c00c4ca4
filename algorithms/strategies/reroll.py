"""`Reroll`: a group that tells nothing is played again (ActiveVLN, arXiv 2509.12618)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from agentrl_jax.algorithms.strategies.around import Around
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key
from agentrl_jax.workers import Task


def some_success(group: Group) -> bool:
    """Somebody succeeded."""
    return any(trajectory.success for trajectory in group.trajectories)


@dataclass
class Spread:
    """The returns' standard deviation is above `std`."""

    std: float = 0.0

    def __call__(self, group: Group) -> bool:
        returns = [trajectory.total_reward for trajectory in group.trajectories]
        return len(set(returns)) > 1 and float(np.std(returns, ddof=1)) > self.std


@dataclass
class Reroll(Around):
    """The first group that is `enough`, of at most `attempts`, or else the last one.

    The first attempt has the plain keys, so one attempt is the strategy itself. Turns of groups that are thrown away are counted
    (`Group.spent`), and so are their dropped episodes.
    """

    enough: Callable[[Group], bool] = some_success
    attempts: int = 2

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        if self.attempts < 1:
            raise UserError(f"a group is rolled at least once, not {self.attempts} times")
        group = await self.strategy.collect(task, runtime, key)
        for attempt in range(1, self.attempts):
            if self.enough(group):
                break
            again = await self.strategy.collect(task, runtime, (*key[:-1], seed_of(*key, attempt)))
            group = replace(again, dropped=group.dropped + again.dropped, spent=group.played + again.spent)
        return group
