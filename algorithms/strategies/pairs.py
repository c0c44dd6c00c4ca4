"""`Pairs`: two episodes with a common beginning (REFUEL, arXiv 2410.04612)."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.strategies.holding import Held
from agentrl_jax.episodes import Prefix
from agentrl_jax.errors import UserError
from agentrl_jax.keys import chance_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

Cut = Callable[[float, int], int]  # (a number in [0, 1), turns of a dialogue) -> the turn h at which the pair parts


def any_turn(chance: float, turns: int) -> int:
    """h ~ U{0, ..., turns - 1}."""
    return int(chance * turns)


def last_turn(chance: float, turns: int) -> int:
    """h = turns - 1."""
    return turns - 1


@runtime_checkable
class Beginning(Protocol):
    """Whose dialogues the first h turns are from (`recorded.Recorded`)."""

    def begun(self, task: Task, key: Key) -> tuple[Task, Trajectory]:
        """A dialogue, with calls, and the task of its world."""
        ...


@dataclass
class Pairs:
    """An episode, and another that goes on from its first h turns with other random numbers; both are played to their ends.

    h = `cut` of a number that follows from the key and the turns of the first; the second says it (`branch_turn`). The turns h of the two
    are independent samples after the same prefix, and an ordinary on-policy sample is the first. Where one is given up there is no
    pair: a first without a second stays in the group alone.

    With a `roll_in` the first h turns are those of its dialogue, and both episodes go on from them. With `longest` both are cut after a
    number of turns of 1 to `longest`, equally likely: REFUEL's randomised horizon (its first setting: 5).
    """

    agent: str = "policy"
    cut: Cut = any_turn
    roll_in: Beginning | None = None
    longest: int = 0

    def __post_init__(self) -> None:
        if self.longest < 0:
            raise UserError(f"dialogues are cut after at least one turn (longest >= 1), or not at all (0), not {self.longest}")

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        chance = chance_of(*key, 0, 1, 0)
        if self.longest:
            runtime = self._limited(runtime, 1 + int(chance_of(*key, 0, 1, 1) * self.longest))
        with Held(runtime.engines[runtime.agents[self.agent].engine]) as held:
            prefix = None
            if self.roll_in is not None:
                task, shown = self.roll_in.begun(task, key)
                turns = len(shown.turns)
                turns = min(turns, runtime.agents[self.agent].limits.turns or turns)
                prefix = Prefix(shown.opening, shown.turns[: self.cut(chance, turns)], 0)
            first = await runtime.episode(task, self.agent, key, 0, prefix, after=held)
            if first is None:
                return Group(task.name, (), dropped=1)
            if prefix is None:
                prefix = Prefix(first.opening, first.turns[: self.cut(chance, len(first.turns))], 0)
            second = await runtime.episode(task, self.agent, key, 1, prefix)
        first = first.replace(parent=None)  # a roll-in is no member of the group
        return Group(task.name, (first,) if second is None else (first, second), dropped=int(second is None))

    def _limited(self, runtime: Runtime, turns: int) -> Runtime:
        """The runtime with the agent's episodes cut after so many turns at most."""
        agent = runtime.agents[self.agent]
        limits = dataclasses.replace(agent.limits, turns=min(turns, agent.limits.turns or turns))
        return runtime.under({self.agent: dataclasses.replace(agent, limits=limits)})
