"""Metrics of the rewards that an algorithm trains on: those after reward transforms."""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.trajectories import Group

METRIC = "trained_reward"


def trained_reward_metrics(
    groups: Sequence[Group], process_group: ProcessGroup
) -> dict[str, float]:
    """`trained_reward`, the mean return after reward transforms, and `trained_reward/<part>`, the
    mean of each named part, where a trajectory without the part counts 0.
    """
    local = [
        {
            METRIC: trajectory.total_reward,
            **{f"{METRIC}/{name}": value for name, value in trajectory.reward_parts.items()},
        }
        for group in groups
        for trajectory in group.trajectories
        if trajectory.turns
    ]
    rewards = [x for part in process_group.all_gather("trained rewards", local) for x in part]
    names = sorted({name for reward in rewards for name in reward})
    return {name: float(np.mean([x.get(name, 0.0) for x in rewards])) for name in names}
