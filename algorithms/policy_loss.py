"""What the device computes of a policy-gradient step: the policy's loss, mismatch, regularisers, and what is worth a metric."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agentrl_jax.algorithms.losses import kl_k3
from agentrl_jax.algorithms.mismatch import Correction
from agentrl_jax.algorithms.surrogates import Surrogate
from agentrl_jax.algorithms.terms import Regulariser
from agentrl_jax.batch import Batch
from agentrl_jax.record import AnyArray, record


@record
class PolicyGradientBatch:
    """What the policy loss reads beside the batch, all [B, T]."""

    batch: Batch
    ids: Int[AnyArray, "B T"]  # of sequences: tokens of a packed row that share a ratio share an id in [0, T)
    advantage: Float[AnyArray, "B T"]
    likelihood: Float[AnyArray, "B T"]  # coefficient of -logp
    proximal_logp: Float[AnyArray, "B T"]
    ref_logp: Float[AnyArray, "B T"]
    data: dict[str, dict[str, Float[AnyArray, "B T"]]]  # of each regulariser


@dataclass(frozen=True)
class PolicyLoss:
    """trust x surrogate - likelihood x logp + regularisers, per token."""

    surrogate: Surrogate
    regularisers: Mapping[str, Regulariser]
    mismatch: Correction | None  # at the current log-probs; None: none, or it is in the advantage already
    reference: bool

    def __call__(self, logp: Array, entropy: Array, batch: PolicyGradientBatch) -> tuple[Array, dict[str, Array]]:
        mask, ids = jnp.asarray(batch.batch.action_mask), jnp.asarray(batch.ids)
        proximal, sampler, ref = (jnp.asarray(x) for x in (batch.proximal_logp, batch.batch.sampler_logp, batch.ref_logp))
        advantage = jnp.asarray(batch.advantage)
        loss = self.surrogate(logp, proximal, advantage, mask, ids)
        metrics = {"entropy": entropy, **self._movement(logp - proximal, advantage)}
        if self.mismatch:
            trust, keep = self.mismatch(logp, sampler, mask, ids)
            loss = jnp.where(keep, trust * loss, 0.0)
            metrics |= {"off_policy/trust": trust, "off_policy/rejected": 1.0 - keep.astype(jnp.float32)}
        metrics["policy_loss"] = loss
        loss = loss - batch.likelihood * logp
        for name, term in self.regularisers.items():
            data = {key: jnp.asarray(x) for key, x in batch.data[name].items()}
            metrics[f"loss/{name}"] = term.loss(logp, entropy, proximal, ref, data)
            loss = loss + metrics[f"loss/{name}"]
        if self.reference:
            metrics["ref_kl"] = kl_k3(logp, ref)
        metrics |= {"off_policy/kl": kl_k3(logp, sampler), "off_policy/logp_gap": jnp.abs(logp - sampler)}
        return loss, metrics

    def _movement(self, moved: Array, advantage: Array) -> dict[str, Array]:
        """How many tokens are far from where they were, and where the surrogate's clip widths hold them."""
        low, high = getattr(self.surrogate, "low", 0.2), getattr(self.surrogate, "high", 0.2)
        outside = {
            "ratio_outside": jnp.abs(moved) > 0.2,
            "clipped/high": (advantage > 0) & (moved > np.log1p(high)),
            "clipped/low": (advantage < 0) & (moved < np.log(max(1.0 - low, 1e-9))),
        }
        return {name: where.astype(jnp.float32) for name, where in outside.items()}
