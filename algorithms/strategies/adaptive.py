"""`Adaptive`: how often and how long a task is played follows from earlier successes (DART, arXiv 2509.23866)."""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.algorithms.schedules import RolloutCount
from agentrl_jax.algorithms.strategies.around import Around, of_size
from agentrl_jax.errors import UserError
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key
from agentrl_jax.workers import Task


@dataclass
class Adaptive(Around):
    """A group of `count(p)` episodes, p the share of the task's last `memory` ones that succeeded; 0 for a task never seen.

    With `slack` no episode of a task has more turns than slack x the longest success among them, once there is one (nor more than
    the agent's own limit). Over how many episodes p is taken, and how much longer than a success an episode may be, is not published.
    Tasks must come again: `Rollouts(worlds=...)`. A constant count and no slack change nothing.
    """

    count: Callable[[float], int] = field(default_factory=RolloutCount)
    memory: int = 8  # episodes of a task
    slack: float = 0.0  # 0: no cap
    agent: str = "policy"
    tasks: int = 4096  # that are remembered, those played last

    def __post_init__(self) -> None:
        if self.memory < 1 or self.tasks < 1 or self.slack < 0:
            raise UserError(f"what follows success needs memory and tasks >= 1 and slack >= 0: {self}")
        self._played: OrderedDict[str, list[tuple[bool, int]]] = OrderedDict()  # success and turns

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        seen = self._played.get(task.name, [])
        count = self.count(sum(success for success, _ in seen) / len(seen) if seen else 0.0)
        return await of_size(self.strategy, count).collect(task, self._capped(runtime, seen), key)

    def _capped(self, runtime: Runtime, seen: Sequence[tuple[bool, int]]) -> Runtime:
        longest = max((turns for success, turns in seen if success), default=0)
        if not self.slack or not longest:
            return runtime
        who, cap = runtime.agents[self.agent], max(1, int(self.slack * longest))
        limits = dataclasses.replace(who.limits, turns=min(cap, who.limits.turns or cap))
        return runtime.under({self.agent: dataclasses.replace(who, limits=limits)})

    def tell(self, groups: Sequence[Group]) -> Any:
        return [[group.task, [[bool(t.success), len(t.turns)] for t in group.trajectories]] for group in groups]

    def learn(self, told: Sequence[Any]) -> None:
        for one in told:
            for task, played in one:
                before = self._played.pop(task, [])
                self._played[task] = [*before, *((bool(success), int(turns)) for success, turns in played)][-self.memory :]
        while len(self._played) > self.tasks:
            self._played.popitem(last=False)

    def state(self) -> Any:
        return [[task, [list(one) for one in played]] for task, played in self._played.items()]

    def load(self, state: Any) -> None:
        self._played = OrderedDict((task, [(bool(success), int(turns)) for success, turns in played]) for task, played in state)
