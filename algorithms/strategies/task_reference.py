"""`WithTaskReference`: trajectories that record their task, so that it can be played again."""

from dataclasses import asdict, dataclass, replace

from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


@dataclass
class WithTaskReference:
    """Another strategy's groups, with the whole task in each turn's info."""

    strategy: Strategy

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        group = await self.strategy.collect(task, runtime, key)
        return replace(
            group,
            trajectories=tuple(
                with_task_info(trajectory, task) for trajectory in group.trajectories
            ),
        )


def with_task_info(trajectory: Trajectory, task: Task) -> Trajectory:
    """The trajectory with the task in each turn's info."""
    fields = asdict(task)
    return trajectory.replace(
        turns=tuple(replace(t, info={**t.info, "task": fields}) for t in trajectory.turns)
    )


def task_from_info(trajectory: Trajectory) -> Task | None:
    """The task in the turns' info, or None."""
    fields = next((turn.info["task"] for turn in trajectory.turns if "task" in turn.info), None)
    return None if fields is None else Task(**fields)
