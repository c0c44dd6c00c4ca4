"""Supervised fine-tuning: maximum likelihood of demonstrated actions (behaviour cloning)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.losses import negative_log_likelihood
from agentrl_jax.batch import Batch, pack, split
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pooled import pooled
from agentrl_jax.record import record
from agentrl_jax.rows import Indices, collate
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import settle
from agentrl_jax.trajectories import Group


@record
class SupervisedBatch:
    batch: Batch


@dataclass
class SupervisedConfig:
    """Cross entropy on action tokens only, the stop token included."""

    aggregation: Callable[[Indices], np.ndarray] = token_mean
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256
    microbatch: int = 32

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Supervised":
        return Supervised(self, policy, mesh, steps)


class Supervised:
    """Implements `Algorithm`."""

    def __init__(self, config: SupervisedConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = config
        self._learner = Learner(policy, config.optimizer.build(steps), self._loss, mesh)
        self._rows = self._learner.share.rows(config.microbatch)

    def init(self, key: Array, params: Params) -> TrainState:
        return self._learner.init(key, params)

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def _loss(self, logp: Array, entropy: Array, batch: SupervisedBatch) -> tuple[Array, dict[str, Array]]:
        return negative_log_likelihood(logp), {"entropy": entropy}

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        part = collate(experience)
        everyone = pooled(runtime.hosts, part.indices, len(experience))
        layout = settle(runtime.hosts, self._learner.share, pack(part.rows, self._config.bin_length, self._rows), self._rows)
        assert layout is not None, "a batch of demonstrations has rows"
        weight = self._config.aggregation(everyone.indices)[everyone.mine]
        weight = layout.scatter(weight, part.indices.token_row, part.indices.token_position)
        state, on_device = self._learner.update(state, split(SupervisedBatch(batch=layout.batch(weight)), self._rows))
        return state, {"tokens": float(len(everyone.mine)), "device": [on_device]}
