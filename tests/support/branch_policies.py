"""A policy and a tabular joint critic that read rows with branches, by a mask of their own."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from support.credit_tables import VOCAB_SIZE, MarkovPolicy
from support.fixtures import MeanEmbeddingPolicy

from agentrl_jax.policy import KVCache, PolicyInputs, PolicyOutput


def tokens_before(inputs: PolicyInputs) -> Array:
    """Whether column s of a row holds an earlier token of the text that column t is in, bool [B, T,
    T].
    """
    positions, segments = jnp.asarray(inputs.positions), jnp.asarray(inputs.segment_ids)
    columns = np.arange(positions.shape[1])
    earlier = (segments[:, :, None] == segments[:, None]) & (
        positions[:, None] < positions[:, :, None]
    )
    if not inputs.branch_length:
        return earlier
    assert inputs.inner_branches
    branch = np.maximum((columns - inputs.prefix_length) // inputs.branch_length, -1)
    first = np.maximum(inputs.prefix_length + branch * inputs.branch_length, 0)
    starts = jnp.where((branch < 0)[None], positions.shape[1], positions[:, first])
    from_prefix = (branch == -1)[None, None] & (positions[:, None] < starts[:, :, None])
    own_tokens = (branch[:, None] == branch)[None]
    return earlier & (own_tokens | from_prefix)


@dataclasses.dataclass(frozen=True)
class BranchingPolicy(MeanEmbeddingPolicy):
    """`MeanEmbeddingPolicy` for rows with branches."""

    supports_branches = True

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        before = tokens_before(inputs).astype(jnp.float32)
        seen = before + jnp.eye(before.shape[1])[None]
        share = seen / seen.sum(-1, keepdims=True)
        x = params["embedding"][inputs.tokens]
        mean = jnp.einsum("BTS,BSD,DH->BTH", share, x, params["kernel"])
        return PolicyOutput(hidden=x + jnp.tanh(mean))


@dataclasses.dataclass(frozen=True)
class BranchingMarkovPolicy(MarkovPolicy):
    """`MarkovPolicy`, whose logits need no attention."""

    supports_branches = True


@dataclasses.dataclass(frozen=True)
class TabularJointCritic:
    """Twin tables: Q by (last token of the state, first token of an utterance of two), V by the
    last token of the state.
    """

    def build(self, policy: Any) -> "TabularJointCritic":
        return self

    def initial_params(self, critic: Any, params: Any, key: Any) -> Any:
        return self.init(key)

    def init(self, key: Any) -> Any:
        first, second = jax.random.split(key)
        q = jax.random.normal(first, (2, VOCAB_SIZE, VOCAB_SIZE))
        return {"q": q, "v": jax.random.normal(second, (2, VOCAB_SIZE))}

    def axes(self) -> Any:
        return {"q": ("copies", "embed", None), "v": ("copies", None)}

    def trainable(self) -> Any:
        return {"q": True, "v": True}

    def read(self, params: Any, inputs: PolicyInputs, key: Any = None) -> tuple[Array, None]:
        """One-hot vectors of the token two positions before, of the one before, and of itself."""
        before, positions = tokens_before(inputs), jnp.asarray(inputs.positions)
        hot = jax.nn.one_hot(inputs.tokens, VOCAB_SIZE)
        parts = [hot]
        for distance in (1, 2):
            at = before & (positions[:, None] == positions[:, :, None] - distance)
            parts.append(jnp.einsum("BTS,BSV->BTV", at.astype(jnp.float32), hot))
        return jnp.concatenate(parts[::-1], axis=-1), None

    def q(self, params: Any, hidden: Any, columns: Any) -> Array:
        state, first, _ = self._at(hidden, columns)
        return jnp.einsum("brs,ksa,bra->kbr", state, params["q"], first)

    def v(self, params: Any, hidden: Any, columns: Any) -> Array:
        return jnp.einsum("brs,ks->kbr", self._at(hidden, columns)[2], params["v"])

    @staticmethod
    def _at(hidden: Any, columns: Any) -> list[Array]:
        columns = jnp.asarray(columns)
        x = jnp.take_along_axis(hidden, jnp.maximum(columns, 0)[..., None], axis=1)
        return jnp.split(jnp.where(columns[..., None] >= 0, x, 0.0), 3, axis=-1)
