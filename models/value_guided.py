"""Value-guided decoding: a policy whose logits are shifted by token values, for ILQL and
Monte-Carlo returns (arXiv:2206.11871; LMRL-Gym, arXiv:2311.18232).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.distributed.sharding import is_logical_axes
from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import CriticEnsemble, Head, HeadConfig
from agentrl_jax.policy import KVCache, Params, Policy, PolicyInputs, PolicyOutput


@dataclasses.dataclass
class ValueGuidedConfig:
    """A decoder, and another trunk of the same shape with Q heads over the vocabulary and a V head.

    logits = logits of the decoder + beta min_k Qbar_k, where Qbar is the target network of trunk
    and Q heads. Q heads that start at one value for all tokens, as by default, leave the
    distribution unchanged, so the decoder is fine-tuned as if it were alone.
    """

    policy: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    q: HeadConfig = dataclasses.field(default_factory=HeadConfig)
    v: HeadConfig = dataclasses.field(default_factory=HeadConfig)
    num_q_heads: int = 2  # 1 for Monte-Carlo returns
    beta: float = 1.0  # of sampling only: powers of two from 1 to 128 were swept on Wordle

    def build(self, vocab_size: int) -> "ValueGuidedPolicy":
        """The policy over `vocab_size` tokens.

        Raises:
            UserError: a value makes no sense.
        """
        if self.beta < 0:
            raise UserError(f"beta is at least 0, not {self.beta}")
        width = self.policy.width
        twins = CriticEnsemble(self.q.build(width, vocab_size), self.num_q_heads)
        return ValueGuidedPolicy(
            self.policy.build(vocab_size), twins, self.v.build(width), float(self.beta)
        )

    def initial_params(self, policy: Policy, key: Key[Array, ""], mesh: Mesh) -> Params:
        """Fresh parameters."""
        return policy.init(key)


@dataclasses.dataclass(frozen=True, eq=False)
class ValueGuidedPolicy:
    """The `Policy` of a `ValueGuidedConfig`; made by its `build`.

    Parameters: `policy`; `values` (`trunk`, `q`, `v`), which value methods train; `target`
    (`trunk`, `q`), which decoding reads. As a policy only `policy` is trained.
    """

    policy: Policy
    q: CriticEnsemble
    v: Head
    beta: float

    @property
    def vocab_size(self) -> int:
        return self.policy.vocab_size

    @property
    def supports_branches(self) -> bool:
        return self.policy.supports_branches

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters; the values' trunk equals the policy's, the target equals the values."""
        first, second, third = jax.random.split(key, 3)
        policy, q = self.policy.init(first), self.q.init(second)
        values = {"trunk": jax.tree.map(jnp.copy, policy), "q": q, "v": self.v.init(third)}
        return {
            "policy": policy,
            "values": values,
            "target": jax.tree.map(jnp.copy, {"trunk": policy, "q": q}),
        }

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        trunk, q = self.policy.axes(), self.q.axes()
        return {
            "policy": trunk,
            "values": {"trunk": trunk, "q": q, "v": self.v.axes()},
            "target": {"trunk": trunk, "q": q},
        }

    def trainable(self) -> Any:
        """The policy's weights; not the values."""
        frozen = jax.tree.map(lambda _: False, self.axes(), is_leaf=is_logical_axes)
        return {**frozen, "policy": self.policy.trainable()}

    def apply(
        self,
        params: Params,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Key[Array, ""] | None = None,
    ) -> PolicyOutput:
        """Final hidden states of the policy and of the target's trunk, concatenated: [B, T, 2 D]. A
        cache holds both, layer by layer.
        """
        caches = (None, None) if cache is None else _split_cache(cache)
        policy = self.policy.apply(params["policy"], inputs, caches[0], key)
        target = self.policy.apply(params["target"]["trunk"], inputs, caches[1])
        hidden = jnp.concatenate([policy.hidden, jax.lax.stop_gradient(target.hidden)], axis=-1)
        joined = _join_caches(policy.cache, target.cache)
        return PolicyOutput(hidden=hidden, cache=joined, aux=policy.aux)

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """logits of the policy + beta min_k Qbar_k, float32."""
        policy_hidden, target_hidden = jnp.split(hidden, 2, axis=-1)
        min_q = jnp.min(self.q.apply(params["target"]["q"], target_hidden), axis=0)
        logits = self.policy.logits(params["policy"], policy_hidden)
        return logits + self.beta * jax.lax.stop_gradient(min_q)

    def init_cache(self, rows: int, positions: int) -> KVCache:
        """An empty cache of both trunks."""
        policy = self.policy.init_cache(rows, positions)
        target = self.policy.init_cache(rows, positions)
        return KVCache(keys=policy.keys + target.keys, values=policy.values + target.values)

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree a layer, without those that decoding does not read."""
        target = params["target"]
        return {
            "policy": self.policy.unstack(params["policy"]),
            "target": {**target, "trunk": self.policy.unstack(target["trunk"])},
        }


def _split_cache(cache: KVCache) -> tuple[KVCache, KVCache]:
    layers = len(cache.keys) // 2
    first, second = (
        KVCache(
            keys=cache.keys[part],
            values=cache.values[part],
            attention_length=cache.attention_length,
        )
        for part in (slice(layers), slice(layers, None))
    )
    return first, second


def _join_caches(first: KVCache | None, second: KVCache | None) -> KVCache | None:
    if first is None or second is None:
        return None
    return KVCache(
        keys=first.keys + second.keys,
        values=first.values + second.values,
        attention_length=first.attention_length,
    )
