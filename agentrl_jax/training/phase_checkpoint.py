"""Which checkpoint of a phase holds its weights: the newest or the best."""

from pathlib import Path

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.checkpoint import load_best_step
from agentrl_jax.training.config import Experiment


def phase_checkpoint(
    experiment: Experiment,
    run_dir: Path,
    phase: str,
    process_group: ProcessGroup | None = None,
    best: bool | None = None,
) -> int | None:
    """The step of the checkpoint with a phase's weights; None: the newest intact one.

    Args:
        experiment: of the run.
        run_dir: the run folder.
        phase: its name.
        process_group: whose processes call this together; None: this one alone.
        best: whether the best checkpoint is meant, or the newest; None: as the phase's config says.

    Raises:
        UserError: there is no checkpoint, or no best one.
    """
    restored = experiment.phases[phase].best.restore if best is None else best
    return load_best_step(run_dir / "checkpoints" / phase, process_group) if restored else None
