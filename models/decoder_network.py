"""The network of a decoder: embedding, blocks, and the forward pass over whole rows."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from agentrl_jax.distributed.sharding import constrain
from agentrl_jax.errors import UserError
from agentrl_jax.models.attention import Attention, AttentionInputs
from agentrl_jax.models.decoder_architecture import (
    DecoderArchitecture,
    attention_kinds,
    layer_stacks,
)
from agentrl_jax.models.layers import GatedMLP, RMSNorm, embedding_lookup
from agentrl_jax.models.moe import Experts
from agentrl_jax.models.parameters import (
    Module,
    compact,
    fan_in,
    rematerialize,
    scan_layers,
    weight_with_adapter,
)
from agentrl_jax.models.rope import Rope, rotary_cos_sin, tabulated_rotary_cos_sin
from agentrl_jax.policy import PolicyInputs

# The index of a layer and that of its kind of attention: ints, or traced where layers are scanned.
LayerIndex = tuple[int | Int[Array, ""], int | Int[Array, ""]]


class DecoderBlock(Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    config: DecoderArchitecture
    sparse: bool = False

    def norm(self, name: str, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        c = self.config
        return RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset, name=name)(x)

    @compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        layer: LayerIndex,
        inputs_by_kind: tuple[AttentionInputs, ...],
        added: Float[Array, "k B T D"] | None = None,
        cache: tuple[Array, Array] | None = None,
    ) -> tuple[Float[Array, "B T D"], tuple[tuple[Array, Array] | None, Float[Array, ""]]]:
        """The next hidden states, this layer's cache, and the loss of its router.

        `added` are features that are added to the hidden states after the first k layers.
        """
        index, kind = layer
        c = self.config
        # keeps the residual stream's variance from growing with depth
        out_scale = (2 * c.layers) ** -0.5
        attention = Attention(
            c.heads,
            c.kv_heads,
            c.head_size,
            c.qk_norm,
            c.qkv_bias,
            c.out_bias,
            c.norm_eps,
            c.norm_offset,
            c.query_scale or c.head_size**-0.5,
            c.attention_cap,
            out_scale,
            c.param_dtype,
            name="attention",
        )
        y, cache = attention(self.norm("attention_norm", x), inputs_by_kind, kind, cache)
        x = x + (self.norm("attention_post_norm", y) if c.post_norms else y)
        y, aux = self.norm("mlp_norm", x), jnp.float32(0)
        if self.sparse:
            assert c.experts is not None
            experts = Experts(c.experts, c.activation, out_scale, c.param_dtype, name="mlp")
            y, aux = experts(y, inputs_by_kind[0].segment_ids != 0)
        else:
            mlp = GatedMLP(c.hidden, c.activation, c.mlp_bias, out_scale, c.param_dtype, name="mlp")
            y = mlp(y)
        x = x + (self.norm("mlp_post_norm", y) if c.post_norms else y)
        if added is not None:
            x = x + _features_after(added, index)
        return constrain(x, "rows", None, None), (cache, aux)


class DecoderNetwork(Module):
    """Every weight of the decoder, and its forward pass over whole rows with the blocks scanned."""

    config: DecoderArchitecture
    vocab_size: int

    @compact
    def __call__(self, inputs: PolicyInputs) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """Final hidden states, normed, and the mean auxiliary loss of all layers, dense ones 0."""
        c = self.config
        table = {"vocab": self.vocab_size, "embed": c.width}
        embedding = weight_with_adapter(self, "embedding", fan_in(c.width), table, c.param_dtype)
        if not c.tied_head:  # used by `Decoder.logits` alone
            weight_with_adapter(self, "head", fan_in(c.width), table, c.param_dtype)
        block = DecoderBlock
        if c.saved_activations is not None:
            block = rematerialize(DecoderBlock, c.saved_activations)
        kinds, kind_of_layer = attention_kinds(c)
        inputs_by_kind = tuple(attention_inputs(c, inputs, window, rope) for window, rope in kinds)
        x, losses = embed_tokens(c, embedding, inputs), []
        added = added_features(c, inputs)
        for stack in layer_stacks(c):
            stop = stack.start + stack.layers
            kind = jnp.asarray(kind_of_layer[stack.start : stop], jnp.int32)
            index = jnp.arange(stack.start, stop, dtype=jnp.int32)
            blocks = scan_layers(block, stack.layers, scanned=(True, False, False))
            blocks = blocks(c, stack.sparse, name=stack.name)
            x, (_, aux) = blocks(x, (index, kind), inputs_by_kind, added)
            losses.append(aux)
        norm = RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset, name="final_norm")
        return norm(x), jnp.mean(jnp.concatenate(losses))


def rope_positions(inputs: PolicyInputs, rope: Rope) -> Int[Array, "B T"] | Int[Array, "3 B T"]:
    """What rotates queries and keys: three axes of positions where the rope has sections and the
    inputs have them.

    Raises:
        UserError: the inputs have them and the rope has no sections.
    """
    if inputs.rope_positions is None:
        return jnp.asarray(inputs.positions)
    if not rope.sections:
        raise UserError("positions of three axes need a decoder whose rope has sections (M-RoPE)")
    return jnp.asarray(inputs.rope_positions)


def attention_inputs(
    config: DecoderArchitecture, inputs: PolicyInputs, window: int, rope: Rope
) -> AttentionInputs:
    """The inputs of all layers of a given window and rope, over whole rows."""
    cos, sin = rotary_cos_sin(rope_positions(inputs, rope), config.head_size, rope)
    visible_until = inputs.visible_until
    return AttentionInputs(
        cos=cos,
        sin=sin,
        positions=jnp.asarray(inputs.positions),
        visible_until=None if visible_until is None else jnp.asarray(visible_until),
        segment_ids=jnp.asarray(inputs.segment_ids),
        window=window,
        prefix_length=inputs.prefix_length,
        branch_length=inputs.branch_length,
        inner_branches=inputs.inner_branches,
    )


def cached_attention_inputs(
    config: DecoderArchitecture,
    inputs: PolicyInputs,
    cache_length: int,
    window: int,
    rope: Rope,
    slots: Int[Array, "B T"],
    attention_length: int,
) -> AttentionInputs:
    """`attention_inputs` over a cache of `cache_length` slots: tokens are written to `slots`, and
    the first `attention_length` slots may be attended to.
    """
    cos, sin = tabulated_rotary_cos_sin(
        cache_length, rope_positions(inputs, rope), config.head_size, rope
    )
    return dataclasses.replace(
        attention_inputs(config, inputs, window, rope),
        cos=cos,
        sin=sin,
        slots=slots,
        attention_length=attention_length,
    )


def embed_tokens(
    config: DecoderArchitecture, table: Float[Array, "V D"], inputs: PolicyInputs
) -> Float[Array, "B T D"]:
    """Token embeddings, replaced by `inputs.embeddings` (of images) where these are given."""
    rows = embedding_lookup(table, jnp.asarray(inputs.tokens), config.compute_dtype)
    x = cast(Array, rows)  # a custom_vjp has no type
    if config.embedding_scale:
        x = x * jnp.asarray(config.width**0.5, config.compute_dtype)
    if inputs.embeddings is not None and inputs.embedding_mask is not None:
        features = jnp.asarray(inputs.embeddings)[:, :, : config.width]
        mask = jnp.asarray(inputs.embedding_mask)[:, :, None]
        x = jnp.where(mask, features.astype(config.compute_dtype), x)
    return constrain(x, "rows", None, None)


def added_features(
    config: DecoderArchitecture, inputs: PolicyInputs
) -> Float[Array, "k B T D"] | None:
    """The features of images that are added to the hidden states after the first k layers, zero at
    other tokens (DeepStack, Meng et al. 2024, arXiv:2406.04334); None: there are none.

    Raises:
        UserError: the numbers of a token's features are no multiple of the width.
    """
    if inputs.embeddings is None or inputs.embedding_mask is None:
        return None
    features = jnp.asarray(inputs.embeddings)
    batch, length, size = features.shape
    if size % config.width:
        raise UserError(
            f"a token's features are a multiple of the decoder's width {config.width}, not {size}"
        )
    if size == config.width:
        return None
    rest = features[:, :, config.width :].reshape(batch, length, -1, config.width)
    rest = jnp.where(jnp.asarray(inputs.embedding_mask)[:, :, None, None], rest, 0)
    return jnp.moveaxis(rest, 2, 0).astype(config.compute_dtype)


def _features_after(
    added: Float[Array, "k B T D"], layer: int | Int[Array, ""]
) -> Float[Array, "B T D"]:
    """The features that are added after this layer; zero after the others."""
    count = added.shape[0]
    if isinstance(layer, int):
        return added[layer] if layer < count else jnp.zeros_like(added[0])
    of_layer = jax.lax.dynamic_index_in_dim(added, layer % count, keepdims=False)
    return jnp.where(layer < count, of_layer, 0)
