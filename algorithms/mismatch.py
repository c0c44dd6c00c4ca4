"""Mismatch between sampler and learner (slot W): (logp, sampler_logp, mask, ids) -> weight and keep, both [B, T].

`logp` is the learner's before the update (three policies: the proximal one is the loss's anchor) or now (two: the sampler is).
A loss is multiplied by `weight`; tokens that are not kept leave its mask, and the aggregation counts them no more. Everything
is detached, log-ratios are held to [-20, 20], and what is masked out has weight 1 and stays as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.losses import kl_k3
from agentrl_jax.algorithms.sequences import mean_over, sum_over

Corrected = tuple[Float[Array, "B T"], Bool[Array, "B T"]]
Correction = Callable[[Array, Array, Array, Array], Corrected]
Level = Callable[[Array, Array, Array], Array]  # (log-ratio, mask, ids) -> log-ratio


def log_ratio(logp: Float[Array, "B T"], sampler_logp: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
    """logp - sampler_logp of the masked-in tokens, 0 elsewhere, held to [-20, 20] and detached."""
    return jax.lax.stop_gradient(jnp.where(mask, jnp.clip(logp - sampler_logp, -20.0, 20.0), 0.0))


def of_token(ratio: Float[Array, "B T"], mask: Bool[Array, "B T"], ids: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """Each token's own log-ratio."""
    return ratio


def of_sequence(ratio: Float[Array, "B T"], mask: Bool[Array, "B T"], ids: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """The log of the product of a sequence's ratios, held to [-20, 20] too."""
    return jnp.clip(sum_over(ids, ratio), -20.0, 20.0)


def geometric(ratio: Float[Array, "B T"], mask: Bool[Array, "B T"], ids: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """The log of the geometric mean of a sequence's ratios."""
    return mean_over(ids, ratio, mask)


def _rho(level: Level, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Array:
    return jnp.exp(level(log_ratio(logp, sampler_logp, mask), mask, ids))


def uncorrected(
    logp: Float[Array, "B T"], sampler_logp: Float[Array, "B T"], mask: Bool[Array, "B T"], ids: Int[Array, "B T"]
) -> Corrected:
    """Weight 1, nothing dropped."""
    return jnp.ones_like(logp), jnp.ones_like(mask)


@dataclass
class Clipped:
    """w = min(max(rho, low), high). With low 0: truncated importance sampling (TIS), high 2; DART takes high 1 (arXiv 2509.23866)."""

    low: float = 0.0
    high: float = 2.0
    level: Level = of_token

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        rho = _rho(self.level, logp, sampler_logp, mask, ids)
        return jnp.where(mask, jnp.clip(rho, self.low, self.high), 1.0), jnp.ones_like(mask)


@dataclass
class IcePop:
    """w = rho where low <= rho <= high, else 0. The mask does not change: a token of weight 0 still counts in a mean."""

    low: float = 0.5
    high: float = 5.0
    level: Level = of_token

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        rho = _rho(self.level, logp, sampler_logp, mask, ids)
        inside = (rho >= self.low) & (rho <= self.high)
        return jnp.where(mask, jnp.where(inside, rho, 0.0), 1.0), jnp.ones_like(mask)


@dataclass
class RatioRejection:
    """Drops where rho is not in [low, high]: single tokens, or with another level whole sequences."""

    low: float = 0.5
    high: float = 5.0
    level: Level = of_token

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        rho = _rho(self.level, logp, sampler_logp, mask, ids)
        return jnp.ones_like(logp), ~mask | ((rho >= self.low) & (rho <= self.high))


@dataclass
class DivergenceRejection:
    """Drops sequences whose divergence from the sampler, KL(sampler || learner), is above a limit.

    `estimator` is `losses.kl_k1`, `kl_k2` or `kl_k3`, per token; `over` is `total`, `mean_over` or `max_over` of them. Where the
    divergence is below `lowest` (a k1 may be) the sequence is dropped too.
    """

    limit: float
    estimator: Callable[[Array, Array], Array] = kl_k3
    over: Callable[[Array, Array, Array], Array] = mean_over
    lowest: float = -float("inf")

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        away = self.estimator(-log_ratio(logp, sampler_logp, mask), jnp.zeros_like(logp))
        found = self.over(ids, away, mask)
        return jnp.ones_like(logp), ~mask | ((found <= self.limit) & (found >= self.lowest))


def total(ids: Int[Array, "B T"], values: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
    """Sum over the masked-in tokens of a sequence."""
    return sum_over(ids, jnp.where(mask, values, 0.0))


@dataclass
class Veto:
    """Drops every sequence in which some token's rho is below a limit (slime: 1e-4)."""

    limit: float = 1e-4

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        bad = jnp.exp(log_ratio(logp, sampler_logp, mask)) < self.limit
        return jnp.ones_like(logp), ~mask | (total(ids, bad.astype(logp.dtype), mask) == 0.0)


@dataclass
class Together:
    """The product of the weights, and only what all of them keep."""

    corrections: Sequence[Correction]

    def __call__(self, logp: Array, sampler_logp: Array, mask: Array, ids: Array) -> Corrected:
        weight, keep = uncorrected(logp, sampler_logp, mask, ids)
        for correction in self.corrections:
            w, k = correction(logp, sampler_logp, mask, ids)
            weight, keep = weight * w, keep & k
        return weight, keep


def weight_sums(weight: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum of the weights and number of the tokens of one microbatch.

    A normaliser needs the mean over the *whole* batch: add both over all microbatches and hosts, then divide by `normalized`.
    With the learner's log-probs from before the update all weights are known before its first gradient.
    """
    return jnp.sum(jnp.where(mask, weight, 0.0)), jnp.sum(mask.astype(weight.dtype))


def normalized(weight: Float[Array, "B T"], mask: Bool[Array, "B T"], mean: Float[Array, ""]) -> Float[Array, "B T"]:
    """Weights divided by their mean over the batch's tokens (slime's default); a mean of 0 leaves them as they are."""
    return jnp.where(mask & (mean > 0), weight / jnp.where(mean > 0, mean, 1.0), weight)
