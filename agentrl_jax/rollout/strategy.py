"""`IndependentEpisodes`, the plain strategy, and `RolloutPiece`, the base of stateful ones."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.keys import seed_of
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


async def gather_group(task: Task, episodes: Sequence[Awaitable[Trajectory | None]]) -> Group:
    """The group of concurrent episodes; dropped ones (None) are counted."""
    results = await asyncio.gather(*episodes)
    trajectories = tuple(result for result in results if result is not None)
    return Group(task.name, trajectories, num_dropped=len(results) - len(trajectories))


class RolloutPiece:
    """What a rollout strategy may do in a run beyond playing episodes; nothing, by default.

    A strategy, or any dataclass in its fields at any depth, inherits from this class and overrides
    what it needs (`find_pieces` is the walk). Asynchronous rollouts have no whole steps, so
    `AsyncRollouts` refuses a strategy that contains such a piece.
    """

    def attach(self, run: Any) -> None:
        """Called with the `RunContext` when its phase opens, before the phase's first weights are
        published.
        """

    def set_policy(
        self, policy: Policy, params: Params, engine: EngineConfig, version: int = 0
    ) -> None:
        """Called before an evaluation with the weights that are evaluated."""

    def summarize(self, groups: Sequence[Group]) -> Any:
        """Plain JSON data on the groups that this process collected in a step.

        None (the default) means that the piece learns nothing: a piece always returns None or
        never, since the processes of a run exchange what is not None.
        """
        return None

    def update(self, summaries: Sequence[Any]) -> None:
        """Called after each step with the summaries of all processes, the same in each process."""

    def best_strategy(self) -> Strategy | None:
        """One episode a task in the best way that was learned; None: nothing was learned."""
        return None

    def state(self) -> Any:
        """Plain JSON data for a checkpoint; None where there is no state."""
        return None

    def load(self, state: Any) -> None:
        """Restore what `state` returned; not called where that was None."""


def find_pieces(strategy: Any) -> list[RolloutPiece]:
    """All pieces among a strategy and the dataclasses in its fields and dicts, the outermost
    first.
    """
    if isinstance(strategy, dict):
        return [piece for value in strategy.values() for piece in find_pieces(value)]
    if not is_dataclass(strategy):
        return []
    pieces: list[RolloutPiece] = [strategy] if isinstance(strategy, RolloutPiece) else []
    for field in fields(strategy):
        pieces += find_pieces(getattr(strategy, field.name))
    return pieces


def save_pieces(strategy: Any) -> list[Any]:
    """The states of all pieces of a strategy that have one, in the order of `find_pieces`."""
    states = [piece.state() for piece in find_pieces(strategy)]
    return [state for state in states if state is not None]


def load_pieces(strategy: Any, states: Sequence[Any]) -> None:
    """Restore what `save_pieces` returned for a strategy of the same pieces."""
    stateful = [piece for piece in find_pieces(strategy) if piece.state() is not None]
    for piece, state in zip(stateful, states, strict=True):
        piece.load(state)


@dataclass
class IndependentEpisodes:
    """`group_size` episodes of one task (same seed), each with its own random numbers.

    A retry has the random numbers of the failed attempt, so a transient failure leaves no trace. A
    dropped episode is not replaced by default, since failures may depend on the actions. With
    `spares`, at most so many further samples replace dropped ones, which the group still counts.
    """

    group_size: int = 8
    agent: str = "policy"
    spares: int = 0

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        group = await self._play(task, runtime, key, range(self.group_size))
        start, last = self.group_size, self.group_size + self.spares
        while start < last and len(group.trajectories) < self.group_size:
            stop = min(last, start + self.group_size - len(group.trajectories))
            spare_group = await self._play(task, runtime, key, range(start, stop))
            start = stop
            group = Group(
                task.name,
                group.trajectories + spare_group.trajectories,
                group.num_dropped + spare_group.num_dropped,
            )
        return group

    async def _play(self, task: Task, runtime: Runtime, key: RandomKey, samples: range) -> Group:
        return await gather_group(
            task, [runtime.episode(task, self.agent, key, sample) for sample in samples]
        )


@dataclass
class ScriptedEpisodes:
    """`group_size` episodes of a scripted policy of the environment."""

    player: str
    group_size: int = 1

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        samples = range(self.group_size)
        return await gather_group(
            task,
            [
                runtime.scripted_episode(task, self.player, seed_of(*key, sample), sample)
                for sample in samples
            ],
        )
