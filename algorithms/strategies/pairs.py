"""`Pairs`: two episodes with a common beginning (REFUEL, arXiv 2410.04612)."""

from dataclasses import dataclass

from agentrl_jax.algorithms.strategies.holding import Held
from agentrl_jax.episodes import Prefix
from agentrl_jax.keys import chance_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key
from agentrl_jax.workers import Task


@dataclass
class Pairs:
    """An episode, and another that goes on from its first h turns with other random numbers; both are played to their ends.

    h ~ U{0, ..., turns of the first - 1} follows from the key; the second says it (`branch_turn`). The turns h of the two are
    independent samples after the same prefix, and an ordinary on-policy sample is the first. Where one is given up there is no pair:
    a first without a second stays in the group alone.
    """

    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        with Held(runtime.engines[runtime.agents[self.agent].engine]) as held:
            first = await runtime.episode(task, self.agent, key, 0, after=held)
            if first is None:
                return Group(task.name, (), dropped=1)
            shared = int(chance_of(*key, 0, 1, 0) * len(first.turns))
            second = await runtime.episode(task, self.agent, key, 1, Prefix(first.opening, first.turns[:shared], 0))
        return Group(task.name, (first,) if second is None else (first, second), dropped=int(second is None))
