"""Token values learned offline: Q over the vocabulary and V, by ILQL or by Monte-Carlo returns
(LMRL-Gym, arXiv 2311.18232).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.offline.token_value_targets import (
    ExpectileTarget,
    MonteCarloTarget,
    TokenValueReadout,
)
from agentrl_jax.algorithms.offline.token_values import PolicyWithValues, TrainableValues
from agentrl_jax.algorithms.policy_gradient.scoring import ScoringPass
from agentrl_jax.errors import UserError
from agentrl_jax.learner.batch_invariants import packed_rows, trained_tokens
from agentrl_jax.learner.data_shards import agree_on_layout
from agentrl_jax.learner.global_batch import gather_groups
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import Batch, pack, split_bins
from agentrl_jax.learner.sequences import TokenIndex, collate, make_credit_inputs
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.learner.unique_sequences import unique_sequences
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import AnyArray, pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group


@pytree_dataclass
class TokenValueBatch:
    """The inputs of the loss; the targets are [B, T]."""

    batch: Batch
    q_target: Float[AnyArray, "B T"]
    v_target: Float[AnyArray, "B T"]


@dataclass
class TokenValueTrainerConfig:
    """Mean over action tokens of sum_k (Q_k - y)^2 / 2 + w (V - z)^2 / 2 + `cql_weight` sum_k
    CE(softmax Q_k, token).

    w = tau where z >= V, else 1 - tau, with y and z of `target` (z = min_k Qbar_k for ILQL),
    without a gradient. After each update target += `polyak` (values - target). The policy itself is
    not trained: fine-tune it before, and guide its decoding by the values (`ValueGuidedConfig`).
    """

    target: ExpectileTarget | MonteCarloTarget
    cql_weight: float = 0.01  # CQL's weight
    polyak: float = 0.005
    aggregation: Callable[[TokenIndex], np.ndarray] = token_mean
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256
    microbatch: int = 32

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "TokenValueTrainer":
        if not isinstance(policy, PolicyWithValues):
            raise UserError(
                f"{type(policy).__name__} has no values to learn: "
                "make the policy a ValueGuidedConfig"
            )
        return TokenValueTrainer(self, policy, mesh, steps)


class TokenValueTrainer(Algorithm):
    """Implements `Algorithm`: targets of Q and V, an optimizer step, a target-network update."""

    def __init__(
        self, config: TokenValueTrainerConfig, policy: PolicyWithValues, mesh: Mesh, steps: int
    ) -> None:
        self._config = c = config
        if not 0 < c.polyak <= 1 or c.cql_weight < 0:
            raise UserError(
                f"polyak is in (0, 1] and cql_weight at least 0, not {c.polyak} and {c.cql_weight}"
            )
        model = TrainableValues(policy)
        self._learner = Learner(
            model,
            c.optimizer.build(steps),
            self._loss,
            mesh,
            model.forward,
            model.forward_targets,
        )
        self._bins_per_microbatch = self._learner.data_shard.num_local_rows(c.microbatch)
        self._target_update_program = jax.jit(
            functools.partial(model.update_target, rate=c.polyak), donate_argnums=0
        )

    def init(self, key: Array, params: Params) -> TrainState:
        """Both trunks start from the policy's weights."""
        trunk, q = params["policy"], params["values"]["q"]
        copies = {
            "values": {**params["values"], "trunk": trunk},
            "target": {"trunk": trunk, "q": q},
        }
        return self._learner.init(key, jax.tree.map(jnp.copy, {**params, **copies}))

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """Compute the targets of Q and V, take an optimizer step, update the target network."""
        c, process_group, collated = self._config, runtime.process_group, collate(experience)
        credit_inputs = make_credit_inputs(experience, collated)
        gathered = gather_groups(process_group, collated.token_index, len(experience))
        # sequences that a small environment repeats are computed once
        sequences, index = unique_sequences(collated.sequences)
        token_index = dataclasses.replace(
            collated.token_index, token_sequence=index[collated.token_index.token_sequence]
        )
        bins = self._bins_per_microbatch
        layout = agree_on_layout(
            process_group, self._learner.data_shard, pack(sequences, c.bin_length, bins), bins
        )
        if layout is None:
            return state, {"skipped": 1.0, "tokens": 0.0, "device": []}
        scoring = ScoringPass(layout, token_index, bins)
        target = c.target(
            credit_inputs,
            lambda: TokenValueReadout(*scoring.token_scores(self._learner, state.params)),
        )
        weight = c.aggregation(gathered.token_index)[gathered.local_token_mask]
        total, q_target, v_target = scatter_weighted_means(
            (layout.num_bins, layout.bin_length),
            layout.packed_coordinates(token_index.token_sequence, token_index.token_position),
            weight,
            target.q,
            target.q if target.v is None else target.v,
        )
        batch = TokenValueBatch(batch=layout.to_batch(total), q_target=q_target, v_target=v_target)
        microbatches = split_bins(batch, bins)
        runtime.invariants.check(trained_tokens, experience, collated)
        runtime.invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        state, metrics = self._learner.update(state, microbatches)
        state = dataclasses.replace(state, params=self._target_update_program(state.params))
        return state, {
            "skipped": 0.0,
            "tokens": float(len(gathered.local_token_mask)),
            "device": [metrics],
        }

    def _loss(
        self, v: Array, next_v: Array, min_target_q: Array, *values_and_batch: Any
    ) -> tuple[Array, dict[str, Array]]:
        """`values_and_batch`: each Q_k, log-sum-exp of each Q_k, the batch."""
        c, values, batch = self._config, values_and_batch[:-1], values_and_batch[-1]
        count = len(values) // 2
        q_target, v_target = jnp.asarray(batch.q_target), jnp.asarray(batch.v_target)
        q_error = [q - q_target for q in values[:count]]
        cross_entropy = [total - q for q, total in zip(values[:count], values[count:])]
        loss = jnp.sum(
            0.5 * jnp.stack(q_error) ** 2 + c.cql_weight * jnp.stack(cross_entropy), axis=0
        )
        metrics = {
            "q": values[0],
            "q_error": jnp.abs(q_error[0]),
            "cross_entropy": cross_entropy[0],
        }
        if isinstance(c.target, ExpectileTarget):
            v_error = v_target - v
            loss += 0.5 * jnp.where(v_error >= 0, c.target.tau, 1 - c.target.tau) * v_error**2
            metrics |= {"v": v, "v_error": jnp.abs(v_error)}
        return loss, metrics


def scatter_weighted_means(
    shape: tuple[int, int],
    coordinates: tuple[np.ndarray, np.ndarray],
    weight: np.ndarray,
    *values: np.ndarray,
) -> list[np.ndarray]:
    """At each coordinate the sum of weights, and the weighted mean of each of the values, float32:
    it has the gradient of the sum of squared errors.
    """

    def scatter_sum(numbers: np.ndarray) -> np.ndarray:
        out = np.zeros(shape)
        np.add.at(out, coordinates, numbers)
        return out

    total = scatter_sum(weight)
    means = [scatter_sum(weight * x) / np.where(total == 0, 1.0, total) for x in values]
    return [x.astype(np.float32) for x in (total, *means)]
