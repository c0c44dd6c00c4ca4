"""`AdaptiveBudget`: group sizes and turn limits from a task's earlier successes (DART)."""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.experience.schedules import RolloutCount
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper, with_group_size
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.trajectories import Group, RandomKey
from agentrl_jax.workers.pool import Task


@dataclass
class AdaptiveBudget(StrategyWrapper, RolloutPiece):
    """A group of `rollout_count(p)` episodes, p the task's recent success rate (arXiv 2509.23866).

    p is the fraction of the task's last `history_length` episodes that succeeded, 0 for a new task.
    With `turn_slack` no episode of a task has more turns than turn_slack x the longest success
    among them, once there is one (nor more than the agent's own limit). `history_length` and
    `turn_slack` are not published. Tasks must recur: `Rollouts(task_source=TaskSet(...))`. A
    constant count and no slack change nothing.
    """

    rollout_count: Callable[[float], int] = field(default_factory=RolloutCount)
    history_length: int = 8  # episodes of a task
    turn_slack: float = 0.0  # 0: no cap
    agent: str = "policy"
    max_tasks: int = 4096  # in the history, the most recent ones

    def __post_init__(self) -> None:
        if self.history_length < 1 or self.max_tasks < 1 or self.turn_slack < 0:
            raise UserError(
                f"history_length and max_tasks must be >= 1 and turn_slack >= 0: {self}"
            )
        self._history: OrderedDict[str, list[tuple[bool, int]]] = OrderedDict()  # success and turns

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        history = self._history.get(task.name, [])
        rate = sum(success for success, _ in history) / len(history) if history else 0.0
        strategy = with_group_size(self.strategy, self.rollout_count(rate))
        return await strategy.collect(task, self._with_turn_cap(runtime, history), key)

    def _with_turn_cap(self, runtime: Runtime, history: Sequence[tuple[bool, int]]) -> Runtime:
        longest = max((turns for success, turns in history if success), default=0)
        if not self.turn_slack or not longest:
            return runtime
        agent, cap = runtime.agents[self.agent], max(1, int(self.turn_slack * longest))
        limits = dataclasses.replace(agent.limits, turns=min(cap, agent.limits.turns or cap))
        return runtime.with_agents({self.agent: dataclasses.replace(agent, limits=limits)})

    def summarize(self, groups: Sequence[Group]) -> Any:
        return [
            [group.task, [[succeeded(t), len(t.turns)] for t in group.trajectories]]
            for group in groups
        ]

    def update(self, summaries: Sequence[Any]) -> None:
        for summary in summaries:
            for task, episodes in summary:
                history = self._history.pop(task, [])  # the task moves to the end
                history = [*history, *((bool(success), int(turns)) for success, turns in episodes)]
                self._history[task] = history[-self.history_length :]
        while len(self._history) > self.max_tasks:
            self._history.popitem(last=False)

    def state(self) -> Any:
        return [[task, [list(pair) for pair in pairs]] for task, pairs in self._history.items()]

    def load(self, state: Any) -> None:
        self._history = OrderedDict(
            (task, [(bool(success), int(turns)) for success, turns in pairs])
            for task, pairs in state
        )
