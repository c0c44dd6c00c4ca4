"""Scripted policies composed of others."""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.environment import Environment, ScriptedPolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message


@dataclass(frozen=True)
class MixturePolicy:
    """In each turn, `first` with probability `first_probability`, else `second`."""

    first: ScriptedPolicy
    second: ScriptedPolicy
    first_probability: float

    def __post_init__(self) -> None:
        if not 0 <= self.first_probability <= 1:
            raise UserError(
                f"first_probability must be a probability, not {self.first_probability}"
            )

    def __call__(self, env: Environment, rng: np.random.Generator) -> Message | str:
        return (self.first if rng.random() < self.first_probability else self.second)(env, rng)
