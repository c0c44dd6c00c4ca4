"""Attention over whole rows in plain JAX, with a backward pass that recomputes the weights."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from agentrl_jax.models.kernel_inputs import (
    ATTENTION_OUTPUT,
    MASK_VALUE,
    KernelInputs,
    Query,
    ScoreOptions,
    attention_mask,
)

# floats: 512 MiB of scores on a device before the plain path takes queries in blocks
MAX_SCORES = 2**27


def plain_rows(
    inputs: KernelInputs,
    options: ScoreOptions,
) -> Query:
    """`attend_rows` as XLA compiles it: any platform, shape and option.

    Where scores [B, K, M, T, S] would be more than `MAX_SCORES`, queries come in rematerialized
    blocks, so that no such array exists forward or backward.
    """
    query, positions, segment_ids = inputs.query, inputs.positions, inputs.segment_ids
    visible_until = positions if inputs.visible_until is None else inputs.visible_until
    batch, length, shared, group, width = query.shape
    key, value = inputs.key.swapaxes(1, 2), inputs.value.swapaxes(1, 2)

    def block(parts: tuple[Array, Array, Array, Array]) -> Array:
        query, *ids = parts
        size = query.shape[1]
        mask = attention_mask(_with_queries(inputs, query, *ids), options)
        # the queries are transposed, so that scores need not be
        query = (query * options.scale).transpose(0, 2, 3, 1, 4)
        query = query.reshape(batch, shared, group * size, width)
        mask_bias = jnp.tile(jnp.where(mask, 0.0, MASK_VALUE), (1, group, 1))
        y: Array = _recomputed_attention(query, key, value, mask_bias, options.cap)
        return y.reshape(batch, shared, group, size, width).transpose(0, 3, 1, 2, 4)

    blocks = min(length, math.ceil(batch * shared * group * length * key.shape[2] / MAX_SCORES))
    if blocks <= 1:
        return block((query, positions, segment_ids, visible_until))
    size = math.ceil(length / blocks)
    blocks = math.ceil(length / size)

    def split(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, blocks * size - length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(batch, blocks, size, *x.shape[2:]).swapaxes(0, 1)

    parts = tuple(split(x) for x in (query, positions, segment_ids, visible_until))
    y = jax.lax.map(jax.checkpoint(block), parts)
    return y.swapaxes(0, 1).reshape(batch, blocks * size, *query.shape[2:])[:, :length]


def _with_queries(
    inputs: KernelInputs, query: Array, positions: Array, segment_ids: Array, visible_until: Array
) -> KernelInputs:
    """The inputs of some of their queries."""
    return dataclasses.replace(
        inputs,
        query=query,
        positions=positions,
        segment_ids=segment_ids,
        visible_until=visible_until,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _recomputed_attention(
    query: Float[Array, "B K Q H"],
    key: Float[Array, "B K S H"],
    value: Float[Array, "B K S H"],
    mask_bias: Float[Array, "B Q S"],
    cap: float,
) -> Float[Array, "B K Q H"]:
    """`softmax(capped(q k) + mask_bias) v`; its backward pass recomputes the weights from the
    log-sum-exp of each row, which is stored as `ATTENTION_OUTPUT`.
    """
    return _recomputed_attention_forward(query, key, value, mask_bias, cap)[0]


def _masked_scores(query: Array, key: Array, mask_bias: Array, cap: float) -> tuple[Array, Array]:
    """Scores plus the mask's bias, and the derivative of the cap."""
    scores = jnp.einsum("BKQH,BKSH->BKQS", query, key, preferred_element_type=jnp.float32)
    if not cap:
        return scores + mask_bias[:, None], jnp.float32(1)
    tanh = jnp.tanh(scores / cap)
    return cap * tanh + mask_bias[:, None], 1 - tanh * tanh


def _recomputed_attention_forward(
    query: Array, key: Array, value: Array, mask_bias: Array, cap: float
) -> tuple[Array, tuple]:
    scores, _ = _masked_scores(query, key, mask_bias, cap)
    most = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - most)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    y = jnp.einsum(
        "BKQS,BKSH->BKQH", weights.astype(value.dtype), value, preferred_element_type=jnp.float32
    )
    y = checkpoint_name((y / total).astype(value.dtype), ATTENTION_OUTPUT)
    log_total = checkpoint_name(most + jnp.log(total), ATTENTION_OUTPUT)
    return y, (query, key, value, mask_bias, y, log_total)


def _recomputed_attention_backward(cap: float, residuals: tuple, dy: Array) -> tuple:
    query, key, value, mask_bias, y, log_total = residuals
    scores, slope = _masked_scores(query, key, mask_bias, cap)
    weights = jnp.exp(scores - log_total)
    dvalue = jnp.einsum("BKQS,BKQH->BKSH", weights.astype(dy.dtype), dy)
    inner = jnp.sum(dy.astype(jnp.float32) * y.astype(jnp.float32), axis=-1, keepdims=True)
    dweights = jnp.einsum("BKQH,BKSH->BKQS", dy, value, preferred_element_type=jnp.float32)
    dscores = (weights * (dweights - inner) * slope).astype(query.dtype)
    dquery = jnp.einsum("BKQS,BKSH->BKQH", dscores, key)
    dkey = jnp.einsum("BKQS,BKQH->BKSH", dscores, query)
    return dquery, dkey, dvalue, None


_recomputed_attention.defvjp(_recomputed_attention_forward, _recomputed_attention_backward)
