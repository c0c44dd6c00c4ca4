"""Learning rates over a run: linear warmup, then a decay."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from agentrl_jax.errors import UserError

# (a step after the warmup, at most the last one; the number of these steps) -> a factor from 1 down
# to 0.
Decay = Callable[[Float[Array, ""], float], Float[Array, ""]]


def cosine(step: Float[Array, ""], steps: float) -> Float[Array, ""]:
    """(1 + cos(pi step / steps)) / 2, to the bit as `optax.cosine_decay_schedule`."""
    return 0.5 * (1 + jnp.cos(jnp.pi * step / steps))


def linear(step: Float[Array, ""], steps: float) -> Float[Array, ""]:
    """1 - step / steps"""
    return 1 - step / steps


def constant(step: Float[Array, ""], steps: float) -> Float[Array, ""]:
    """1"""
    return jnp.ones_like(step)


@dataclass(frozen=True)
class StableThenLinear:
    """min(1, (1 - step / steps) / f): constant, then linear over the last fraction f of the steps.

    With a warmup this is the warmup-stable-decay schedule (arXiv 2404.06395).
    """

    decay_fraction: float = 0.1

    def __call__(self, step: Float[Array, ""], steps: float) -> Float[Array, ""]:
        if not 0 < self.decay_fraction <= 1:
            raise UserError(f"decay_fraction must be in (0, 1]: {self}")
        return jnp.minimum(1.0, (1 - step / steps) / self.decay_fraction)


@dataclass
class LearningRate:
    """peak x s / warmup_steps during warmup, then

    peak x ((1 - final_fraction) x decay(s - warmup_steps, steps - warmup_steps) + final_fraction)
    """

    peak: float
    warmup_steps: int = 0
    final_fraction: float = 1.0  # of the peak at the last step; 1: constant
    decay: Decay = cosine

    def build(self, steps: int) -> optax.Schedule:
        """The schedule of a run of `steps` optimizer steps. Raises UserError."""
        is_number = 0 < self.peak < math.inf  # not for NaN
        if not is_number or not 0 <= self.final_fraction <= 1 or self.warmup_steps < 0:
            raise UserError(
                "a learning rate needs a finite value > 0, 0 <= final_fraction <= 1 and "
                f"warmup_steps >= 0: {self}"
            )
        decay_steps = float(max(1, steps - self.warmup_steps))

        def decayed(count: ArrayLike) -> Array:
            factor = self.decay(jnp.minimum(count, decay_steps), decay_steps)
            return self.peak * ((1 - self.final_fraction) * factor + self.final_fraction)

        warmup = optax.linear_schedule(0.0, self.peak, max(1, self.warmup_steps))
        return optax.join_schedules([warmup, decayed], [self.warmup_steps])
