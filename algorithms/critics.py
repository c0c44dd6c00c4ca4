"""A critic of tokens beside the policy: a trunk and a value head with weights, an optimizer and updates of their own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.regularisers import value_loss
from agentrl_jax.batch import Batch
from agentrl_jax.learner import Learner
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Critic, Inputs, Params, Policy
from agentrl_jax.record import AnyArray, record
from agentrl_jax.rows import Indices


@runtime_checkable
class HeadMaker(Protocol):
    """A config of a critic's head."""

    def build(self, width: int) -> Critic:
        """The head on hidden states of a width."""
        ...


@record
class CriticBatch:
    """What the value loss reads beside the batch, all [B, T]."""

    batch: Batch
    target: Float[AnyArray, "B T"]
    proximal_value: Float[AnyArray, "B T"]


@dataclass
class CriticConfig:
    """V of the state that each token is written in, regressed on the targets of the advantage estimator."""

    head: HeadMaker  # `models.heads.HeadConfig`
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    clip: float = 0.2  # how far a value may move from what it was before the step's updates; inf: not held
    aggregation: Callable[[Indices], np.ndarray] = token_mean
    warmup: int = 0  # first steps, in which the critic learns and the policy stays as it is
    fresh: bool = False  # the trunk starts from weights of its own; off: from the policy's

    def model(self, policy: Policy) -> "ValueModel":
        shapes = jax.eval_shape(policy.init, jax.random.key(0))
        one = np.ones((1, 1), np.int32)
        hidden = jax.eval_shape(lambda p: policy.apply(p, Inputs(tokens=one, positions=one - 1, segment_ids=one)).hidden, shapes)
        return ValueModel(policy, self.head.build(hidden.shape[-1]))

    def learner(self, model: "ValueModel", mesh: Mesh, steps: int) -> Learner:
        return Learner(model, self.optimizer.build(steps), self._loss, mesh, model.read)

    def _loss(self, value: Array, batch: CriticBatch) -> tuple[Array, dict[str, Array]]:
        loss = value_loss(value, jnp.asarray(batch.proximal_value), jnp.asarray(batch.target), clip=self.clip)
        return loss, {"value_loss": loss, "value": value}


@dataclass(frozen=True, eq=False)
class ValueModel:
    """A policy's trunk with a head on it: what a `Learner` trains."""

    trunk: Policy
    head: Critic

    def init(self, key: Key[Array, ""]) -> Params:
        first, second = jax.random.split(key)
        return {"trunk": self.trunk.init(first), "head": self.head.init(second)}

    def around(self, params: Params, key: Key[Array, ""]) -> Params:
        """A fresh head on a policy's weights."""
        return {"trunk": params, "head": self.head.init(key)}

    def axes(self) -> Any:
        return {"trunk": self.trunk.axes(), "head": self.head.axes()}

    def trainable(self) -> Any:
        head = jax.eval_shape(self.head.init, jax.random.key(0))
        return {"trunk": self.trunk.trainable(), "head": jax.tree.map(lambda _: True, head)}

    def read(self, params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Array | None]:
        """V [B, T] of the state before each token, 0 in the first column."""
        (value,), aux = self.scores(params, batch, key)
        return (jnp.pad(value[:, :-1], ((0, 0), (1, 0))),), aux

    def scores(self, params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Array | None]:
        """V [B, T] of the state after each token."""
        output = self.trunk.apply(params["trunk"], batch.inputs, key=key)
        return (self.head.apply(params["head"], output.hidden),), output.aux


def turn_starts(indices: Indices) -> np.ndarray:
    """Mean over turns of their first tokens alone: for estimators that ask for one value a turn (`TurnGAE`)."""
    first = np.diff(indices.token_turn, prepend=-1) != 0
    return first / max(int(first.sum()), 1)


def explained_variance(value: np.ndarray, target: np.ndarray) -> float:
    """1 - Var(target - V) / Var(target); 0 for targets that are all equal."""
    spread = float(np.var(target)) if len(target) else 0.0
    return 1.0 - float(np.var(target - value)) / spread if spread > 0 else 0.0
