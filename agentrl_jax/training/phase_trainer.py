"""`PhaseTrainer`: the steps of one phase: collect, update, publish, report, save."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.errors import Interrupted, UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer, is_finite
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.program_meter import PROGRAM_METER
from agentrl_jax.policy import Params
from agentrl_jax.reporting.phase_progress import phase_title
from agentrl_jax.training import profiling
from agentrl_jax.training.config import ExperienceIterator, Phase
from agentrl_jax.training.flops_utilization import utilization_metrics
from agentrl_jax.training.nonfinite_updates import (
    MAX_NONFINITE_UPDATES,
    NONFINITE,
    NonfiniteUpdates,
    initial_weights_error,
    save_groups,
)
from agentrl_jax.training.per_agent import agent_weights, build_algorithm, groups_of
from agentrl_jax.training.phase_evaluator import PhaseEvaluator
from agentrl_jax.training.profiling import ProfiledSteps, StepProfiler
from agentrl_jax.training.run import Run
from agentrl_jax.training.run_invariants import Reaction, RunInvariants
from agentrl_jax.training.step_metrics import StepMetrics, gather_step, mean_metrics
from agentrl_jax.training.step_timing import memory_metrics, rate_metrics
from agentrl_jax.training.stop_signal import StopSignal
from agentrl_jax.trajectories import Group
from agentrl_jax.trajectory_record import TrajectoryRecord


class PhaseTrainer:
    """Trains one phase to its end, from its newest checkpoint if there is one."""

    def __init__(
        self,
        run: Run,
        name: str,
        phase: Phase,
        params: Params,
        max_nonfinite_updates: int = MAX_NONFINITE_UPDATES,
        invariants: Reaction = "stop",
        profiled: ProfiledSteps | None = None,
    ) -> None:
        """Build the algorithm and its state, and restore both from the newest checkpoint.

        Args:
            run: of the experiment.
            name: of the phase in the experiment.
            phase: what to train.
            params: to start from where there is no checkpoint.
            max_nonfinite_updates: skipped updates in a row, after which the phase stops.
            invariants: what follows where one does not hold.
            profiled: the steps of which a trace is written.
        """
        self._run, self._name, self._phase = run, name, phase
        policies = {agent: model.policy for agent, model in run.models.items()}
        self._algorithm = build_algorithm(phase, policies, run.mesh)
        self._context = run.begin_phase(name)
        self._state = self._algorithm.init(jax.random.key(run.experiment.seed), params)
        folder = run.run_dir / "checkpoints" / name
        self._checkpointer = PhaseCheckpointer(folder, run.process_group, run.reporter.log)
        self._first_step = self._checkpointer.latest_step or 0
        self._iterator_state: Any = None
        self._expected_lines: dict[str, int] = {}
        self._unreported: StepMetrics | None = None
        self._nonfinite = NonfiniteUpdates(max_nonfinite_updates)
        self._evaluator = PhaseEvaluator(run, name, phase)
        self._final_params: Params | None = None
        self._profiler = StepProfiler(profiled, run.run_dir / profiling.FOLDER / name, name)
        self._invariants = RunInvariants(run, name, phase, invariants)
        self.seconds = 0.0  # of all steps, before and after resumptions
        if self._first_step:
            self._state, host = self._checkpointer.restore(self._state)
            self._algorithm.load_host_state(host["algorithm"])
            self._iterator_state, self.seconds = host["feed"], host["seconds"]
            self._expected_lines = host.get("lines", {})  # earlier versions did not count
            self._evaluator.load(host.get("best"))
        self._algorithm.begin_phase(self._state, run.runtime)

    @property
    def params(self) -> Params:
        """The newest weights; once it has trained, those with which the phase ends."""
        return self._final_params if self._final_params is not None else self._state.params

    def train(self, stop: StopSignal) -> None:
        """Run the steps that are left, and publish the weights.

        Raises:
            Interrupted: `stop` is set at one process of the run; the step was saved.
            UserError: too many updates in a row were skipped, weights are not finite, or an
                invariant does not hold.
        """
        was_complete = self._first_step == self._phase.steps or self._evaluator.stops
        if not was_complete:
            iterator = self._begin()
            with self._profiler:
                for step in range(self._first_step, self._phase.steps):
                    with self._profiler.around(step):
                        self._step(step, iterator, stop)
                    if self._evaluator.stops:
                        break
        self._final_params = self._evaluator.finish(self._checkpointer.latest_step, self.params)
        self._invariants.finish()
        self._publish(self._phase.steps)
        if not was_complete:
            self._run.end_phase()
            self._run.reporter.end(self._name)
        self._checkpointer.close()

    def _begin(self) -> ExperienceIterator:
        """The source's iterator where the checkpoint left it; later records are deleted."""
        run, iterator = self._run, self._phase.source.open(self._context)
        if self._first_step:
            iterator.load(self._iterator_state)
        elif not is_finite(self._state):
            raise initial_weights_error(self._name)
        self._publish(self._first_step)
        with run.process_group.coordinator_first("what was recorded before"):
            run.reporter.rewind(
                self._rewound_phases(), self._name, self._first_step, self._expected_lines
            )
            for label in self._phase.rows():
                run.evaluations.delete(label)
        title = phase_title(run.experiment.name, self._name, run.experiment.phases)
        run.reporter.begin(self._name, self._phase.steps, self._first_step, title)
        return iterator

    def _rewound_phases(self) -> list[str]:
        """This phase and the later ones whose records are deleted.

        A later phase with checkpoints keeps its records: it goes on from there once this phase,
        whose newest checkpoint was damaged, has repeated its last steps.
        """
        names = list(self._run.experiment.phases)
        checkpoints = self._run.run_dir / "checkpoints"
        later = names[names.index(self._name) + 1 :]
        return [self._name, *(name for name in later if not (checkpoints / name).is_dir())]

    def _step(self, step: int, iterator: ExperienceIterator, stop: StopSignal) -> None:
        run, phase, reporter = self._run, self._phase, self._run.reporter
        start, compilations = time.monotonic(), compile_count()
        failures_before = run.runtime.failures.metrics()
        if run.lock:
            run.lock.check()
        reporter.activity("rollouts" if phase.source.on_policy else "reading data")
        groups = iterator.next(step)
        collected = time.monotonic()
        reporter.activity("update")
        metrics = self._update(step, groups, iterator.max_staleness)
        if phase.source.on_policy and (step + 1) % phase.publish_every == 0:
            self._publish(step + 1)
        self._report()  # the step before, while this one is on the device
        rollout_metrics, stopping = self._gather(
            step, groups, iterator.labels, failures_before, stop.is_set
        )
        metrics |= rollout_metrics | iterator.metrics()
        metrics |= {"time/collect": collected - start, "time/update": time.monotonic() - collected}
        metrics |= {"time/compilations": compile_count() - compilations, **memory_metrics()}
        metrics["time/invariants"] = self._invariants.take_seconds()
        seconds = time.monotonic() - start
        if self._evaluator.is_due(step + 1):
            metrics |= self._evaluate(step + 1, iterator)
        self._unreported = StepMetrics(step, metrics, seconds, groups, PROGRAM_METER.take())
        self.seconds += seconds
        must_save = self._evaluator.must_save(step + 1) or step + 1 == phase.steps
        if stopping or (step + 1) % phase.checkpoint_every == 0 or must_save:
            reporter.activity("checkpoint")
            self._save(step + 1, iterator, groups)
        if stopping:
            reporter.log(
                f"stopped after step {step + 1} of {phase.steps} of {self._name}; "
                "the same command goes on from here"
            )
            raise Interrupted

    def _update(self, step: int, groups: Sequence[Group], max_staleness: int) -> dict[str, Any]:
        """Check the groups and give them to the algorithm; its metrics."""
        run = self._run
        if not max_staleness:  # or calls of later groups are in progress
            run.runtime.wait_until_idle()
        trained_groups = groups_of(groups, self._phase.trained_agents or run.models, run.runtime)
        self._invariants.check_groups(step, groups, trained_groups, max_staleness)
        try:
            self._state, metrics = self._algorithm.step(self._state, trained_groups, run.runtime)
        except Exception:
            self._invariants.explain(step, groups)
            raise
        self._invariants.end_step(step, groups)
        return metrics

    def _gather(
        self,
        step: int,
        groups: Sequence[Group],
        labels: Sequence[str],
        failures_before: dict[str, float],
        stop_requested: bool,
    ) -> tuple[dict[str, float], bool]:
        """Metrics of the rollouts, which are recorded, and whether to stop; see `gather_step`."""
        run, on_policy = self._run, self._phase.source.on_policy
        sampled, label = groups if on_policy else [], f"step {step} of {self._name}"
        rollouts, stopping, violations = gather_step(
            run,
            label,
            sampled,
            labels,
            failures_before,
            stop_requested,
            self._invariants.violations,
        )
        metrics = self._invariants.react(violations)
        if on_policy:
            metrics |= rollouts
            recorded = len(run.process_group.local_items(range(run.experiment.record_groups)))
            run.reporter.recorder.put(self._records(step, groups[:recorded]))
        return metrics, stopping

    def _evaluate(self, step: int, iterator: ExperienceIterator) -> dict[str, Any]:
        """The metrics of an evaluation of the weights after so many steps."""
        self._run.reporter.activity("evaluation")
        if not self._phase.source.on_policy or step % self._phase.publish_every:
            self._publish(step)
        return self._evaluator.evaluate(step, self._state.params, iterator.state)

    def _records(self, step: int, groups: Sequence[Group]) -> list[TrajectoryRecord]:
        trajectories = [t for group in groups for t in group.trajectories]
        training = self._algorithm.training_of(trajectories)
        return [
            TrajectoryRecord(self._name, step, trajectory, used)
            for trajectory, used in zip(trajectories, training, strict=True)
        ]

    def _publish(self, version: int) -> None:
        """Give the engines the weights of the agents that the phase trains."""
        for agent, params in agent_weights(self._phase, self.params).items():
            self._run.runtime.publish(params, version, agent)
            self._invariants.publish(agent, params, version)

    def _save(self, step: int, iterator: ExperienceIterator, groups: Sequence[Group]) -> None:
        self._report()
        self._invariants.exchange()
        if not is_finite(self._state):
            path = self._save_groups(step - 1, groups)
            raise UserError(
                f"the weights are not finite after step {step} of {self._name}, so no checkpoint "
                f"of them is written; the experience of the last step is in {path}"
            )
        host_state = {
            "feed": iterator.state(),
            "algorithm": self._algorithm.host_state(),
            "seconds": self.seconds,
            "lines": self._sync_records(),
            "best": self._evaluator.best.to_json(),
        }
        good = not self._nonfinite.any_since_checkpoint
        self._checkpointer.save(step, self._state, host_state, good, self._evaluator.best.step)
        self._nonfinite.any_since_checkpoint = False

    def _sync_records(self) -> dict[str, int]:
        """Bring the records of all processes to the disk; returns the lines of each file."""
        parts = self._run.process_group.all_gather("recorded lines", self._run.reporter.sync())
        return {name: lines for part in parts for name, lines in part.items()}

    def _report(self) -> None:
        """Fetch the last step's metrics from the device and write them, once.

        Raises:
            UserError: with this step too many updates in a row were skipped; its experience is
                saved.
        """
        if self._unreported is None:
            return
        step, metrics, seconds, groups, work = self._unreported
        self._unreported, stopping = None, ""
        for key in [name for name, value in metrics.items() if isinstance(value, list)]:
            # "device" -> loss, "critic" -> critic/loss, "planner/device" -> planner/loss
            prefix = key.removesuffix("device") if key.endswith("device") else f"{key}/"
            updates = [fetch_metrics(m) for m in metrics.pop(key)]
            metrics |= mean_metrics(prefix, updates)
            if self._nonfinite.add(key, updates):
                stopping = prefix + NONFINITE
        metrics |= rate_metrics(metrics, seconds)
        metrics |= utilization_metrics(work.wait(), seconds, self._run.dense_peak)
        self._invariants.make_deferred_checks(step, groups)
        self._run.reporter.step(self._name, step, metrics, seconds)
        if stopping:
            path = self._save_groups(step, groups)
            raise self._nonfinite.error(stopping, self._name, step, path)

    def _save_groups(self, step: int, groups: Sequence[Group]) -> Path:
        run = self._run
        return save_groups(run.run_dir, self._name, step, groups, run.process_group.index)
