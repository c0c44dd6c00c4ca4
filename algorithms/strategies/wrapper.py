"""`StrategyWrapper`: base class of strategies that change another one."""

import dataclasses
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes


@dataclass
class StrategyWrapper:
    """A strategy around another."""

    strategy: Strategy = field(default_factory=IndependentEpisodes)


def with_group_size(strategy: Strategy, group_size: int) -> Strategy:
    """The strategy with groups of this size. Raises UserError where it has no `group_size`."""
    if isinstance(strategy, StrategyWrapper):
        inner = with_group_size(strategy.strategy, group_size)
        return dataclasses.replace(strategy, strategy=inner)
    fields = dataclasses.fields(strategy) if dataclasses.is_dataclass(strategy) else ()
    if "group_size" not in {field.name for field in fields}:
        raise UserError(
            f"{type(strategy).__name__} has no group_size: take a strategy that has one"
        )
    return dataclasses.replace(strategy, group_size=group_size)  # type: ignore[type-var]
