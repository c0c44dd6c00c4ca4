"""Optimizers as values in a config: AdamW, any optax transformation, and one per parameter
group.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import optax

from agentrl_jax.errors import UserError
from agentrl_jax.learner.learning_rate import Decay, LearningRate, cosine
from agentrl_jax.learner.scheduled_transformation import ScheduledTransformation
from agentrl_jax.learner.stochastic_rounding import RoundedTransformation


@runtime_checkable
class OptimizerConfig(Protocol):
    """A dataclass that describes an optimizer."""

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps. Raises UserError."""
        ...


@dataclass
class AdamWConfig:
    """AdamW after clipping by the global norm (`LearningRate` has the schedule)."""

    learning_rate: float = 3e-4
    warmup_steps: int = 0
    # Of the learning rate at the last step, reached by `decay`; 1: constant.
    final_fraction: float = 1.0
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0  # global norm
    decay: Decay = cosine

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps. Raises UserError."""
        if not self.clip_norm > 0:  # nor NaN
            raise UserError(f"AdamW needs clip_norm > 0: {self}")
        if not all(map(math.isfinite, (self.b1, self.b2, self.eps, self.weight_decay))):
            raise UserError(f"AdamW needs finite b1, b2, eps and weight_decay: {self}")
        rate = LearningRate(self.learning_rate, self.warmup_steps, self.final_fraction, self.decay)
        schedule = rate.build(steps)
        adamw = optax.adamw(schedule, self.b1, self.b2, self.eps, weight_decay=self.weight_decay)
        return ScheduledTransformation.of(
            optax.chain(optax.clip_by_global_norm(self.clip_norm), adamw), schedule
        )


@dataclass
class OptaxConfig:
    """Any optax transformation: `make(learning rate schedule, **options)` after clipping.

    `OptaxConfig(optax.lion, LearningRate(1e-4, warmup_steps=10), {"b1": 0.95})`

    Its update may take the gradient, its state and the weights, and nothing else (no loss value).
    """

    make: Callable[..., optax.GradientTransformation]  # a module's function
    learning_rate: LearningRate
    options: dict[str, Any] = field(default_factory=dict)  # of `make`
    clip_norm: float = 0.0  # global norm; 0: the gradient is not clipped

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps. Raises UserError."""
        if not self.clip_norm >= 0:  # nor NaN
            raise UserError(f"clip_norm must be at least 0 (0: no clipping): {self}")
        schedule = self.learning_rate.build(steps)
        try:
            transformation = self.make(schedule, **self.options)
        except TypeError as error:
            raise UserError(
                f"the optimizer {self.make.__name__} does not take (learning_rate, "
                f"{', '.join(self.options)}): {error}"
            ) from error
        if self.clip_norm:
            clip = optax.clip_by_global_norm(self.clip_norm)
            transformation = optax.chain(clip, transformation)
        return ScheduledTransformation.of(transformation, schedule)


@dataclass
class StochasticRounding:
    """An optimizer of weights in bfloat16 or float16 (`param_dtype`), without float32 copies.

    It computes in float32, and rounds the new weights and moments to their dtypes at random with
    the right mean (`round_stochastically`): an update of a tenth of the distance between two
    weights moves one of ten. Gradients are summed in the weights' dtype.

    Gupta et al., Deep Learning with Limited Numerical Precision (arXiv 1502.02551).
    """

    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    seed: int = 0  # of the random numbers, which depend on it, the update and the weight

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps. Raises UserError."""
        return RoundedTransformation.of(self.optimizer.build(steps), self.seed)
