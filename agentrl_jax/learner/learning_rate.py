"""Learning rates over a run: linear warmup, then a decay."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from agentrl_jax.errors import UserError

# The progress after warmup, from 0 to 1 -> a factor from 1 down to 0.
Decay = Callable[[Float[Array, ""]], Float[Array, ""]]


def cosine(progress: Float[Array, ""]) -> Float[Array, ""]:
    """(1 + cos(pi p)) / 2"""
    return 0.5 * (1 + jnp.cos(jnp.pi * progress))


def linear(progress: Float[Array, ""]) -> Float[Array, ""]:
    """1 - p"""
    return 1 - progress


def constant(progress: Float[Array, ""]) -> Float[Array, ""]:
    """1"""
    return jnp.ones_like(progress)


@dataclass(frozen=True)
class StableThenLinear:
    """min(1, (1 - p) / f): constant, then linear over the last fraction f of the steps.

    With a warmup this is the warmup-stable-decay schedule (arXiv 2404.06395).
    """

    decay_fraction: float = 0.1

    def __call__(self, progress: Float[Array, ""]) -> Float[Array, ""]:
        if not 0 < self.decay_fraction <= 1:
            raise UserError(f"decay_fraction must be in (0, 1]: {self}")
        return jnp.minimum(1.0, (1 - progress) / self.decay_fraction)


@dataclass
class LearningRate:
    """peak x s / warmup_steps during warmup, then

    peak x (final_fraction + (1 - final_fraction) x decay(p)),  p = (s - warmup) / (steps - warmup)
    """

    peak: float
    warmup_steps: int = 0
    final_fraction: float = 1.0  # of the peak at the last step; 1: constant
    decay: Decay = cosine

    def build(self, steps: int) -> optax.Schedule:
        """The schedule of a run of `steps` optimizer steps. Raises UserError."""
        if self.peak <= 0 or not 0 <= self.final_fraction <= 1 or self.warmup_steps < 0:
            raise UserError(
                "a learning rate needs a value > 0, 0 <= final_fraction <= 1 and "
                f"warmup_steps >= 0: {self}"
            )
        decay_steps = max(1, steps - self.warmup_steps)

        def decayed(count: ArrayLike) -> Array:
            factor = self.decay(jnp.minimum(count / decay_steps, 1.0))
            return self.peak * (self.final_fraction + (1 - self.final_fraction) * factor)

        warmup = optax.linear_schedule(0.0, self.peak, max(1, self.warmup_steps))
        return optax.join_schedules([warmup, decayed], [self.warmup_steps])
