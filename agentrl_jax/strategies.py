"""The plain strategy: independent episodes of one task."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from agentrl_jax.keys import seed_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task


async def gathered(task: Task, episodes: Sequence[Awaitable[Trajectory | None]]) -> Group:
    """The group of the episodes, played side by side; those lost to environment failures are counted."""
    played = await asyncio.gather(*episodes)
    done = tuple(trajectory for trajectory in played if trajectory is not None)
    return Group(task.name, done, dropped=len(played) - len(done))


@dataclass
class Independent:
    """`group_size` episodes of the same world (same seed), each with its own random numbers."""

    group_size: int = 8
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        return await gathered(task, [runtime.episode(task, self.agent, key, sample) for sample in range(self.group_size)])


@dataclass
class Scripted:
    """`group_size` episodes of a scripted player."""

    player: str
    group_size: int = 1

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        samples = range(self.group_size)
        return await gathered(task, [runtime.scripted(task, self.player, seed_of(*key, sample), sample) for sample in samples])
