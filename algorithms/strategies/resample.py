"""`ResampleGroup`: plays a group again where it has no learning signal (ActiveVLN, 2509.12618)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey
from agentrl_jax.workers.pool import Task


def any_success(group: Group) -> bool:
    """Whether an episode of the group succeeded."""
    return any(map(succeeded, group.trajectories))


@dataclass
class ReturnStdAbove:
    """Whether the standard deviation of the returns is above `min_std`."""

    min_std: float = 0.0

    def __call__(self, group: Group) -> bool:
        returns = [trajectory.total_reward for trajectory in group.trajectories]
        return len(set(returns)) > 1 and float(np.std(returns, ddof=1)) > self.min_std


@dataclass
class ResampleGroup(StrategyWrapper):
    """The first group that `is_accepted`, of at most `max_attempts`, or else the last one.

    The first attempt has the plain keys, so one attempt is the strategy itself. Turns of discarded
    groups are counted in `Group.discarded_turns`, their dropped episodes in `Group.num_dropped`.
    """

    is_accepted: Callable[[Group], bool] = any_success
    max_attempts: int = 2

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if self.max_attempts < 1:
            raise UserError(f"a group needs at least one attempt, not {self.max_attempts}")
        group = await self.strategy.collect(task, runtime, key)
        for attempt in range(1, self.max_attempts):
            if self.is_accepted(group):
                break
            new_key = (*key[:-1], seed_of(*key, attempt))
            new_group = await self.strategy.collect(task, runtime, new_key)
            group = replace(
                new_group,
                num_dropped=group.num_dropped + new_group.num_dropped,
                discarded_turns=group.num_turns_played + new_group.discarded_turns,
            )
        return group
