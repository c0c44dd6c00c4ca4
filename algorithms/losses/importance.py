"""Importance corrections between sampler and learner (slot `mismatch`): (logp, sampler_logp, mask,
ids) -> weight and keep, both [B, T].

`logp` is the learner's before the update (three policies: the loss's ratio is to the proximal one)
or the current one (two policies: the ratio is to the sampler). The loss is multiplied by `weight`;
tokens that are not kept are removed from the loss's mask and no longer counted by the aggregation.
All results are detached, log-ratios are clipped to [-20, 20], and masked-out tokens have weight 1
and are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.losses.segment_ops import segment_mean, segment_sum

WeightAndMask = tuple[Float[Array, "B T"], Bool[Array, "B T"]]
ImportanceCorrection = Callable[[Array, Array, Array, Array], WeightAndMask]
RatioLevel = Callable[[Array, Array, Array], Array]  # (log-ratio, mask, ids) -> log-ratio


def log_ratio(
    logp: Float[Array, "B T"], sampler_logp: Float[Array, "B T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B T"]:
    """logp - sampler_logp of the masked-in tokens, 0 elsewhere; clipped to [-20, 20], detached."""
    return jax.lax.stop_gradient(jnp.where(mask, jnp.clip(logp - sampler_logp, -20.0, 20.0), 0.0))


def token_level(
    log_ratios: Float[Array, "B T"], mask: Bool[Array, "B T"], sequence_ids: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """The log-ratio of each token."""
    return log_ratios


def sequence_level(
    log_ratios: Float[Array, "B T"], mask: Bool[Array, "B T"], sequence_ids: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """The log of the product of a sequence's ratios, clipped to [-20, 20] as well."""
    return jnp.clip(segment_sum(sequence_ids, log_ratios), -20.0, 20.0)


def geometric_mean_level(
    log_ratios: Float[Array, "B T"], mask: Bool[Array, "B T"], sequence_ids: Int[Array, "B T"]
) -> Float[Array, "B T"]:
    """The log of the geometric mean of a sequence's ratios."""
    return segment_mean(sequence_ids, log_ratios, mask)


def _importance_ratio(
    level: RatioLevel, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
) -> Array:
    return jnp.exp(level(log_ratio(logp, sampler_logp, mask), mask, sequence_ids))


def no_correction(
    logp: Float[Array, "B T"],
    sampler_logp: Float[Array, "B T"],
    mask: Bool[Array, "B T"],
    sequence_ids: Int[Array, "B T"],
) -> WeightAndMask:
    """Weight 1, every token kept."""
    return jnp.ones_like(logp), jnp.ones_like(mask)


@dataclass
class TruncatedIS:
    """w = min(max(rho, low), high): with low 0 truncated importance sampling (TIS), high 2; DART
    uses high 1 (arXiv 2509.23866).
    """

    low: float = 0.0
    high: float = 2.0
    level: RatioLevel = token_level

    def __call__(
        self, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
    ) -> WeightAndMask:
        rho = _importance_ratio(self.level, logp, sampler_logp, mask, sequence_ids)
        return jnp.where(mask, jnp.clip(rho, self.low, self.high), 1.0), jnp.ones_like(mask)


@dataclass
class IcePop:
    """w = rho where low <= rho <= high, else 0. The mask does not change: a token of weight 0 still
    counts in a mean.
    """

    low: float = 0.5
    high: float = 5.0
    level: RatioLevel = token_level

    def __call__(
        self, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
    ) -> WeightAndMask:
        rho = _importance_ratio(self.level, logp, sampler_logp, mask, sequence_ids)
        inside = (rho >= self.low) & (rho <= self.high)
        return jnp.where(mask, jnp.where(inside, rho, 0.0), 1.0), jnp.ones_like(mask)


@dataclass
class RatioRejection:
    """Drops tokens whose rho is not in [low, high]; with another level, whole sequences."""

    low: float = 0.5
    high: float = 5.0
    level: RatioLevel = token_level

    def __call__(
        self, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
    ) -> WeightAndMask:
        rho = _importance_ratio(self.level, logp, sampler_logp, mask, sequence_ids)
        return jnp.ones_like(logp), ~mask | ((rho >= self.low) & (rho <= self.high))


@dataclass
class TokenVeto:
    """Drops every sequence in which a token's rho is below a limit (slime: 1e-4)."""

    min_ratio: float = 1e-4

    def __call__(
        self, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
    ) -> WeightAndMask:
        below = jnp.exp(log_ratio(logp, sampler_logp, mask)) < self.min_ratio
        num_below = segment_sum(sequence_ids, jnp.where(mask, below.astype(logp.dtype), 0.0))
        return jnp.ones_like(logp), ~mask | (num_below == 0.0)


@dataclass
class CorrectionChain:
    """The product of several corrections' weights; a token is kept where all of them keep it."""

    corrections: Sequence[ImportanceCorrection]

    def __call__(
        self, logp: Array, sampler_logp: Array, mask: Array, sequence_ids: Array
    ) -> WeightAndMask:
        weight, keep = no_correction(logp, sampler_logp, mask, sequence_ids)
        for correction in self.corrections:
            w, k = correction(logp, sampler_logp, mask, sequence_ids)
            weight, keep = weight * w, keep & k
        return weight, keep
