"""The device side of a policy-gradient step: policy loss, importance correction, regularizers and
their metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agentrl_jax.algorithms.losses.importance import ImportanceCorrection
from agentrl_jax.algorithms.losses.kl import kl_k3
from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.regularizers import Regularizer
from agentrl_jax.errors import UserError
from agentrl_jax.learner.packing import Batch
from agentrl_jax.pytree import AnyArray, pytree_dataclass

PROXIMAL_KL = "proximal_kl"  # the metric: KL(proximal || policy) per token


@pytree_dataclass
class PolicyGradientBatch:
    """What the policy loss reads in addition to the batch, all [B, T]."""

    batch: Batch
    # tokens of a packed row that share a ratio share an id in [0, T)
    sequence_ids: Int[AnyArray, "B T"]
    advantage: Float[AnyArray, "B T"]
    nll_weight: Float[AnyArray, "B T"]  # coefficient of -logp
    proximal_logp: Float[AnyArray, "B T"]
    ref_logp: Float[AnyArray, "B T"]
    regularizer_data: dict[str, Any]  # each regularizer's data by name, arrays [B, T]


@dataclass(frozen=True)
class PolicyLoss:
    """importance weight x surrogate - nll_weight x logp + regularizers, per token."""

    surrogate: SurrogateLoss
    regularizers: Mapping[str, Regularizer]
    # at the current log-probs; None: none, or its weights are part of the advantage already
    mismatch: ImportanceCorrection | None
    has_reference: bool
    # whether the divergence from the proximal policy is a metric, for a stop at `max_kl`
    measures_kl: bool = False

    def __call__(
        self, logp: Array, entropy: Array, batch: PolicyGradientBatch
    ) -> tuple[Array, dict[str, Array]]:
        mask, ids = jnp.asarray(batch.batch.action_mask), jnp.asarray(batch.sequence_ids)
        proximal, sampler, ref = (
            jnp.asarray(x) for x in (batch.proximal_logp, batch.batch.sampler_logp, batch.ref_logp)
        )
        advantage = jnp.asarray(batch.advantage)
        loss = self.surrogate(logp, proximal, advantage, mask, ids)
        if loss.shape != logp.shape:
            raise UserError(
                f"{type(self.surrogate).__name__} must return a loss for each token, of shape "
                f"{logp.shape}, not {loss.shape}"
            )
        metrics = {"entropy": entropy, **self._ratio_metrics(logp - proximal, advantage)}
        if self.measures_kl:  # the tokens are samples of the proximal policy
            metrics[PROXIMAL_KL] = kl_k3(proximal, logp)
        if self.mismatch:
            trust, keep = self.mismatch(logp, sampler, mask, ids)
            loss = jnp.where(keep, trust * loss, 0.0)
            metrics |= {
                "off_policy/trust": trust,
                "off_policy/rejected": 1.0 - keep.astype(jnp.float32),
            }
        metrics["policy_loss"] = loss
        loss = loss - batch.nll_weight * logp
        for name, regularizer in self.regularizers.items():
            data = batch.regularizer_data[name]
            metrics[f"loss/{name}"] = regularizer.loss(logp, entropy, proximal, ref, data)
            loss = loss + metrics[f"loss/{name}"]
        if self.has_reference:
            metrics["ref_kl"] = kl_k3(logp, ref)
        metrics |= {
            "off_policy/kl": kl_k3(logp, sampler),
            "off_policy/logp_gap": jnp.abs(logp - sampler),
        }
        return loss, metrics

    def _ratio_metrics(self, log_ratio: Array, advantage: Array) -> dict[str, Array]:
        """Which tokens have a ratio far from 1, and which the surrogate clips."""
        low, high = self.surrogate.clip_widths
        outside = {
            "ratio_outside": jnp.abs(log_ratio) > 0.2,
            "clipped/high": (advantage > 0) & (log_ratio > np.log1p(high)),
            "clipped/low": (advantage < 0) & (log_ratio < np.log(max(1.0 - low, 1e-9))),
        }
        return {name: where.astype(jnp.float32) for name, where in outside.items()}
