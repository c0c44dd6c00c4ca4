"""The plain strategy: independent episodes of one task."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from agentrl_jax.keys import seed_of
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

Kind = TypeVar("Kind")


async def gathered(task: Task, episodes: Sequence[Awaitable[Trajectory | None]]) -> Group:
    """The group of the episodes, played side by side; those that were given up are counted."""
    played = await asyncio.gather(*episodes)
    done = tuple(trajectory for trajectory in played if trajectory is not None)
    return Group(task.name, done, dropped=len(played) - len(done))


@runtime_checkable
class Stateful(Protocol):
    """What a checkpoint keeps: plain JSON data."""

    def state(self) -> Any: ...

    def load(self, state: Any) -> None: ...


@runtime_checkable
class Remembering(Stateful, Protocol):
    """What goes by what was played before. Of several processes each is told the same, so all remember the same."""

    def tell(self, groups: Sequence[Group]) -> Any:
        """Plain data on the groups that this process collected in a step."""
        ...

    def learn(self, told: Sequence[Any]) -> None:
        """What all processes tell."""
        ...


@runtime_checkable
class Joining(Protocol):
    """What needs more of a run than its runtime, and is told of it before the phase's first weights are published."""

    def join(self, run: Any) -> None: ...


@runtime_checkable
class Holding(Protocol):
    """What reads the policy's weights themselves, and not only what an engine samples with them."""

    def hold(self, policy: Policy, params: Params, engine: EngineConfig, version: int = 0) -> None: ...


@runtime_checkable
class Learned(Protocol):
    """What learns how the policy is best played, beside its weights."""

    def best(self) -> Strategy:
        """One episode a task, played so."""
        ...


def found(kind: type[Kind], strategy: Any) -> list[Kind]:
    """All of a kind among a strategy and the dataclasses in its fields, at any depth, the outermost first."""
    if not is_dataclass(strategy):
        return []
    itself = [strategy] if isinstance(strategy, kind) else []
    return [*itself, *(one for field in fields(strategy) for one in found(kind, getattr(strategy, field.name)))]


@dataclass
class Independent:
    """`group_size` episodes of the same world (same seed), each with its own random numbers.

    A retry has the same random numbers as the attempt that failed, so a passing fault leaves no trace. A member that was given up
    all the same is not made up for, since what fails may depend on what was said; with `spares`, as many further samples at most
    take the places of such members, and the group still counts them as dropped.
    """

    group_size: int = 8
    agent: str = "policy"
    spares: int = 0

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        group = await self._played(task, runtime, key, range(self.group_size))
        first, last = self.group_size, self.group_size + self.spares
        while first < last and len(group.trajectories) < self.group_size:
            after = min(last, first + self.group_size - len(group.trajectories))
            more, first = await self._played(task, runtime, key, range(first, after)), after
            group = Group(task.name, group.trajectories + more.trajectories, group.dropped + more.dropped)
        return group

    async def _played(self, task: Task, runtime: Runtime, key: Key, samples: range) -> Group:
        return await gathered(task, [runtime.episode(task, self.agent, key, sample) for sample in samples])


@dataclass
class Scripted:
    """`group_size` episodes of a scripted player."""

    player: str
    group_size: int = 1

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        samples = range(self.group_size)
        return await gathered(task, [runtime.scripted(task, self.player, seed_of(*key, sample), sample) for sample in samples])
