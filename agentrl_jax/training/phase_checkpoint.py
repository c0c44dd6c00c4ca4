"""Which checkpoint of a phase holds its weights, the newest or the best, and the weights in it."""

from collections.abc import Sequence
from pathlib import Path

import jax
from jax.sharding import Mesh

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.learner.checkpoint import load_best_step, load_params
from agentrl_jax.learner.learner import Model
from agentrl_jax.policy import Params, Policy
from agentrl_jax.training.algorithm import PerAgent
from agentrl_jax.training.config import Experiment, Phase


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


def load_phase_params(
    experiment: Experiment,
    run_dir: Path,
    phase: str,
    agent: str,
    policy: Policy,
    mesh: Mesh,
    process_group: ProcessGroup | None = None,
    best: bool | None = None,
) -> Params:
    """An agent's parameters in a checkpoint of a phase that trains it.

    Args:
        experiment: of the run.
        run_dir: the run folder.
        phase: its name.
        agent: whose parameters.
        policy: the agent's model.
        mesh: over which the weights are sharded.
        process_group: whose processes call this together; None: this one alone.
        best: see `phase_checkpoint`.

    Raises:
        UserError: see `load_params`.
    """
    step = phase_checkpoint(experiment, run_dir, phase, process_group, best)
    folder, part = run_dir / "checkpoints" / phase, params_part(experiment.phases[phase], agent)
    return load_model_params(folder, policy, mesh, part, process_group, step)


def load_model_params(
    folder: Path,
    model: Model,
    mesh: Mesh,
    part: Sequence[str] = ("params",),
    process_group: ProcessGroup | None = None,
    step: int | None = None,
) -> Params:
    """The parameters of a model in the checkpoints `folder`, sharded over the mesh; the other
    arguments and what it raises as for `load_params`.
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    shardings = weight_shardings(mesh, model.axes(), shapes)
    return load_params(folder, shapes, shardings, part, process_group, step)


def params_part(phase: Phase, agent: str) -> tuple[str, ...]:
    """Where an agent's parameters are in the train state of a phase; see `load_params`."""
    return ("params", agent) if isinstance(phase.algorithm, PerAgent) else ("params",)
