"""Losses (slots L and K): pure, elementwise, per token; sums and means are somebody else's business."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def negative_log_likelihood(logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """-logp: maximum likelihood of the demonstrated token."""
    return -logp


def clipped_surrogate(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Float[Array, "*shape"]:
    """PPO's loss: max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = exp(logp - proximal_logp) (arXiv 1707.06347).

    The log-ratio is held to [-20, 20], so that one odd token cannot overflow.
    """
    ratio = jnp.exp(jnp.clip(logp - jax.lax.stop_gradient(proximal_logp), -20.0, 20.0))
    return jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high))


def kl_k1(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """d = logp - ref_logp: unbiased for KL(policy || reference) on the policy's samples, may be negative."""
    return logp - ref_logp


def kl_k2(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """d^2 / 2: biased, low variance; its gradient is that of the KL."""
    return 0.5 * (logp - ref_logp) ** 2


def kl_k3(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(-d) + d - 1: unbiased, never negative (J. Schulman, "Approximating KL divergence", 2020)."""
    d = jnp.clip(logp - ref_logp, -20.0, 20.0)
    return jnp.exp(-d) + d - 1.0
