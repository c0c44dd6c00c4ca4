"""KL estimators (J. Schulman, "Approximating KL divergence", 2020) from the log-probs of sampled
tokens, one number per token.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

KLEstimator = Callable[[Array, Array], Array]  # (logp, ref_logp) -> KL(policy || reference)


def kl_k1(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """d = logp - ref_logp: unbiased for KL(policy || reference) on the policy's samples, may be
    negative.
    """
    return logp - ref_logp


def kl_k2(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """d^2 / 2: biased, low variance; its gradient is that of the KL."""
    return 0.5 * (logp - ref_logp) ** 2


def kl_k3(logp: Float[Array, "*shape"], ref_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(-d) + d - 1: unbiased, never negative; d is clipped to [-20, 20]."""
    d = jnp.clip(logp - ref_logp, -20.0, 20.0)
    return jnp.exp(-d) + d - 1.0
