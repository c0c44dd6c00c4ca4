"""Policy losses (slot `surrogate`): the base class, and the losses without a ratio.

A policy loss returns one number per token, [B, T]; the aggregation decides how tokens are summed.
Formulas are elementwise functions; the slot object of the same file holds the constants.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class SurrogateLoss(ABC):
    """Base class of policy losses.

    All take the same arguments: token-level losses ignore `mask` and `sequence_ids`; sequence and
    step losses reduce over the masked-in tokens of a row that share an id in [0, T). The caller
    zeroes masked-out tokens when it weights the losses.
    """

    @abstractmethod
    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        """The loss of each token, [B, T]."""

    @property
    def clip_widths(self) -> tuple[float, float]:
        """How far below and above 1 the metrics `clipped/low` and `clipped/high` count a ratio."""
        return 0.2, 0.2


class ClippedLoss(SurrogateLoss):
    """Base class of the losses that clip a ratio to [1 - clip_low, 1 + clip_high]."""

    clip_low: float
    clip_high: float

    @property
    def clip_widths(self) -> tuple[float, float]:
        return self.clip_low, self.clip_high


def negative_log_likelihood(logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """-logp: maximum likelihood of the demonstrated token."""
    return -logp


def weighted_likelihood(
    logp: Float[Array, "*shape"], advantage: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """-A logp: REINFORCE (Williams, 1992), or imitation with a weight per token."""
    return -advantage * logp


@dataclass
class REINFORCE(SurrogateLoss):
    """-A logp: no ratio, no clip."""

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return weighted_likelihood(logp, advantage)


def importance_ratio(
    logp: Float[Array, "*shape"], proximal_logp: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """exp(logp - proximal_logp), its log clipped to [-20, 20] so that a single token cannot
    overflow.
    """
    return jnp.exp(jnp.clip(logp - jax.lax.stop_gradient(proximal_logp), -20.0, 20.0))


def ratio_surrogate(
    ratio: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Array, "*shape"]:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) of any ratio r.

    With `dual_clip` the loss is at most -A dual_clip where A < 0 (arXiv 1912.09729).
    """
    clipped_ratio = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    loss = jnp.maximum(-advantage * ratio, -advantage * clipped_ratio)
    if dual_clip is None:
        return loss
    return jnp.where(advantage < 0, jnp.minimum(loss, -advantage * dual_clip), loss)
