"""Supervised fine-tuning: maximum likelihood of demonstrated actions (behavior cloning)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.losses.policy import negative_log_likelihood
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.learner.batch_invariants import packed_rows, trained_tokens
from agentrl_jax.learner.data_shards import agree_on_layout
from agentrl_jax.learner.global_batch import gather_groups
from agentrl_jax.learner.image_rows import ImageRows, make_image_packer
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import Batch, pack, split_bins
from agentrl_jax.learner.sequences import TokenIndex, collate
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group


@pytree_dataclass
class BehaviorCloningBatch:
    batch: Batch


@dataclass
class BehaviorCloningConfig:
    """Cross entropy on action tokens only, the stop token included."""

    aggregation: Callable[[TokenIndex], np.ndarray] = token_mean
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256
    microbatch: int = 32
    # of a policy that sees; None: demonstrations with images are refused
    images: ImageRows | None = field(default=None, metadata=OMITTED_AT_DEFAULT)

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "BehaviorCloning":
        return BehaviorCloning(self, policy, mesh, steps)


class BehaviorCloning(Algorithm):
    """Implements `Algorithm`."""

    def __init__(
        self, config: BehaviorCloningConfig, policy: Policy, mesh: Mesh, steps: int
    ) -> None:
        self._config = config
        self._learner = Learner(policy, config.optimizer.build(steps), self._loss, mesh)
        self._images = make_image_packer(config.images, policy)
        self._bins_per_microbatch = self._learner.data_shard.num_local_rows(config.microbatch)

    def init(self, key: Array, params: Params) -> TrainState:
        return self._learner.init(key, params)

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def _loss(
        self, logp: Array, entropy: Array, batch: BehaviorCloningBatch
    ) -> tuple[Array, dict[str, Array]]:
        return negative_log_likelihood(logp), {"entropy": entropy}

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        if self._images is not None:
            self._images.load(state.params)
        collated, process_group = collate(experience), runtime.process_group
        index, bins = collated.token_index, self._bins_per_microbatch
        gathered = gather_groups(process_group, index, len(experience))
        layout = agree_on_layout(
            process_group,
            self._learner.data_shard,
            pack(collated.sequences, self._config.bin_length, bins, self._images),
            bins,
        )
        if layout is None:  # all episodes were dropped, or a search solved no task
            return state, {"skipped": 1.0, "tokens": 0.0, "device": []}
        weight = self._config.aggregation(gathered.token_index)[gathered.local_token_mask]
        packed_weight = layout.scatter(weight, index.token_sequence, index.token_position)
        batch = BehaviorCloningBatch(batch=layout.to_batch(packed_weight))
        microbatches = split_bins(batch, bins)
        runtime.invariants.check(trained_tokens, experience, collated)
        runtime.invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        state, metrics = self._learner.update(state, microbatches)
        return state, {"tokens": float(len(gathered.local_token_mask)), "device": [metrics]}
