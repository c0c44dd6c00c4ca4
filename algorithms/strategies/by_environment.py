"""`StrategyByEnvironment`: each environment of a mixture with its own rollout strategy."""

from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, RandomKey, environment_label
from agentrl_jax.workers.pool import Task


@dataclass
class StrategyByEnvironment:
    """The strategy of the task's environment, by its label in the mixture.

    Games in self-play beside tasks of one agent:
    `{"kuhn": SelfPlay(8), "maths": IndependentEpisodes(16)}`.
    """

    strategies: dict[str, Strategy]

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        label = environment_label(task.name)
        if label not in self.strategies:
            raise UserError(
                f"there is no strategy for the environment {label}, only for "
                f"{', '.join(self.strategies)}: add one"
            )
        return await self.strategies[label].collect(task, runtime, key)
