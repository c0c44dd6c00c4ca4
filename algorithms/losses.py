"""Losses (slots L and K): pure, one number per token; how tokens are summed is somebody else's business."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.sequences import mean_over, sum_over


def negative_log_likelihood(logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """-logp: maximum likelihood of the demonstrated token."""
    return -logp


def weighted_likelihood(logp: Float[Array, "*shape"], advantage: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """-A logp: REINFORCE (Williams, 1992), and imitation with a weight for each token. No ratio, no clip."""
    return -advantage * logp


def importance_ratio(logp: Float[Array, "*shape"], proximal_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(logp - proximal_logp), its log held to [-20, 20], so that one odd token cannot overflow."""
    return jnp.exp(jnp.clip(logp - jax.lax.stop_gradient(proximal_logp), -20.0, 20.0))


def ratio_surrogate(
    ratio: Float[Array, "*shape"], advantage: Float[Array, "*shape"], *, clip_low: float, clip_high: float, dual: float | None = None
) -> Float[Array, "*shape"]:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) of any ratio; where A < 0 at most -A dual (arXiv 1912.09729)."""
    loss = jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high))
    return loss if dual is None else jnp.where(advantage < 0, jnp.minimum(loss, -advantage * dual), loss)


def clipped_surrogate(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual: float | None = None,
) -> Float[Array, "*shape"]:
    """PPO's loss: max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = exp(logp - proximal_logp) (arXiv 1707.06347).

    `dual` bounds it where A < 0: at most -A dual, without a gradient beyond (arXiv 1912.09729).
    """
    return ratio_surrogate(importance_ratio(logp, proximal_logp), advantage, clip_low=clip_low, clip_high=clip_high, dual=dual)


def gradient_preserving(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual: float | None = 3.0,
) -> Float[Array, "*shape"]:
    """PPO's loss, but -A (1 + clip_high) r / sg(r) where A > 0 and r > 1 + clip_high: as large, with a gradient.

    AEPO (arXiv 2510.14545).
    """
    ratio = importance_ratio(logp, proximal_logp)
    # r / sg(r) is 1, with the gradient of logp also where the log-ratio is held.
    one = jnp.exp(logp - jax.lax.stop_gradient(logp))
    loss = ratio_surrogate(ratio, advantage, clip_low=clip_low, clip_high=clip_high, dual=dual)
    return jnp.where((advantage > 0) & (ratio > 1.0 + clip_high), -advantage * (1.0 + clip_high) * one, loss)


def cispo(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Array, "*shape"]:
    """-sg(clip(r, 1 - clip_low, 1 + clip_high)) A logp: every token keeps a gradient (MiniMax-M1, arXiv 2506.13585)."""
    ratio = jnp.clip(importance_ratio(logp, proximal_logp), 1.0 - clip_low, 1.0 + clip_high)
    return -jax.lax.stop_gradient(ratio) * advantage * logp


def gspo(
    logp: Float[Array, "B T"],
    proximal_logp: Float[Array, "B T"],
    advantage: Float[Array, "B T"],
    mask: Bool[Array, "B T"],
    ids: Int[Array, "B T"],
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Float[Array, "B T"]:
    """PPO's loss of s_i = exp(mean over a sequence's tokens of logp - proximal_logp) (arXiv 2507.18071).

    A token's ratio is sg(s_i) exp(logp - sg(logp)): as large for all tokens of the sequence, each with its own gradient. A
    sequence is the tokens of a row that share an id in [0, T); masked-out tokens have loss 0.
    """
    moved = jnp.where(mask, logp - jax.lax.stop_gradient(proximal_logp), 0.0)
    mean = jnp.clip(mean_over(ids, jax.lax.stop_gradient(moved), mask), -20.0, 20.0)
    ratio = jnp.exp(mean) * jnp.exp(moved - jax.lax.stop_gradient(moved))
    return jnp.where(mask, ratio_surrogate(ratio, advantage, clip_low=clip_low, clip_high=clip_high), 0.0)


def step_surrogate(
    logp: Float[Array, "B T"],
    proximal_logp: Float[Array, "B T"],
    advantage: Float[Array, "B T"],
    mask: Bool[Array, "B T"],
    ids: Int[Array, "B T"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual: float | None = None,
) -> Float[Array, "B T"]:
    """PPO's loss of the ratio of a whole step: exp(sum over its tokens of logp - proximal_logp) (VLA-RL, arXiv 2505.18719).

    Every masked-in token of a step has the step's loss, so the mean over its tokens is that loss (`aggregation.step_mean`). A
    step is the tokens of a row that share an id in [0, T); its tokens share one advantage.
    """
    moved = jnp.where(mask, logp - jax.lax.stop_gradient(proximal_logp), 0.0)
    ratio = jnp.exp(jnp.clip(sum_over(ids, moved), -20.0, 20.0))
    return jnp.where(mask, ratio_surrogate(ratio, advantage, clip_low=clip_low, clip_high=clip_high, dual=dual), 0.0)


def relative_regression(moved: Float[Array, "*shape"], gap: Float[Array, "*shape"], *, eta: float) -> Float[Array, "*shape"]:
    """(d - eta (r - r'))^2: of two replies y, y' to one prompt d = ln pi(y)/pi_t(y) - ln pi(y')/pi_t(y') is `moved`, r - r' the `gap`.

    REBEL (arXiv 2404.16767), and at a turn of a dialogue that is played to its end REFUEL (arXiv 2410.04612). Its minimiser over all
    pairs has d = eta (Q - Q').
    """
    return (moved - eta * gap) ** 2


def direct_preference(moved: Float[Array, "*shape"], gap: Float[Array, "*shape"], *, beta: float) -> Float[Array, "*shape"]:
    """DPO: -log sigmoid(beta d), d as in `relative_regression` and with the preferred reply first (arXiv 2305.18290).

    Preferred is what earned more, gap > 0; where neither did the loss is log 2 and has no gradient.
    """
    return -jax.nn.log_sigmoid(beta * jnp.sign(gap) * moved)


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
