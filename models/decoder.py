"""A decoder-only transformer described by a config: Llama, Mistral, Qwen and Gemma are values of
one `DecoderConfig`.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.distributed.sharding import is_logical_axes, platform
from agentrl_jax.errors import UserError
from agentrl_jax.models.attention import cache_slots
from agentrl_jax.models.decoder_architecture import (
    DecoderArchitecture,
    attention_kinds,
    check_config,
    layer_stacks,
)
from agentrl_jax.models.decoder_network import (
    DecoderBlock,
    DecoderNetwork,
    added_features,
    cached_attention_inputs,
    embed_tokens,
)
from agentrl_jax.models.layers import RMSNorm, head_product, soft_cap
from agentrl_jax.models.parameters import apply, init_params, logical_axes
from agentrl_jax.policy import KVCache, Params, Policy, PolicyInputs, PolicyOutput

# The head of unstacked weights on a CPU, [D, V]: a product of few rows with a table [V, D] would
# transpose the table at every step.
TRANSPOSED_HEAD = "readout"


@dataclasses.dataclass
class DecoderConfig(DecoderArchitecture):
    """A decoder as the policy of an experiment; its fields are those of `DecoderArchitecture`."""

    def build(self, vocab_size: int) -> "Decoder":
        """The policy over `vocab_size` tokens; a later change of this config does not reach it.

        Raises:
            UserError: a value makes no sense.
        """
        check_config(self, vocab_size)
        return Decoder(dataclasses.replace(self), vocab_size)

    def initial_params(self, policy: Policy, key: Key[Array, ""], mesh: Mesh) -> Params:
        """Fresh parameters."""
        return policy.init(key)


def parameter_count(config: DecoderConfig, vocab_size: int) -> int:
    """The number of parameters that `init` returns; nothing is allocated."""
    shapes = jax.eval_shape(config.build(vocab_size).init, jax.random.key(0))
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


@dataclasses.dataclass(frozen=True)
class HFOrigin:
    """The contents of a Hugging Face folder other than weights, to be written back when the decoder
    is saved.
    """

    config: dict[str, Any]
    files: dict[str, bytes]  # tokenizer, chat template, generation defaults


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder:
    """The `Policy` of a `DecoderConfig`; made by its `build`.

    Stacked parameters have one tree for each of `layer_stacks`, with a leading axis L on its
    arrays; unstacked ones a tuple of all layers' trees under `layers`.
    """

    config: DecoderConfig
    vocab_size: int
    origin: HFOrigin | None = None  # the folder that the weights came from, if any
    supports_branches = True  # see `Policy`

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, layers stacked."""
        return init_params(self._network, key, _one_token())

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        return logical_axes(self._network, _one_token())

    def trainable(self) -> Any:
        """True for every weight."""
        return jax.tree.map(lambda _: True, self.axes(), is_leaf=is_logical_axes)

    def apply(
        self,
        params: Params,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Key[Array, ""] | None = None,
        adapters: Any = None,
    ) -> PolicyOutput:
        """Final hidden states, normed. With a cache, `params` are those of `unstack`, and the new
        keys and values are written.

        Args:
            key: drops out some of the adapters' inputs; None: dropout is off.
            adapters: a tree of the shape of `params` with low-rank additions for some of the
                weights.

        Raises:
            UserError: `rope_positions` are given and the rope has no sections.
        """
        if cache is not None:
            return self._apply_cached(params, inputs, cache, adapters)
        hidden, aux = apply(self._network, params, inputs, adapters=adapters, key=key)
        balanced = self.config.experts is not None and self.config.experts.balance > 0
        return PolicyOutput(hidden=hidden, aux=aux if balanced else None)

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """Unnormalized log-probs in float32; takes stacked and unstacked parameters."""
        if TRANSPOSED_HEAD in params:
            logits = jnp.einsum(
                "...D,DV->...V",
                hidden,
                params[TRANSPOSED_HEAD].astype(hidden.dtype),
                preferred_element_type=jnp.float32,
            )
        else:
            table = params["embedding" if self.config.tied_head else "head"].astype(hidden.dtype)
            logits = head_product(hidden, table)
        return soft_cap(logits, self.config.logit_cap)

    def init_cache(self, rows: int, positions: int) -> KVCache:
        """An empty cache of the compute dtype.

        Raises:
            UserError: more positions than `max_positions`.
        """
        c = self.config
        if positions > c.max_positions:
            raise UserError(
                f"a cache of {positions} positions is longer than the {c.max_positions} "
                "that the model was made for"
            )
        shape, dtype = (rows, c.kv_heads, positions, c.head_size), jnp.dtype(c.compute_dtype)
        keys, values = (tuple(jnp.zeros(shape, dtype) for _ in range(c.layers)) for _ in range(2))
        return KVCache(keys=keys, values=values)

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree a layer, as an engine holds them. On a CPU the head is
        transposed, see `TRANSPOSED_HEAD`.
        """
        stacks = layer_stacks(self.config)
        layers = tuple(
            jax.tree.map(lambda x, i=i: x[i], params[stack.name])
            for stack in stacks
            for i in range(stack.layers)
        )
        rest = {k: x for k, x in params.items() if k not in {stack.name for stack in stacks}}
        head = "embedding" if self.config.tied_head else "head"
        if platform() == "cpu" and head in rest:  # else these are adapters of the layers
            rest[TRANSPOSED_HEAD] = (rest[head] if self.config.tied_head else rest.pop(head)).T
        return rest | {"layers": layers}

    @property
    def _network(self) -> DecoderNetwork:
        return DecoderNetwork(self.config, self.vocab_size)

    def _apply_cached(
        self, params: Params, inputs: PolicyInputs, cache: KVCache, adapters: Any
    ) -> PolicyOutput:
        c = self.config
        size = cache.keys[0].shape[2]
        slots = cache_slots(jnp.asarray(inputs.positions), jnp.asarray(inputs.segment_ids), size)
        kinds, kind_of_layer = attention_kinds(c)
        inputs_by_kind = tuple(
            cached_attention_inputs(c, inputs, size, *kind, slots, cache.attention_length or size)
            for kind in kinds
        )
        sparse = [stack.sparse for stack in layer_stacks(c) for _ in range(stack.layers)]
        x, updated = embed_tokens(c, params["embedding"], inputs), []
        added = added_features(c, inputs)
        for i, (layer, *old) in enumerate(zip(params["layers"], cache.keys, cache.values)):
            x, (new, _) = apply(
                DecoderBlock(c, sparse[i]),
                layer,
                x,
                (i, kind_of_layer[i]),
                inputs_by_kind,
                added if added is not None and i < len(added) else None,
                tuple(old),
                adapters=adapters["layers"][i] if adapters else None,
            )
            updated.append(new)
        norm = RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset)
        keys, values = zip(*updated)
        return PolicyOutput(
            hidden=apply(norm, params["final_norm"], x),
            cache=KVCache(keys=keys, values=values, attention_length=cache.attention_length),
        )


def _one_token() -> PolicyInputs:
    """A batch of one token, with which the network's weights are declared."""
    token = np.zeros((1, 1), np.int32)
    return PolicyInputs(tokens=token, positions=token, segment_ids=token + 1)
