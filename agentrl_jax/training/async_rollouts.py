"""`AsyncRollouts`: rollouts that continue while the learner trains."""

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.lazy_tasks import Tasks
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import find_pieces
from agentrl_jax.rollout.virtual_clock import VirtualLoop
from agentrl_jax.storage.rollout_index import IndexEvent, RolloutIndex
from agentrl_jax.training.config import ExperienceIterator, Experiment, Phase, RunContext
from agentrl_jax.training.consumed_tasks import ConsumedTasks
from agentrl_jax.training.sources import Rollouts, open_tasks
from agentrl_jax.training.staleness import InFlight, StalenessQueue, conserved_groups
from agentrl_jax.training.task_source import numbered
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import Task


@dataclass
class AsyncRollouts:
    """Rollouts whose tokens are at most `staleness` weight versions old when they are trained on.

    With staleness 0 the learner and the rollouts alternate, as with `Rollouts` alone.
    See docs/asynchrony.md.
    """

    rollouts: Rollouts = field(default_factory=Rollouts)
    staleness: int = 1
    # No group is in flight at a checkpoint: a run resumed from there equals an uninterrupted one,
    # at the price of waiting.
    drain_at_checkpoints: bool = False
    on_policy: bool = field(default=True, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        """Raises UserError where the settings of the run do not go together with this source."""
        name, phase = run.phase, run.experiment.phases[run.phase]
        self._check(run, name, phase)
        index = run.process_group.index
        suffix = f".{index}" if index else ""
        rollout_index = RolloutIndex(
            run.run_dir / f"rollouts{suffix}.sqlite",
            run.read_trajectories,
            name,
            run.warn,
            run.runtime.track_work,
        )
        run.exit_stack.callback(rollout_index.close)
        if run.experiment.clock is None:
            run.runtime.start_loop_thread()
        return AsyncRolloutIterator(
            self,
            run.runtime,
            run.experiment,
            rollout_index,
            phase.steps,
            phase.checkpoint_every if self.drain_at_checkpoints else 0,
        )

    def _check(self, run: RunContext, name: str, phase: Phase) -> None:
        rollouts, processes = self.rollouts, run.process_group.count
        if rollouts.tasks < processes or self.staleness < 0:
            raise UserError(
                f"{name}.source needs staleness >= 0 and rollouts.tasks >= {processes}, "
                "a task for each process"
            )
        if (
            (rollouts.task_source is not None and rollouts.task_source.learns)
            or rollouts.max_turns
            or rollouts.group_filter
            or rollouts.max_rounds != 1
            or find_pieces(rollouts.strategy)
        ):
            fields = "task samplers, max_turns, group_filter, max_rounds or stateful strategies"
            raise UserError(
                f"{name}.source is asynchronous, without {fields}, which need whole steps: "
                "leave them out"
            )
        if phase.trained_agents != ("policy",):
            raise UserError(
                f"{name}.source is asynchronous, and follows the weights of the agent 'policy' "
                "alone: train another agent, or several, with Rollouts"
            )
        if self.staleness < phase.publish_every - 1:
            raise UserError(
                f"{name}.source.staleness must be at least publish_every - 1 = "
                f"{phase.publish_every - 1}"
            )
        if run.experiment.record_groups < rollouts.tasks:
            raise UserError(
                f"config.record_groups must be at least {name}.source.rollouts.tasks = "
                f"{rollouts.tasks}: the rollout index is built from the trajectory log"
            )
        engine = run.experiment.engine
        mesh = engine.devices()
        is_spmd = mesh.shape["tensor"] * mesh.shape["expert"] > 1
        if is_spmd and engine.all_devices() & set(run.mesh.devices.flat):
            raise UserError(
                "an engine that is sharded over devices needs devices apart from the learner's: "
                "set engine.first_device"
            )


class AsyncRolloutIterator(ExperienceIterator):
    """Each process plays its part of every step's tasks; all of them know what was consumed."""

    def __init__(
        self,
        config: AsyncRollouts,
        runtime: Runtime,
        experiment: Experiment,
        rollout_index: RolloutIndex,
        steps: int,
        drain_every: int,
    ) -> None:
        self._config, self._runtime, self._experiment = copy.deepcopy(config), runtime, experiment
        self._rollout_index, self._steps, self._drain_every = rollout_index, steps, drain_every
        # Indices of this process's tasks among those of a step.
        self._local_indices = runtime.process_group.local_items(range(config.rollouts.tasks))
        self._step_tasks = StepTasks(config.rollouts, experiment)
        self._consumed = ConsumedTasks()
        # At a resumption: tasks to play again, the first new task, and the number already consumed.
        self._unconsumed_tasks, self._next_task, self._resumed_count = list[int](), 0, 0
        self._queue: StalenessQueue | None = None
        self._training_watch = ExitStack()
        self._metrics: dict[str, float] = {}

    def load(self, state: Any) -> None:
        """Restore the state; tasks that were started and not consumed are played again, first."""
        if isinstance(self._runtime.loop, VirtualLoop):
            self._runtime.loop.now = state["time"]
        self._consumed = ConsumedTasks.from_state(state["ledger"])
        self._unconsumed_tasks, self._next_task = self._consumed.unconsumed()
        self._resumed_count = self._next_task - len(self._unconsumed_tasks)

    def state(self) -> Any:
        return {"ledger": self._consumed.state(), "time": self._runtime.loop.time()}

    def next(self, step: int) -> list[Group]:
        self._training_watch.close()
        runtime = self._runtime
        if self._queue is None:
            self._queue = self._start_queue(step)
        queue = self._queue
        with runtime.track_work(
            "the trainer",
            lambda: f"waiting for the groups of step {step} ({_queue_status(queue)})",
        ):
            taken = runtime.run(queue.take(step))
        runtime.invariants.check(conserved_groups, queue.totals)
        groups = [self._mark_consumed(in_flight, step) for in_flight in taken]
        local_stats = [group_stats(f, self._task_index(f.start_index)) for f in taken]
        for process_stats in runtime.process_group.all_gather("groups used", local_stats):
            for task, stats in process_stats:
                self._consumed.consume(task, stats)
        self._metrics = {
            **self._consumed.metrics(),
            "stream/oldest": float(max(step - in_flight.version for in_flight in taken)),
            **{f"stream/{name}": float(count) for name, count in queue.counts.items()},
        }
        if step + 1 < self._steps:
            self._training_watch.enter_context(
                runtime.track_work("the trainer", lambda: f"step {step} ({_queue_status(queue)})")
            )
        return groups

    @property
    def labels(self) -> Sequence[str]:
        return self._step_tasks.labels

    @property
    def max_staleness(self) -> int:
        return self._config.staleness

    def metrics(self) -> dict[str, float]:
        return self._metrics

    def _start_queue(self, step: int) -> StalenessQueue:
        """A queue from `step` on, which is notified of published weights."""
        queue = StalenessQueue(
            len(self._local_indices),
            self._config.staleness,
            self._steps,
            self._play_group,
            step,
            self._drain_every,
        )

        def on_publish(_: Any, version: int, engine: str) -> None:
            if engine == "policy":
                self._runtime.call_soon(queue.set_version, version)

        self._runtime.publish_callbacks.append(on_publish)
        return queue

    def _task_index(self, start_index: int) -> int:
        """The task that this process starts as its `start_index`-th."""
        step, local_index = divmod(start_index, len(self._local_indices))
        ordinal = step * self._config.rollouts.tasks + self._local_indices[local_index]
        index = ordinal - self._resumed_count  # among the tasks that the resumed run has left
        if index < len(self._unconsumed_tasks):
            return self._unconsumed_tasks[index]
        return self._next_task + index - len(self._unconsumed_tasks)

    def _task(self, id: int) -> Task:
        step, index = divmod(id, self._config.rollouts.tasks)
        return self._step_tasks.tasks(step)[index]

    async def _play_group(self, start_index: int) -> Group:
        id = self._task_index(start_index)
        task = self._task(id)
        self._rollout_index.put(IndexEvent(id, task.name, task.seed, "started"))
        group = await self._runtime.group(
            self._config.rollouts.strategy,
            task,
            (self._experiment.seed, *divmod(id, self._config.rollouts.tasks)),
        )
        self._rollout_index.put(
            IndexEvent(id, task.name, task.seed, "finished", trajectories=group.trajectories)
        )
        return group

    def _mark_consumed(self, in_flight: InFlight, step: int) -> Group:
        id, group = self._task_index(in_flight.start_index), in_flight.group
        assert group is not None
        task = self._task(id)
        self._rollout_index.put(
            IndexEvent(id, task.name, task.seed, "used", step, group.trajectories)
        )
        return group


class StepTasks:
    """The tasks of every step, of a source that learns nothing.

    Steps are drawn in order and once, also those before a resumption; drawing reads no record.
    """

    def __init__(self, rollouts: Rollouts, experiment: Experiment) -> None:
        source = rollouts.task_source or experiment.environment
        self.labels, self._iterator = open_tasks(source, experiment)
        self._count = rollouts.tasks
        self._tasks_by_step: list[Tasks] = []

    def tasks(self, step: int) -> Tasks:
        """`Task.group` numbers them over the whole run."""
        for s in range(len(self._tasks_by_step), step + 1):
            tasks = self._iterator.draw(s, 0, self._count)
            self._tasks_by_step.append(numbered(tasks, s * self._count))
        return self._tasks_by_step[step]


def group_stats(in_flight: InFlight, task: int) -> tuple[int, list[float]]:
    """The task with its stats for `ConsumedTasks`."""
    trajectories = in_flight.group.trajectories if in_flight.group else ()
    return task, [
        1.0,
        float(len(trajectories)),
        float(sum(len(t.turns) for t in trajectories)),
        float(in_flight.end_time - in_flight.start_time),
    ]


def _queue_status(queue: StalenessQueue) -> str:
    return ", ".join(
        f"{count} groups {name.replace('_', ' ')}" for name, count in queue.counts.items()
    )
