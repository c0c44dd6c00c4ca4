"""CISPO's policy loss: the clipped ratio as a detached weight."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agentrl_jax.algorithms.losses.policy import ClippedLoss, importance_ratio


def cispo_loss(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Array, "*shape"]:
    """-sg(clip(r, 1 - clip_low, 1 + clip_high)) A logp: every token keeps a gradient (MiniMax-M1,
    arXiv 2506.13585).
    """
    ratio = jnp.clip(importance_ratio(logp, proximal_logp), 1.0 - clip_low, 1.0 + clip_high)
    return -jax.lax.stop_gradient(ratio) * advantage * logp


@dataclass
class CISPO(ClippedLoss):
    """The clipped ratio as a detached weight (arXiv 2506.13585); `clip_low` 1 is no lower clip."""

    clip_low: float
    clip_high: float

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return cispo_loss(
            logp, proximal_logp, advantage, clip_low=self.clip_low, clip_high=self.clip_high
        )
