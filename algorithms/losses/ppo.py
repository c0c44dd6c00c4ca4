"""PPO's policy loss per token and per step, and AEPO's variant whose upper clip keeps a
gradient.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.losses.policy import ClippedLoss, importance_ratio, ratio_surrogate
from agentrl_jax.algorithms.losses.segment_ops import segment_sum


def clipped_surrogate(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Float[Array, "*shape"]:
    """max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = exp(logp - proximal_logp) (arXiv
    1707.06347).

    `dual_clip` bounds it where A < 0: at most -A dual_clip, without a gradient beyond (arXiv
    1912.09729).
    """
    return ratio_surrogate(
        importance_ratio(logp, proximal_logp),
        advantage,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )


@dataclass
class PPO(ClippedLoss):
    """PPO's loss per token (arXiv 1707.06347).

    Clip-higher is `clip_high` above `clip_low` (DAPO: .2 and .28); `dual_clip` bounds the loss of
    actions with A < 0 (3; DART 10).
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return clipped_surrogate(
            logp,
            proximal_logp,
            advantage,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )


def gradient_preserving_surrogate(
    logp: Float[Array, "*shape"],
    proximal_logp: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Float[Array, "*shape"]:
    """PPO's loss, but -A (1 + clip_high) r / sg(r) where A > 0 and r > 1 + clip_high: the same
    value, with a gradient (AEPO, arXiv 2510.14545).
    """
    ratio = importance_ratio(logp, proximal_logp)
    # r / sg(r) is 1, with the gradient of logp also where the log-ratio is clipped.
    unit = jnp.exp(logp - jax.lax.stop_gradient(logp))
    loss = ratio_surrogate(
        ratio, advantage, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    is_clipped_high = (advantage > 0) & (ratio > 1.0 + clip_high)
    return jnp.where(is_clipped_high, -advantage * (1.0 + clip_high) * unit, loss)


@dataclass
class GradientPreservingPPO(ClippedLoss):
    """PPO's loss whose upper clip keeps a gradient (AEPO, arXiv 2510.14545)."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return gradient_preserving_surrogate(
            logp,
            proximal_logp,
            advantage,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )


def step_surrogate(
    logp: Float[Array, "B T"],
    proximal_logp: Float[Array, "B T"],
    advantage: Float[Array, "B T"],
    mask: Bool[Array, "B T"],
    sequence_ids: Int[Array, "B T"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Float[Array, "B T"]:
    """PPO's loss of the ratio of a whole step: exp(sum over its tokens of logp - proximal_logp)
    (VLA-RL, arXiv 2505.18719).

    Every masked-in token of a step has the step's loss, so the mean over its tokens is that loss
    (`token_weights.step_mean`). A step is the tokens of a row that share an id in [0, T); its
    tokens share one advantage.
    """
    log_ratio = jnp.where(mask, logp - jax.lax.stop_gradient(proximal_logp), 0.0)
    ratio = jnp.exp(jnp.clip(segment_sum(sequence_ids, log_ratio), -20.0, 20.0))
    loss = ratio_surrogate(
        ratio, advantage, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    return jnp.where(mask, loss, 0.0)


@dataclass
class StepPPO(ClippedLoss):
    """PPO's loss of the ratio of a whole step (VLA-RL, arXiv 2505.18719)."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None

    def __call__(
        self, logp: Array, proximal_logp: Array, advantage: Array, mask: Array, sequence_ids: Array
    ) -> Array:
        return step_surrogate(
            logp,
            proximal_logp,
            advantage,
            mask,
            sequence_ids,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )
