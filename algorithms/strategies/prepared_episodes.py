"""`PreparedEpisodes`: one agent's answer sets the stage for the episodes of another."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

PREPARATION_KEY = -7  # in place of a sample, in the key of the preparing episode


@dataclass
class PreparedEpisodes(StrategyWrapper):
    """An episode of another environment with the task's seed; then the strategy's episodes, in
    which what that one ended with is a reset option.

    In MARS-SQL (arXiv 2511.01008) a grounding agent names the tables that a question needs, and a
    generation agent is shown these. Where the preparing episode is dropped or has no such field,
    the strategy plays the task as it is, which `info["prepared"]` of the last turns tells. The
    turns of the preparing episode count in `Group.discarded_turns`.

    Args:
        strategy: plays the prepared tasks.
        preparation: the environment of the first episode.
        agent: plays it; an agent or a named model.
        option: the field of its last turn's info, and the name of the reset option.
        shared: options that both environments have, which the task's replace.
    """

    preparation: EnvironmentSpec | None = None
    agent: str = "policy"
    option: str = ""
    shared: tuple[str, ...] = ()

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if self.preparation is None or not self.option:
            raise UserError("PreparedEpisodes needs a preparation and the option that it sets")
        options = {name: task.options[name] for name in self.shared if name in task.options}
        preparing = dataclasses.replace(
            self.preparation.task(task.seed, task.group),
            options={**self.preparation.options, **options},
            label=task.label,
        )
        episode = await runtime.episode(preparing, self.agent, (*key, PREPARATION_KEY))
        prepared: Any = None
        if episode is not None and episode.turns:
            prepared = episode.turns[-1].info.get(self.option)
        if prepared is not None:
            reset_options = {**(task.reset_options or {}), self.option: prepared}
            task = dataclasses.replace(task, reset_options=reset_options)
        group = await self.strategy.collect(task, runtime, key)
        marked = (_with_preparation(trajectory, prepared) for trajectory in group.trajectories)
        turns = len(episode.turns) if episode is not None else 0
        return dataclasses.replace(
            group,
            trajectories=tuple(marked),
            num_dropped=group.num_dropped + (episode is None),
            discarded_turns=group.discarded_turns + turns,
        )


def _with_preparation(trajectory: Trajectory, prepared: Any) -> Trajectory:
    if not trajectory.turns:
        return trajectory
    *earlier, last = trajectory.turns
    last = dataclasses.replace(last, info={**last.info, "prepared": prepared})
    return trajectory.replace(turns=(*earlier, last))
