"""The policy-gradient step: slots left of the device (advantage, aggregation), slots on it (surrogate, KL)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from agentrl_jax.algorithms.losses import kl_k3
from agentrl_jax.batch import Batch, Layout, pack, pack_branches, split
from agentrl_jax.errors import UserError
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import AnyArray, record
from agentrl_jax.rows import Collated, Indices, Row, collate, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group


@record
class PolicyGradientBatch:
    """What the policy loss reads beside the batch, all [B, T]."""

    batch: Batch
    advantage: Float[AnyArray, "B T"]
    proximal_logp: Float[AnyArray, "B T"]
    ref_logp: Float[AnyArray, "B T"]


@dataclass
class Sharing:
    """Rows that begin with the same prompt keep it once in a bin: `prompt` columns for it, then the own tokens of `rows` rows.

    The update is the same; what it computes is less where prompts are long and a group's rows are of about one length.
    """

    prompt: int = 0  # 0: nothing is shared; what a prompt has more belongs to each row
    rows: int = 8


@dataclass
class PolicyGradientConfig:
    """The slots of a policy-gradient method and the shape of its batches."""

    advantage: Callable[[Indices], np.ndarray]  # one number per policy-written token
    aggregation: Callable[[Indices], np.ndarray]  # its weight in the loss
    surrogate: Callable[[Array, Array, Array], Array]  # (logp, proximal_logp, advantage) -> loss per token
    kl: Callable[[Array, Array], Array] = kl_k3  # (logp, ref_logp) -> penalty per token
    kl_coefficient: float = 0.0  # 0: no reference is kept
    minibatches: int = 1  # optimizer steps per collected batch, each on its share of the groups
    rescore: bool = False  # the learner recomputes proximal log-probs; off: the sampler's are the anchor
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256  # tokens per packed row; at least the longest training row, or with sharing the own tokens of one
    sharing: Sharing = field(default_factory=Sharing)
    microbatch: int = 32  # packed rows, or bins of shared prompts, per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "PolicyGradient":
        return PolicyGradient(self, policy, mesh, steps)


class PolicyGradient:
    """Implements `Algorithm`: collate, credit, weigh, pack, update."""

    def __init__(self, config: PolicyGradientConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        if config.minibatches < 1 or config.microbatch < 1 or config.kl_coefficient < 0:
            raise UserError("a policy-gradient method needs minibatches, microbatch >= 1 and kl_coefficient >= 0")
        if config.sharing.prompt < 0 or config.sharing.rows < 1:
            raise UserError(f"prompts are shared by at least 1 row and have at least 0 tokens, not {config.sharing}")
        if config.sharing.prompt and not getattr(policy, "branches", False):
            raise UserError(f"{type(policy).__name__} takes no rows with branches: leave the sharing of prompts off")
        self._config = config
        self._learner = Learner(policy, config.optimizer.build(steps * config.minibatches), self._loss, mesh)
        self._microbatch = self._learner.divisible(config.microbatch)

    def init(self, key: Array, params: Params) -> TrainState:
        state = self._learner.init(key, params)
        if self._config.kl_coefficient == 0:
            return state
        reference = jax.tree.map(jnp.copy, state.params)
        return TrainState(step=state.step, params=state.params, opt_state=state.opt_state, key=state.key, extra=reference)

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def _loss(self, logp: Array, entropy: Array, batch: PolicyGradientBatch) -> tuple[Array, dict[str, Array]]:
        c = self._config
        loss = c.surrogate(logp, batch.proximal_logp, batch.advantage)
        moved = logp - batch.proximal_logp
        metrics = {
            "policy_loss": loss,
            "ratio_outside": (jnp.abs(moved) > 0.2).astype(jnp.float32),
            "off_policy/kl": kl_k3(logp, batch.batch.sampler_logp),
            "off_policy/logp_gap": jnp.abs(logp - batch.batch.sampler_logp),
        }
        if c.kl_coefficient:
            penalty = c.kl(logp, batch.ref_logp)
            loss, metrics["ref_kl"] = loss + c.kl_coefficient * penalty, penalty
        return loss, metrics

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """One pass over the groups in `minibatches` optimizer steps. A batch without any signal is a counted skip."""
        c = self._config
        whole = collate(experience)
        metrics: dict[str, Any] = {"tokens/identity": token_identity(experience, whole), "tokens": float(len(whole.indices.token_row))}
        advantage = np.asarray(c.advantage(whole.indices), np.float64)
        if advantage.shape != whole.indices.token_row.shape or not np.isfinite(advantage).all():
            raise UserError("the advantage must be one finite number per policy-written token")
        groups_with_signal = len(np.unique(whole.indices.trajectory_group[whole.indices.token_trajectory[advantage != 0]]))
        metrics["groups_with_signal"] = groups_with_signal / max(len(experience), 1)
        shares = np.array_split(np.arange(len(experience)), c.minibatches)
        sums, start = [], 0
        microbatches = []
        for share in shares:
            part = whole if len(share) == len(experience) else collate([experience[i] for i in share])
            stop = start + len(part.indices.token_row)
            microbatches.append(self._microbatches(part, advantage[start:stop], state))
            start = stop
        for batches in microbatches:
            if batches:
                state, on_device = self._learner.update(state, batches)
                # Later minibatches are off-policy by design: only the first tells how sampler and learner agree.
                sums.append({name: value for name, value in on_device.items() if not (sums and name.startswith("off_policy/"))})
        metrics["skipped"] = float(len(shares) - len(sums))
        metrics["device"] = sums
        return state, metrics

    def _microbatches(self, part: Collated, advantage: np.ndarray, state: TrainState) -> list[PolicyGradientBatch]:
        """Packed microbatches of equal shape. Rows whose every loss is exactly 0 are left out; their weights still count."""
        c, indices = self._config, part.indices
        weight = c.aggregation(indices)
        useful = np.zeros(len(part.rows), bool)
        useful[indices.token_row[advantage != 0]] = True
        if c.kl_coefficient:
            useful[:] = True
        if not useful.any():
            return []
        keep = useful[indices.token_row]
        renumber = np.cumsum(useful) - 1
        at = renumber[indices.token_row[keep]], indices.token_position[keep]
        layout = self._pack([row for row, used in zip(part.rows, useful) if used])
        batch = layout.batch(layout.scatter(weight[keep], *at))
        proximal = batch.sampler_logp if not c.rescore else self.score(state.params, batch)
        reference = self.score(state.extra, batch) if c.kl_coefficient else np.zeros_like(batch.weight)
        full = PolicyGradientBatch(batch=batch, advantage=layout.scatter(advantage[keep], *at), proximal_logp=proximal, ref_logp=reference)
        return split(full, self._microbatch)

    def _pack(self, rows: list[Row]) -> Layout:
        c = self._config
        if not c.sharing.prompt:
            return pack(rows, c.bin_length, self._microbatch)
        return pack_branches(rows, c.sharing.prompt, c.bin_length, c.sharing.rows, self._microbatch)

    def score(self, params: Params, batch: Batch) -> np.ndarray:
        """Log-probs [bins, length] of a packed batch, one microbatch at a time."""
        return np.concatenate([jax.device_get(self._learner.score(params, part)[0]) for part in split(batch, self._microbatch)])
