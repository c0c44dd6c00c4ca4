"""Fields of an agent's config that a command replaces, by their dotted names."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from agentrl_jax.errors import UserError
from agentrl_jax.training.config import Experiment

T = TypeVar("T")


def with_agent_options(
    experiment: Experiment, agent: str, options: Mapping[str, Any]
) -> Experiment:
    """The experiment in which an agent acts with other settings.

    Args:
        experiment: of a run.
        agent: its name.
        options: value by the dotted name of a field of its `AgentConfig`, as
            {"context.max_summaries": 14}.

    Raises:
        UserError: there is no such field, or its values are of another type.
    """
    config = experiment.agent_configs[agent]
    for name, value in options.items():
        config = _replaced(config, name, value, name)
    if agent == "policy":
        return dataclasses.replace(experiment, agent=config)
    return dataclasses.replace(experiment, agents={**experiment.agents, agent: config})


def _replaced(config: T, path: str, value: Any, name: str) -> T:
    """A copy with another value of the field at a path; `name` is the whole path."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise UserError(f"--agent_option={name}: {config!r} has no fields")
    first, _, rest = path.partition(".")
    fields = [field.name for field in dataclasses.fields(config) if field.init]
    if first not in fields:
        raise UserError(
            f"--agent_option={name}: {type(config).__name__} has no field {first!r}, only "
            f"{', '.join(fields)}"
        )
    current = getattr(config, first)
    if rest:
        value = _replaced(current, rest, value, name)
    elif isinstance(current, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    elif type(value) is not type(current) or not isinstance(current, bool | int | float | str):
        raise UserError(f"--agent_option={name}: {value!r} cannot replace {current!r}")
    return dataclasses.replace(config, **{first: value})
