"""`Around`: what strategies have in common that change another one."""

import dataclasses
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.runtime import Strategy
from agentrl_jax.strategies import Independent


@dataclass
class Around:
    """A strategy around another."""

    strategy: Strategy = field(default_factory=Independent)


def of_size(strategy: Strategy, count: int) -> Strategy:
    """The strategy with groups of so many episodes. Raises UserError where it does not say how many it plays."""
    if isinstance(strategy, Around):
        return dataclasses.replace(strategy, strategy=of_size(strategy.strategy, count))
    if not dataclasses.is_dataclass(strategy) or not hasattr(strategy, "group_size"):
        raise UserError(f"{type(strategy).__name__} has no group_size: take a strategy that has one")
    return dataclasses.replace(strategy, group_size=count)  # type: ignore[return-value]
