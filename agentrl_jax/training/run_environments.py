"""`RunEnvironments`: all environments that an experiment names, by label."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentrl_jax.context import ContextByEnvironment, ContextManager
from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import UserError
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource, find_task_sources


@dataclass(frozen=True)
class RunEnvironments:
    """An instance of every environment, for its metadata and scripted policies.

    Keys are the labels of tasks; without a label, the environment's id.
    """

    by_label: Mapping[str, Environment]
    default_label: str  # of the experiment's own environment

    @property
    def default(self) -> Environment:
        """The experiment's own."""
        return self.by_label[self.default_label]

    @property
    def context(self) -> ContextManager:
        """The default context managers of all environments as one."""
        contexts = {label: env.context for label, env in self.by_label.items()}
        if all(context == self.default.context for context in contexts.values()):
            return self.default.context
        return ContextByEnvironment(contexts, self.default.context)

    def of(self, source: TaskSource, label: str, default: EnvironmentSpec) -> list[Environment]:
        """The environments of a source whose tasks without a label get this one."""
        return [self.by_label[key] for key, _ in keyed_environments(source, label, default)]

    def close(self) -> None:
        for env in self.by_label.values():
            env.close()


def make_environments(experiment: Experiment) -> RunEnvironments:
    """The environments of an experiment.

    Raises:
        UserError: an id is not registered, an option is wrong, or a label stands for two
            environments.
    """
    specs = environment_specs(experiment)
    instances = {label: make(spec.name, spec.options) for label, spec in specs.items()}
    return RunEnvironments(instances, experiment.environment.name)


def environment_specs(experiment: Experiment) -> dict[str, EnvironmentSpec]:
    """All environments that an experiment names, by label, or by id where they have none.

    Raises:
        UserError: a label stands for two environments.
    """
    default, specs = experiment.environment, dict[str, EnvironmentSpec]()
    for source, label in [(default, ""), *_task_sources(experiment)]:
        for key, spec in keyed_environments(source, label, default):
            known = specs.setdefault(key, spec)
            if (known.name, known.options) != (spec.name, spec.options):
                raise UserError(
                    f"{key} stands for two environments, {known.name} {known.options} and "
                    f"{spec.name} {spec.options}: give them different labels in a Mixture and in "
                    "evaluation.environments"
                )
    return specs


def evaluation_sources(experiment: Experiment) -> dict[str, TaskSource]:
    """Where players are evaluated, by label; "": the experiment's own environment."""
    return {**experiment.evaluation.environments} or {"": experiment.environment}


def keyed_environments(
    source: TaskSource, label: str, default: EnvironmentSpec
) -> list[tuple[str, EnvironmentSpec]]:
    """What precedes "#" in the names of a source's tasks, with the environment."""
    specs = source.labeled_environments(default).items()
    return [(inner or label or spec.name, spec) for inner, spec in specs]


def _task_sources(experiment: Experiment) -> Iterator[tuple[TaskSource, str]]:
    """All sources of tasks, each with the label of its tasks that have none."""
    for phase in experiment.phases.values():
        yield from ((source, "") for source in find_task_sources(phase.source))
    if experiment.demonstrations is not None and experiment.demonstrations.task_source is not None:
        yield experiment.demonstrations.task_source, ""
    yield from ((source, label) for label, source in experiment.evaluation.environments.items())
