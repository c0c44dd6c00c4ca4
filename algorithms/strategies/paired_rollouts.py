"""`PairedRollouts`: two episodes with a common prefix (REFUEL, arXiv 2410.04612)."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.strategies.prefix_cache_lease import PrefixCacheLease
from agentrl_jax.errors import UserError
from agentrl_jax.keys import uniform_of
from agentrl_jax.rollout.episode import Prefix
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

# (a uniform number in [0, 1), turns of a dialogue) -> the turn h at which the pair branches
BranchTurnFn = Callable[[float, int], int]


def uniform_turn(uniform: float, turns: int) -> int:
    """h ~ U{0, ..., turns - 1}."""
    return int(uniform * turns)


def last_turn(uniform: float, turns: int) -> int:
    """h = turns - 1."""
    return turns - 1


@runtime_checkable
class RollInSource(Protocol):
    """Supplies the first h turns of a pair (`offline_pairs.DemonstrationRollIn`)."""

    def sample_roll_in(self, task: Task, key: RandomKey) -> tuple[Task, Trajectory]:
        """The task of a dialogue, and the dialogue with its calls."""
        ...


@dataclass
class PairedRollouts:
    """An episode, and a second one that continues from its first h turns with other random numbers.

    Both are played to their ends. h is `branch_turn` of a uniform number, which follows from the
    key, and the number of turns of the first; the second episode records it
    (`Trajectory.branch_turn`). The turns h of the two are independent samples after the same
    prefix; the first episode is an ordinary on-policy sample. Where one is dropped there is no
    pair: a first without a second is the only one in its group.

    With a `roll_in` the first h turns are those of its dialogue, and both episodes continue from
    them. With `max_horizon` both are cut after a number of turns from 1 to `max_horizon`, uniformly
    drawn: REFUEL's randomized horizon (its first setting: 5).
    """

    agent: str = "policy"
    branch_turn: BranchTurnFn = uniform_turn
    roll_in: RollInSource | None = None
    max_horizon: int = 0

    def __post_init__(self) -> None:
        if self.max_horizon < 0:
            raise UserError(
                "dialogues are cut after at least one turn (max_horizon >= 1), or not at all (0), "
                f"not {self.max_horizon}"
            )

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        uniform = uniform_of(*key, 0, 1, 0)
        if self.max_horizon:
            horizon = 1 + int(uniform_of(*key, 0, 1, 1) * self.max_horizon)
            runtime = self._with_turn_limit(runtime, horizon)
        with PrefixCacheLease(runtime.engines[runtime.agents[self.agent].engine]) as cache_lease:
            prefix = None
            if self.roll_in is not None:
                task, dialogue = self.roll_in.sample_roll_in(task, key)
                num_turns = len(dialogue.turns)
                num_turns = min(num_turns, runtime.agents[self.agent].limits.turns or num_turns)
                shared = dialogue.turns[: self.branch_turn(uniform, num_turns)]
                prefix = Prefix(dialogue.opening, shared, 0)
            first = await runtime.episode(task, self.agent, key, 0, prefix, on_turn=cache_lease)
            if first is None:
                return Group(task.name, (), num_dropped=1)
            if prefix is None:
                shared = first.turns[: self.branch_turn(uniform, len(first.turns))]
                prefix = Prefix(first.opening, shared, 0)
            second = await runtime.episode(task, self.agent, key, 1, prefix)
        first = first.replace(parent=None)  # a roll-in is no member of the group
        trajectories = (first,) if second is None else (first, second)
        return Group(task.name, trajectories, num_dropped=int(second is None))

    def _with_turn_limit(self, runtime: Runtime, turns: int) -> Runtime:
        """The runtime with the agent's episodes cut after at most `turns` turns."""
        agent = runtime.agents[self.agent]
        limits = dataclasses.replace(agent.limits, turns=min(turns, agent.limits.turns or turns))
        return runtime.with_agents({self.agent: dataclasses.replace(agent, limits=limits)})
