"""Scripted players made of others."""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.errors import UserError


@dataclass(frozen=True)
class Mixed:
    """At each turn, with probability `share`, what one player would do, else what another would."""

    one: Player
    other: Player
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UserError(f"the share of a player's turns is a probability, not {self.share}")

    def __call__(self, env: Environment, rng: np.random.Generator) -> str:
        return (self.one if rng.random() < self.share else self.other)(env, rng)
