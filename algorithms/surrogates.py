"""Policy losses with their constants (slot L): (logp, proximal_logp, advantage, mask, ids) -> loss per token, [B, T].

One call for all of them: token losses pay no heed to `mask` and `ids`, sequence and step losses sum over the masked-in tokens of
a row that share an id. What is masked out is zeroed by whoever weighs the losses.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array

from agentrl_jax.algorithms.losses import cispo, clipped_surrogate, gradient_preserving, gspo, step_surrogate, weighted_likelihood

Surrogate = Callable[[Array, Array, Array, Array, Array], Array]


def reinforce(logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
    """-A logp: no ratio, no clip."""
    return weighted_likelihood(logp, advantage)


@dataclass
class PPO:
    """PPO's loss per token; clip-higher is `high` above `low` (DAPO: .2 and .28), `dual` the bound for bad actions (3; DART 10)."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
        return clipped_surrogate(logp, proximal_logp, advantage, clip_low=self.low, clip_high=self.high, dual=self.dual)


@dataclass
class GradientPreserving:
    """PPO's loss whose upper clip keeps a gradient (AEPO)."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = 3.0

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
        return gradient_preserving(logp, proximal_logp, advantage, clip_low=self.low, clip_high=self.high, dual=self.dual)


@dataclass
class CISPO:
    """The clipped ratio as a detached weight; `low` 1 is no lower clip."""

    low: float
    high: float

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
        return cispo(logp, proximal_logp, advantage, clip_low=self.low, clip_high=self.high)


@dataclass
class GSPO:
    """PPO's loss of the mean ratio of a sequence."""

    low: float = 3e-4
    high: float = 4e-4

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
        return gspo(logp, proximal_logp, advantage, mask, ids, clip_low=self.low, clip_high=self.high)


@dataclass
class StepPPO:
    """PPO's loss of the ratio of a whole step (VLA-RL)."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, ids: Array) -> Array:
        return step_surrogate(logp, proximal_logp, advantage, mask, ids, clip_low=self.low, clip_high=self.high, dual=self.dual)
