"""`Around`: what strategies have in common that change another one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.runtime import Strategy
from agentrl_jax.strategies import Independent, Remembering
from agentrl_jax.trajectories import Group


@dataclass
class Around:
    """A strategy around another; what the other remembers stays remembered."""

    strategy: Strategy = field(default_factory=Independent)

    def tell(self, groups: Sequence[Group]) -> Any:
        return self.strategy.tell(groups) if isinstance(self.strategy, Remembering) else None

    def learn(self, told: Sequence[Any]) -> None:
        if isinstance(self.strategy, Remembering):
            self.strategy.learn(told)

    def state(self) -> Any:
        return self.strategy.state() if isinstance(self.strategy, Remembering) else None

    def load(self, state: Any) -> None:
        if isinstance(self.strategy, Remembering):
            self.strategy.load(state)


def of_size(strategy: Strategy, count: int) -> Strategy:
    """The strategy with groups of so many episodes. Raises UserError where it does not say how many it plays."""
    if isinstance(strategy, Around):
        return dataclasses.replace(strategy, strategy=of_size(strategy.strategy, count))
    if not dataclasses.is_dataclass(strategy) or not hasattr(strategy, "group_size"):
        raise UserError(f"{type(strategy).__name__} has no group_size: take a strategy that has one")
    return dataclasses.replace(strategy, group_size=count)  # type: ignore[return-value]
