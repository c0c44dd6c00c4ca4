"""`Recallable`: trajectories that say what they were about, so that it can be played again."""

from dataclasses import asdict, dataclass, replace

from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task


@dataclass
class Recallable:
    """Another strategy's groups, with the whole task in each turn's info."""

    strategy: Strategy

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        group = await self.strategy.collect(task, runtime, key)
        return replace(group, trajectories=tuple(about(trajectory, task) for trajectory in group.trajectories))


def about(trajectory: Trajectory, task: Task) -> Trajectory:
    """The trajectory with the task in each turn's info."""
    told = {"task": asdict(task)}
    return trajectory.replace(turns=tuple(replace(turn, info={**turn.info, **told}) for turn in trajectory.turns))


def task_of(trajectory: Trajectory) -> Task | None:
    """The task that the trajectory says it was about."""
    told = next((turn.info["task"] for turn in trajectory.turns if "task" in turn.info), None)
    return None if told is None else Task(**told)
