"""A policy steered by token values: the decoding of ILQL and Monte-Carlo returns (arXiv:2206.11871; LMRL-Gym, arXiv:2311.18232)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import Copies, Head, HeadConfig
from agentrl_jax.policy import Cache, Inputs, Output, Params, Policy
from agentrl_jax.sharding import is_names


@dataclasses.dataclass
class SteeredConfig:
    """A decoder, and beside it another trunk of the same shape with Q heads over the vocabulary and a V head.

    logits = logits of the decoder + beta min_k Qbar_k, where Qbar is the slowly moving copy of trunk and Q heads. Q heads that start
    at one value for all tokens, as by default, change nothing, so the decoder is fine-tuned as if it were alone.
    """

    policy: DecoderConfig = dataclasses.field(default_factory=DecoderConfig)
    q: HeadConfig = dataclasses.field(default_factory=HeadConfig)
    v: HeadConfig = dataclasses.field(default_factory=HeadConfig)
    twins: int = 2  # Q heads; 1 for Monte-Carlo returns
    beta: float = 1.0  # an inference-time knob: powers of two from 1 to 128 were swept on Wordle

    def build(self, vocab_size: int) -> "Steered":
        """The policy over `vocab_size` tokens.

        Raises:
            UserError: a value makes no sense.
        """
        if self.beta < 0:
            raise UserError(f"beta is at least 0, not {self.beta}")
        width = self.policy.width
        twins = Copies(self.q.build(width, vocab_size), self.twins)
        return Steered(self.policy.build(vocab_size), twins, self.v.build(width), float(self.beta))

    def start(self, policy: Policy, key: Key[Array, ""], mesh: Mesh) -> Params:
        """Fresh parameters."""
        return policy.init(key)


@dataclasses.dataclass(frozen=True, eq=False)
class Steered:
    """The `Policy` of a `SteeredConfig`; made by its `build`.

    Parameters: `policy`; `values` (`trunk`, `q`, `v`), which value methods train; `target` (`trunk`, `q`), which decoding reads. As a
    policy only `policy` is trained.
    """

    policy: Policy
    q: Copies
    v: Head
    beta: float

    @property
    def vocab_size(self) -> int:
        return self.policy.vocab_size

    @property
    def branches(self) -> bool:
        return getattr(self.policy, "branches", False)

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters; the values' trunk is the policy's, the target a copy of the values."""
        first, second, third = jax.random.split(key, 3)
        policy, q = self.policy.init(first), self.q.init(second)
        values = {"trunk": jax.tree.map(jnp.copy, policy), "q": q, "v": self.v.init(third)}
        return {"policy": policy, "values": values, "target": jax.tree.map(jnp.copy, {"trunk": policy, "q": q})}

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        trunk, q = self.policy.axes(), self.q.axes()
        return {"policy": trunk, "values": {"trunk": trunk, "q": q, "v": self.v.axes()}, "target": {"trunk": trunk, "q": q}}

    def trainable(self) -> Any:
        """The policy's own; no value."""
        none = jax.tree.map(lambda _: False, self.axes(), is_leaf=is_names)
        return {**none, "policy": self.policy.trainable()}

    def apply(self, params: Params, inputs: Inputs, cache: Cache | None = None, key: Key[Array, ""] | None = None) -> Output:
        """Final hidden states of the policy and of the target's trunk, side by side: [B, T, 2 D]. A cache holds both, layer by layer."""
        caches = (None, None) if cache is None else _halves(cache)
        own = self.policy.apply(params["policy"], inputs, caches[0], key)
        beside = self.policy.apply(params["target"]["trunk"], inputs, caches[1])
        hidden = jnp.concatenate([own.hidden, jax.lax.stop_gradient(beside.hidden)], axis=-1)
        return Output(hidden=hidden, cache=_joined(own.cache, beside.cache), aux=own.aux)

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """logits of the policy + beta min_k Qbar_k, float32."""
        own, beside = jnp.split(hidden, 2, axis=-1)
        least = jnp.min(self.q.apply(params["target"]["q"], beside), axis=0)
        return self.policy.logits(params["policy"], own) + self.beta * jax.lax.stop_gradient(least)

    def init_cache(self, rows: int, positions: int) -> Cache:
        """An empty cache of both trunks."""
        both = self.policy.init_cache(rows, positions), self.policy.init_cache(rows, positions)
        return Cache(keys=both[0].keys + both[1].keys, values=both[0].values + both[1].values)

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree a layer, without those that decoding does not read."""
        target = params["target"]
        return {"policy": self.policy.unstack(params["policy"]), "target": {**target, "trunk": self.policy.unstack(target["trunk"])}}


def _halves(cache: Cache) -> tuple[Cache, Cache]:
    layers = len(cache.keys) // 2
    first, second = (Cache(keys=cache.keys[at], values=cache.values[at], span=cache.span) for at in (slice(layers), slice(layers, None)))
    return first, second


def _joined(first: Cache | None, second: Cache | None) -> Cache | None:
    if first is None or second is None:
        return None
    return Cache(keys=first.keys + second.keys, values=first.values + second.values, span=first.span)
