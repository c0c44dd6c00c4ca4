"""The token critic: a trunk and a value head with weights, an optimizer and updates separate from
the policy's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.losses.value import value_loss
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.sequences import TokenIndex
from agentrl_jax.policy import Params, Policy, PolicyInputs, TokenCritic
from agentrl_jax.pytree import AnyArray, pytree_dataclass


@runtime_checkable
class CriticHeadConfig(Protocol):
    """The config of a critic's head."""

    def build(self, width: int) -> TokenCritic:
        """The head for hidden states of a width."""
        ...


@pytree_dataclass
class CriticBatch:
    """What the value loss reads in addition to the batch, all [B, T]."""

    batch: Batch
    target: Float[AnyArray, "B T"]
    proximal_value: Float[AnyArray, "B T"]


@dataclass
class CriticConfig:
    """V of the state before each token, regressed on the targets of the advantage estimator."""

    head: CriticHeadConfig  # `models.heads.HeadConfig`
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    clip: float = 0.2  # of a value around that from before the step's updates; inf: no clip
    aggregation: Callable[[TokenIndex], np.ndarray] = token_mean
    warmup_steps: int = 0  # first steps, in which only the critic is updated
    fresh_trunk: bool = False  # initialize the trunk at random; off: from the policy's weights

    def build_model(self, policy: Policy) -> "ValueModel":
        shapes = jax.eval_shape(policy.init, jax.random.key(0))
        token = np.ones((1, 1), np.int32)
        inputs = PolicyInputs(tokens=token, positions=token - 1, segment_ids=token)
        hidden = jax.eval_shape(lambda params: policy.apply(params, inputs).hidden, shapes)
        return ValueModel(policy, self.head.build(hidden.shape[-1]))

    def build_learner(self, model: "ValueModel", mesh: Mesh, steps: int) -> Learner:
        return Learner(
            model, self.optimizer.build(steps), self._loss, mesh, model.values_before_tokens
        )

    def _loss(self, value: Array, batch: CriticBatch) -> tuple[Array, dict[str, Array]]:
        loss = value_loss(
            value, jnp.asarray(batch.proximal_value), jnp.asarray(batch.target), clip=self.clip
        )
        return loss, {"value_loss": loss, "value": value}


@dataclass(frozen=True, eq=False)
class ValueModel:
    """A policy's trunk with a value head: the model of the critic's `Learner`."""

    trunk: Policy
    head: TokenCritic

    def init(self, key: Key[Array, ""]) -> Params:
        first, second = jax.random.split(key)
        return {"trunk": self.trunk.init(first), "head": self.head.init(second)}

    def init_from_policy(self, params: Params, key: Key[Array, ""]) -> Params:
        """A fresh head on a policy's weights."""
        return {"trunk": params, "head": self.head.init(key)}

    def axes(self) -> Any:
        return {"trunk": self.trunk.axes(), "head": self.head.axes()}

    def trainable(self) -> Any:
        head = jax.eval_shape(self.head.init, jax.random.key(0))
        return {"trunk": self.trunk.trainable(), "head": jax.tree.map(lambda _: True, head)}

    def values_before_tokens(
        self, params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """V of the state before each token, [B, T]; 0 in the first column."""
        (value,), aux = self.values_after_tokens(params, batch, key)
        return (jnp.pad(value[:, :-1], ((0, 0), (1, 0))),), aux

    def values_after_tokens(
        self, params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """V of the state after each token, [B, T]."""
        output = self.trunk.apply(params["trunk"], batch.inputs, key=key)
        return (self.head.apply(params["head"], output.hidden),), output.aux


def first_token_mean(indices: TokenIndex) -> np.ndarray:
    """Mean over turns of their first tokens alone: for estimators that read one value per turn
    (`TurnGAE`).
    """
    first = np.diff(indices.token_turn, prepend=-1) != 0
    return first / first.sum()


def explained_variance(value: np.ndarray, target: np.ndarray) -> float:
    """1 - Var(target - V) / Var(target); 0 where all targets are equal."""
    if not len(target):
        return 0.0
    spread = float(np.var(target))
    return 1.0 - float(np.var(target - value)) / spread if spread > 0 else 0.0
