"""Checks of an experiment before anything of it is built."""

from collections.abc import Sequence

from agentrl_jax.errors import UserError
from agentrl_jax.storage.nan_checks import check_not_nan
from agentrl_jax.training.algorithm import OtherModelConfig, PerAgent
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.builders import make_learner_mesh, make_workers
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.mixture import check_label
from agentrl_jax.training.phase_evaluation_checks import check_phase_evaluation
from agentrl_jax.training.run_environments import RunEnvironments, evaluation_sources
from agentrl_jax.training.seeds import ENV_SEED_END, RUN_SEED_END, check_seed
from agentrl_jax.training.sources import MixedSource, Rollouts


def check_config(experiment: Experiment, environments: RunEnvironments) -> None:
    """Raises UserError for all mistakes that can be found before anything is built.

    Args:
        experiment: what is to run.
        environments: all that it names.
    """
    check_not_nan(experiment)
    check_numbers(experiment)
    check_agents(experiment)
    check_phases(experiment)
    if not experiment.environment.name:
        _check_plays_nothing(experiment)
    _check_players(experiment, environments)
    experiment.environment.timeouts.validate()
    if experiment.clock and experiment.environment.workers:
        raise UserError(
            "config.clock needs environments in this process: set environment.workers to 0"
        )
    make_workers(experiment.environment)
    for config in experiment.agent_configs.values():
        config.limits.check()
    policy = experiment.policy.build(1)
    if not experiment.mesh.memory_gb:
        make_learner_mesh(experiment, policy)


def check_numbers(experiment: Experiment) -> None:
    """Raises UserError for a seed or a number of episodes or groups that cannot be used."""
    evaluation, demonstrations = experiment.evaluation, experiment.demonstrations
    check_seed("config.seed", experiment.seed, RUN_SEED_END)
    check_seed("config.evaluation.seed", evaluation.seed, ENV_SEED_END)
    for field, number in (
        ("evaluation.episodes", evaluation.episodes),
        ("record_groups", experiment.record_groups),
        ("record_mib", experiment.record_mib),
    ):
        if number < 0:
            raise UserError(f"config.{field} must be at least 0, not {number:,}")
    if demonstrations is not None and not demonstrations.path and demonstrations.episodes < 1:
        raise UserError("config.demonstrations.episodes must be at least 1")


def check_agents(experiment: Experiment) -> None:
    """Raises UserError for an agent whose name or weights cannot be used."""
    if experiment.agent.shares or experiment.agent.policy:
        raise UserError(
            "config.agent plays with the weights of config.policy: shares and policy are for "
            "config.agents"
        )
    for name, config in experiment.agents.items():
        _check_name("agents", name)
        if name == "policy":
            raise UserError("config.agents: 'policy' is config.agent: choose another name")
        if config.shares and config.policy:
            raise UserError(f"config.agents.{name}: give shares or policy, not both")
        if config.shares and config.shares not in own_weights(experiment):
            raise UserError(
                f"config.agents.{name}.shares: {config.shares!r} has no weights of its own, only "
                f"{', '.join(own_weights(experiment))}"
            )


def own_weights(experiment: Experiment) -> list[str]:
    """The agents with weights of their own."""
    return [name for name, config in experiment.agent_configs.items() if not config.shares]


def check_phases(experiment: Experiment) -> None:
    """Raises UserError for a name, a number, an agent or a start of a phase that cannot be used."""
    labels = [label for phase in experiment.phases.values() for label in phase.rows()]
    rows = [*experiment.evaluation.players, *labels]  # of the table, and files of the run folder
    earlier: list[str] = []
    for name, phase in experiment.phases.items():
        _check_name("phases", name)
        for label in phase.rows():
            if rows.count(label) > 1 or "/" in label:
                raise UserError(
                    f"config.phases.{name}.label: {label!r} has a / or is the label of another "
                    "phase or a name in evaluation.players: it names a row of the table and a file"
                )
        _check_steps(name, phase)
        check_phase_evaluation(experiment, name, phase)
        _check_source(name, phase)
        _check_trained_agents(experiment, name, phase)
        _check_start(experiment, name, phase, earlier)
        earlier.append(name)


def _check_name(field: str, name: str) -> None:
    # A dotted flag finds the methods of a dict before its keys.
    if not name.isidentifier() or name in dir(dict):
        raise UserError(
            f"config.{field}: {name!r} cannot be a name there: use letters, digits and _, and not "
            "the name of a method of dict"
        )


def _check_trained_agents(experiment: Experiment, name: str, phase: Phase) -> None:
    if isinstance(phase.algorithm, PerAgent):
        algorithms = phase.algorithm.algorithms
        if not algorithms or any(isinstance(a, OtherModelConfig) for a in algorithms.values()):
            raise UserError(
                f"config.phases.{name}.algorithm needs an algorithm of its policy for each agent"
            )
    for agent in phase.trained_agents or (phase.agent,):
        if agent not in own_weights(experiment):
            raise UserError(
                f"config.phases.{name}: there is no agent {agent!r} with weights of its own, only "
                f"{', '.join(own_weights(experiment))}"
            )


def _check_plays_nothing(experiment: Experiment) -> None:
    """Raises UserError where an experiment without an environment would play in it."""
    demonstrations, evaluation = experiment.demonstrations, experiment.evaluation
    if demonstrations is not None and not demonstrations.path:
        raise UserError(
            "config.environment.name is empty, so nobody can write demonstrations: name a file in "
            "config.demonstrations.path, or set config.demonstrations to None"
        )
    if not evaluation.environments and (evaluation.episodes or evaluation.players):
        raise UserError(
            "config.environment.name is empty, so nothing can be evaluated: set config.evaluation "
            "to EvaluationConfig(episodes=0, players=())"
        )


def _check_start(experiment: Experiment, name: str, phase: Phase, earlier: Sequence[str]) -> None:
    for agent in phase.trained_agents or (phase.agent,):
        usable = [other for other in earlier if experiment.phases[other].source_agent(agent)]
        for other in phase.start_phases:
            if other not in usable:
                raise UserError(
                    f"config.phases.{name}.start: {other!r} is no phase before it with weights for "
                    f"{agent!r}; there are {', '.join(usable) or 'none'}"
                )


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


def _check_source(name: str, phase: Phase) -> None:
    source = phase.source
    if isinstance(source, MixedSource | AsyncRollouts):
        source = source.rollouts
    if isinstance(source, Rollouts):
        source.check(f"config.phases.{name}.source")


def _check_players(experiment: Experiment, environments: RunEnvironments) -> None:
    """Raises UserError where an environment lacks a scripted policy that is to play in it."""
    default, demonstrations = experiment.environment, experiment.demonstrations
    required = []  # (field, player, environment)
    for label, source in evaluation_sources(experiment).items():
        if label:
            check_label(label)
        for env in environments.of(source, label, default):
            players = experiment.evaluation.players
            required += [("evaluation.players", player, env) for player in players]
    if demonstrations is not None and not demonstrations.path:
        source, player = demonstrations.task_source or default, demonstrations.player
        for env in environments.of(source, "", default):
            required.append(("demonstrations.player", player, env))
    for field, player, env in required:
        if player not in env.scripted_policies:
            raise UserError(
                f"config.{field}: {type(env).__name__} has no scripted policy "
                f"{player!r}, only {', '.join(env.scripted_policies)}"
            )
