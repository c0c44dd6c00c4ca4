"""Token values, Q over the vocabulary and V, as a learner's model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from agentrl_jax.learner.chunked_logp import map_over_vocabulary
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.target_network import soft_update
from agentrl_jax.policy import Params, Policy, PolicyOutput, TokenCritic


@runtime_checkable
class PolicyWithValues(Protocol):
    """A policy that carries values: parameters `policy`, `values` (`trunk`, `q`, `v`) and `target`
    (`trunk`, `q`).
    """

    policy: Policy
    q: TokenCritic  # k copies, [k, *shape, V]
    v: TokenCritic

    @property
    def vocab_size(self) -> int: ...

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def trainable(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class TrainableValues:
    """A `PolicyWithValues` as a `Learner`'s model, of which only the values are trained."""

    policy: PolicyWithValues

    def init(self, key: Key[Array, ""]) -> Params:
        return self.policy.init(key)

    def axes(self) -> Any:
        return self.policy.axes()

    def trainable(self) -> Any:
        frozen = jax.tree.map(lambda _: False, self.policy.trainable())
        return {**frozen, "values": jax.tree.map(lambda _: True, frozen["values"])}

    def update_target(self, params: Params, rate: float) -> Params:
        """`target += rate (values - target)`, of trunk and Q heads."""
        values = {name: params["values"][name] for name in ("trunk", "q")}
        return {**params, "target": soft_update(params["target"], values, rate)}

    def forward(
        self, params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """The arrays of `forward_targets`, then Q_k of each token, then log-sum-exp of each Q_k
        over the vocabulary, all [B, T].
        """
        outputs, trunk = self._value_outputs(params, batch, key)
        q = params["values"]["q"]
        count = jax.eval_shape(lambda: self.policy.q.apply(q, trunk.hidden[:1, :1])).shape[0]
        reduced = self._reduce_over_vocabulary(
            2 * count, _chosen_q_and_logsumexp, q, batch, trunk.hidden
        )
        return (*outputs, *reduced), trunk.aux

    def forward_targets(
        self, params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """V before and after each token and its min_k Qbar_k, all [B, T]: the fields of
        `TokenValueReadout`.
        """
        outputs, trunk = self._value_outputs(params, batch, key)
        return outputs, trunk.aux

    def _value_outputs(
        self, params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], PolicyOutput]:
        values, target = params["values"], params["target"]
        trunk = self.policy.policy.apply(values["trunk"], batch.inputs, key=key)
        target_trunk = self.policy.policy.apply(target["trunk"], batch.inputs)
        next_v = self.policy.v.apply(values["v"], trunk.hidden)
        (min_target_q,) = self._reduce_over_vocabulary(
            1, _min_chosen_q, target["q"], batch, target_trunk.hidden
        )
        return (jnp.pad(next_v[:, :-1], ((0, 0), (1, 0))), next_v, min_target_q), trunk

    def _reduce_over_vocabulary(
        self,
        num_outputs: int,
        reduce: Callable[..., tuple[Array, ...]],
        params: Params,
        batch: Batch,
        hidden: Array,
    ) -> tuple[Array, ...]:
        """`reduce(Q [k, N, V], Q of the tokens [k, N])`, some tokens at a time."""

        def of_token(
            params: Params, hidden: Array, token: Array, temperature: Array
        ) -> tuple[Array, ...]:
            q = self.policy.q.apply(params, hidden)  # [k, N, V]
            is_token = jax.lax.broadcasted_iota(jnp.int32, q.shape, 2) == token[None, :, None]
            return reduce(q, jnp.sum(jnp.where(is_token, q, 0.0), axis=-1))

        return map_over_vocabulary(
            of_token, num_outputs, self.policy.vocab_size, params, batch, hidden
        )


def _chosen_q_and_logsumexp(q: Array, chosen_q: Array) -> tuple[Array, ...]:
    return (*chosen_q, *jax.nn.logsumexp(q, axis=-1))


def _min_chosen_q(q: Array, chosen_q: Array) -> tuple[Array, ...]:
    return (jnp.min(chosen_q, axis=0),)
