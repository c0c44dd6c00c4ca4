"""Checks of an experiment before anything of it is built."""

from agentrl_jax.environment import Environment
from agentrl_jax.errors import UserError
from agentrl_jax.training.builders import make_learner_mesh, make_workers
from agentrl_jax.training.config import Experiment, Phase


def check_config(experiment: Experiment, env: Environment) -> None:
    """Raises UserError for all mistakes that can be found before anything is built.

    Args:
        experiment: what is to run.
        env: an instance of its environment.
    """
    check_phases(experiment)
    _check_players(experiment, env)
    experiment.environment.timeouts.validate()
    if experiment.clock and experiment.environment.workers:
        raise UserError(
            "config.clock needs environments in this process: set environment.workers to 0"
        )
    make_workers(experiment.environment)
    experiment.agent.limits.check()
    policy = experiment.policy.build(1)
    if not experiment.mesh.memory_gb:
        make_learner_mesh(experiment, policy)


def check_phases(experiment: Experiment) -> None:
    """Raises UserError for a name, a number or a start of a phase that cannot be used."""
    labels = [phase.label for phase in experiment.phases.values()]
    rows = [*experiment.evaluation.players, *labels]  # of the table, and files of the run folder
    earlier: list[str] = []
    for name, phase in experiment.phases.items():
        # A dotted flag finds the methods of a dict before its keys.
        if not name.isidentifier() or name in dir(dict):
            raise UserError(
                f"config.phases: {name!r} is no name for a phase: use letters, digits and _, "
                "and no name of a method of dict"
            )
        if rows.count(phase.label) > 1 or "/" in phase.label:
            raise UserError(
                f"config.phases.{name}.label: {phase.label!r} has a / or is the label of another "
                "phase or a name in evaluation.players: it names a row of the table and a file"
            )
        _check_steps(name, phase)
        for other in phase.start_phases:
            if other not in earlier:
                raise UserError(
                    f"config.phases.{name}.start: {other!r} is no phase before it that trains the "
                    f"policy; there are {', '.join(earlier) or 'none'}"
                )
        earlier += [name] if phase.trains_policy else []


def _check_steps(name: str, phase: Phase) -> None:
    if min(phase.steps, phase.checkpoint_every, phase.publish_every) < 1:
        raise UserError(
            f"config.phases.{name}: steps, checkpoint_every and publish_every must be at least 1"
        )
    if phase.checkpoint_every % phase.publish_every:
        raise UserError(
            f"config.phases.{name}: weights are published every {phase.publish_every} steps: "
            "checkpoint_every must be a multiple of that"
        )


def _check_players(experiment: Experiment, env: Environment) -> None:
    players = [("evaluation.players", player) for player in experiment.evaluation.players]
    if experiment.demonstrations is not None and not experiment.demonstrations.path:
        players.append(("demonstrations.player", experiment.demonstrations.player))
    for field, player in players:
        if player not in env.scripted_policies:
            raise UserError(
                f"config.{field}: {type(env).__name__} has no scripted policy "
                f"{player!r}, only {', '.join(env.scripted_policies)}"
            )
