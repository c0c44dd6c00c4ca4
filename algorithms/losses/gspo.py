"""GSPO's policy loss: the clipped surrogate of a sequence's geometric-mean ratio."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.losses.policy import ClippedLoss, ratio_surrogate
from agentrl_jax.algorithms.losses.segment_ops import segment_mean


def gspo_loss(
    logp: Float[Array, "B T"],
    proximal_logp: Float[Array, "B T"],
    advantage: Float[Array, "B T"],
    mask: Bool[Array, "B T"],
    sequence_ids: Int[Array, "B T"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Array, "B T"]:
    """PPO's loss of s_i = exp(mean over a sequence's tokens of logp - proximal_logp) (arXiv
    2507.18071).

    A token's ratio is sg(s_i) exp(logp - sg(logp)): equal for all tokens of the sequence, each with
    its own gradient. A sequence is the tokens of a row that share an id in [0, T); masked-out
    tokens have loss 0.
    """
    log_ratio = jnp.where(mask, logp - jax.lax.stop_gradient(proximal_logp), 0.0)
    mean = jnp.clip(segment_mean(sequence_ids, jax.lax.stop_gradient(log_ratio), mask), -20.0, 20.0)
    ratio = jnp.exp(mean) * jnp.exp(log_ratio - jax.lax.stop_gradient(log_ratio))
    loss = ratio_surrogate(ratio, advantage, clip_low=clip_low, clip_high=clip_high)
    return jnp.where(mask, loss, 0.0)


@dataclass
class GSPO(ClippedLoss):
    """PPO's loss of the geometric-mean ratio of a sequence (arXiv 2507.18071)."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return gspo_loss(
            logp,
            proximal_logp,
            advantage,
            mask,
            sequence_ids,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
        )
