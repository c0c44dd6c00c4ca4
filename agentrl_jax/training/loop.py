"""The training loop: collect, update, publish, report; and the evaluation after each phase."""

import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import Interrupted, UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.storage import config_json
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.per_agent import (
    agent_weights,
    build_algorithm,
    groups_of,
    return_metrics,
    returns_by_agent,
)
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.training.run import Run
from agentrl_jax.training.summary import finalize
from agentrl_jax.trajectories import Group


class StopSignal:
    """Turns the first Ctrl-C, or the SIGTERM before a preemption, into a request to stop after the
    current step; a second one interrupts at once.
    """

    def __init__(self) -> None:
        self.is_set = False

    def __enter__(self) -> "StopSignal":
        self._previous_handlers = {
            signum: signal.signal(signum, self._handle_signal)
            for signum in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: Any) -> None:
        for signum, handler in self._previous_handlers.items():
            # None: a handler that was not installed from Python (JAX's) cannot be restored.
            signal.signal(signum, handler or signal.SIG_DFL)

    def _handle_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


def train(
    experiment: Experiment,
    run_dir: Path,
    fresh: bool = False,
    quiet: bool = False,
    process_group: ProcessGroup | None = None,
) -> list[EvaluationSummary]:
    """Run every phase of the experiment, or what is left of it, and evaluate.

    All processes of a run call this together.

    Args:
        experiment: what to run.
        run_dir: is created, or must be of the same experiment.
        fresh: delete the run folder first.
        quiet: print nothing.
        process_group: of the run; None: this process alone.

    Returns:
        The rows of the evaluation table.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM; the same call resumes the run.
        UserError: the config is wrong, or the folder belongs to another config.
    """
    start, process_group = time.monotonic(), process_group or ProcessGroup()
    if fresh:
        with process_group.coordinator_first("a fresh start"):
            if process_group.is_coordinator:
                delete_run(run_dir)
    with StopSignal() as stop, Run(experiment, run_dir, quiet, process_group) as run:
        seconds = {"setup": time.monotonic() - start}
        newest = {name: model.params for name, model in run.models.items()}
        for name, phase in experiment.phases.items():
            params = run.start_params(phase, newest)
            params, seconds[name] = run_phase(run, name, phase, params, stop)
            newest |= agent_weights(phase, params)
            start = time.monotonic()
            run.evaluate_phase(name, newest)
            seconds[f"evaluate {phase.label}"] = time.monotonic() - start
        start = time.monotonic()
        for player in experiment.evaluation.players:
            run.evaluations.play(player, player)
        seconds["evaluate players"] = time.monotonic() - start
        return finalize(run, seconds)


def run_phase(
    run: Run, name: str, phase: Phase, params: Params, stop: StopSignal
) -> tuple[Params, float]:
    """Train one phase to its end, from its newest checkpoint if there is one.

    Returns:
        The trained parameters, and the seconds of all its steps, before and after resumptions.
    """
    policies = {agent: model.policy for agent, model in run.models.items()}
    algorithm, context = build_algorithm(phase, policies, run.mesh), run.begin_phase(name)
    state = algorithm.init(jax.random.key(run.experiment.seed), params)
    checkpointer = PhaseCheckpointer(run.run_dir / "checkpoints" / name)
    first_step, host = checkpointer.latest_step or 0, {"seconds": 0.0}
    if first_step:
        state, host = checkpointer.restore(state)
        algorithm.load_host_state(host["algorithm"])
    algorithm.begin_phase(state, run.runtime)
    seconds, on_policy = host["seconds"], phase.source.on_policy
    if first_step == phase.steps:
        publish(run, phase, state, first_step)
        checkpointer.close()
        return state.params, seconds
    iterator = phase.source.open(context)
    if first_step:
        iterator.load(host["feed"])
    publish(run, phase, state, first_step)
    with run.process_group.coordinator_first("what was recorded before"):
        run.reporter.rewind(list(run.experiment.phases), name, first_step)
        for label in phase.rows():
            run.evaluations.delete(label)
    run.reporter.begin(name, phase.steps, first_step)
    pending: tuple[int, dict[str, Any], float] | None = None
    for step in range(first_step, phase.steps):
        start, compilations = time.monotonic(), compile_count()
        failures_before = run.runtime.failures.metrics()
        groups = iterator.next(step)
        collected = time.monotonic()
        trained_groups = groups_of(groups, phase.trained_agents or run.models, run.runtime)
        state, metrics = algorithm.step(state, trained_groups, run.runtime)
        if on_policy and (step + 1) % phase.publish_every == 0:
            publish(run, phase, state, step + 1)
        report(run, name, pending)  # of the step before, while this one is on the device
        sampled, gathering = groups if on_policy else [], f"step {step} of {name}"
        step_metrics, stopping = gather_step(
            run, gathering, sampled, iterator.labels, failures_before, stop.is_set
        )
        if on_policy:
            metrics |= step_metrics
            recorded = len(run.process_group.local_items(range(run.experiment.record_groups)))
            run.reporter.trajectories(name, step, groups[:recorded])
        metrics |= iterator.metrics()
        metrics |= {"time/collect": collected - start, "time/update": time.monotonic() - collected}
        metrics["time/compilations"] = compile_count() - compilations
        pending = step, metrics, time.monotonic() - start
        seconds += pending[2]
        if stopping or (step + 1) % phase.checkpoint_every == 0 or step + 1 == phase.steps:
            report(run, name, pending)
            pending = None
            host_state = {"feed": iterator.state(), "algorithm": algorithm.host_state()}
            checkpointer.save(step + 1, state, {**host_state, "seconds": seconds})
        if stopping:
            run.reporter.log(
                f"stopped after step {step + 1} of {phase.steps} of {name}; "
                "the same command goes on from here"
            )
            raise Interrupted
    publish(run, phase, state, phase.steps)
    run.end_phase()
    run.reporter.end(name)
    checkpointer.close()
    return state.params, seconds


def publish(run: Run, phase: Phase, state: TrainState, version: int) -> None:
    """Give the engines the weights of the agents that the phase trains."""
    for agent, params in agent_weights(phase, state.params).items():
        run.runtime.publish(params, version, agent)


def gather_step(
    run: Run,
    label: str,
    groups: Sequence[Group],
    labels: Sequence[str],
    failures_before: dict[str, float],
    stop_requested: bool,
) -> tuple[dict[str, float], bool]:
    """The metrics of the rollouts of all processes, and whether a process was asked to stop.

    Args:
        run: of this process.
        label: of the exchange.
        groups: that this process sampled.
        labels: of the environments that have metrics of their own.
        failures_before: counts of environment failures before the step.
        stop_requested: of this process.
    """
    failures = {
        name: count - failures_before.get(name, 0.0)
        for name, count in run.runtime.failures.metrics().items()
    }
    local = {
        "stop": stop_requested,
        "groups": episode_stats(groups),
        "failures": failures,
        "returns": returns_by_agent(groups, run.agent_names),
    }
    processes = run.process_group.all_gather(label, local)
    group_stats = run.process_group.interleave([process["groups"] for process in processes])
    metrics = rollout_metrics(group_stats, labels)
    metrics |= return_metrics([process["returns"] for process in processes])
    metrics |= sum_counts([process["failures"] for process in processes])
    return metrics, any(process["stop"] for process in processes)


def sum_counts(counts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The sum of each name over dicts that may lack it."""
    names = dict.fromkeys(name for process_counts in counts for name in process_counts)
    return {name: sum(process_counts.get(name, 0.0) for process_counts in counts) for name in names}


def report(run: Run, phase: str, pending: tuple[int, dict[str, Any], float] | None) -> None:
    """Fetch a step's metrics from the device and write them; `pending`: step, metrics, seconds."""
    if pending is None:
        return
    step, metrics, seconds = pending
    for key in [name for name, value in metrics.items() if isinstance(value, list)]:
        # "device" -> loss, "critic" -> critic/loss, "planner/device" -> planner/loss
        prefix = key.removesuffix("device") if key.endswith("device") else f"{key}/"
        updates = [fetch_metrics(m) for m in metrics.pop(key)]
        for name in (name for name in (updates[0] if updates else {}) if name != "tokens"):
            metrics[prefix + name] = float(np.mean([m[name] for m in updates if name in m]))
    run.reporter.step(phase, step, metrics, seconds)


def delete_run(run_dir: Path) -> None:
    """Delete a run folder; UserError where the folder is something else."""
    if not run_dir.exists():
        return
    if any(run_dir.iterdir()) and not (run_dir / config_json.CONFIG_FILE).exists():
        raise UserError(
            f"{run_dir} is no run folder, so --fresh leaves it alone: "
            "choose another with --run_dir=..."
        )
    shutil.rmtree(run_dir)
