"""`train`: runs the phases of an experiment, each followed by its evaluation."""

import time
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.reporting.tracker import Tracker
from agentrl_jax.storage import damaged_lines
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.nonfinite_updates import MAX_NONFINITE_UPDATES
from agentrl_jax.training.per_agent import agent_weights
from agentrl_jax.training.phase_trainer import PhaseTrainer
from agentrl_jax.training.profiling import ProfiledSteps
from agentrl_jax.training.run import Run
from agentrl_jax.training.run_invariants import Reaction
from agentrl_jax.training.stop_signal import StopSignal
from agentrl_jax.training.summary import finalize


def train(
    experiment: Experiment,
    run_dir: Path,
    fresh: bool = False,
    quiet: bool = False,
    process_group: ProcessGroup | None = None,
    max_nonfinite_updates: int = MAX_NONFINITE_UPDATES,
    invariants: Reaction = "stop",
    trackers: Sequence[Tracker] = (),
    profiled: ProfiledSteps | None = None,
    damaged_records: damaged_lines.Reaction = "stop",
) -> list[EvaluationSummary]:
    """Run every phase of the experiment, or what is left of it, and evaluate.

    All processes of a run call this together.

    Args:
        experiment: what to run.
        run_dir: is created, or must be of the same experiment.
        fresh: delete what the run folder holds first.
        quiet: print only warnings and the evaluation table.
        process_group: of the run; None: this process alone.
        max_nonfinite_updates: updates in a row with a gradient or loss that is not finite, after
            which the run stops; each is skipped.
        invariants: what follows where one does not hold (docs/invariants.md).
        trackers: follow the run beside its folder, such as `WandbTracker`.
        profiled: the steps of which `jax.profiler` writes a trace.
        damaged_records: what follows where a line that was recorded before is damaged or missing
            (docs/run_folders.md).

    Returns:
        The rows of the evaluation table.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM; the same call resumes the run.
        UserError: the config is wrong, the folder belongs to another config or is being trained,
            an invariant does not hold, or a line of the records is damaged.
    """
    start, process_group = time.monotonic(), process_group or ProcessGroup()
    with (
        StopSignal() as stop,
        Run(experiment, run_dir, quiet, process_group, fresh, trackers, damaged_records) as run,
    ):
        seconds = {"setup": time.monotonic() - start}
        newest = {name: model.params for name, model in run.models.items()}
        for name, phase in experiment.phases.items():
            start_params = run.start_params(phase, newest)
            trainer = PhaseTrainer(
                run, name, phase, start_params, max_nonfinite_updates, invariants, profiled
            )
            trainer.train(stop)
            seconds[name] = trainer.seconds
            newest |= agent_weights(phase, trainer.params)
            start = time.monotonic()
            run.evaluate_phase(name, newest)
            seconds[f"evaluate {phase.label}"] = time.monotonic() - start
        start = time.monotonic()
        for player in experiment.evaluation.players:
            run.evaluations.play(player, player)
        seconds["evaluate players"] = time.monotonic() - start
        return finalize(run, seconds)
