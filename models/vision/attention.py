"""Attention of patches to all patches of their segment: a frame or a window of it."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from agentrl_jax.distributed.sharding import per_shard, platform
from agentrl_jax.models.attention_kernels import attend_rows
from agentrl_jax.models.kernel_inputs import KernelInputs, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows

Heads = Float[Array, "R N K H"]
LANES = 64  # head sizes of a TPU's kernel are multiples
MAX_BLOCK = 512  # of patches, on accelerators: longer segments are for their kernels


def attend_segments(
    query: Heads,
    key: Heads,
    value: Heads,
    segment_ids: Int[Array, "R N"],
    scale: float,
    max_length: int = 0,
) -> Heads:
    """`softmax(scale q k) v` over the patches of the query's segment, softmax in float32.

    The patches of a segment are contiguous. Where no segment is longer than `max_length` and rows
    are longer than three times that, the cost is linear in N.

    Args:
        max_length: patches of the longest segment; 0: unknown.
    """
    is_short = max_length <= MAX_BLOCK or platform() == "cpu"
    if max_length and is_short and query.shape[1] > 3 * max_length:
        attend = functools.partial(_attend_neighbours, scale=scale, size=max_length)
        heads, ids = ("rows", None, "heads", None), ("rows", None)
        return per_shard(attend, (heads, heads, heads, ids), heads)(query, key, value, segment_ids)
    size = query.shape[-1]
    padding = -size % LANES if platform() == "tpu" else 0
    if padding:
        query, key, value = (
            jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, padding))) for x in (query, key, value)
        )
    positions = jnp.zeros_like(segment_ids)
    y = attend_rows(
        query[:, :, :, None],
        key,
        value,
        positions,
        segment_ids,
        scale=scale,
        window=max_length,
        causal=False,
    )
    return y[:, :, :, 0, :size]


def _attend_neighbours(
    query: Heads,
    key: Heads,
    value: Heads,
    segment_ids: Int[Array, "R N"],
    *,
    scale: float,
    size: int,
) -> Heads:
    """Attention of blocks of `size` patches to themselves and the blocks next to them, which hold
    all of their segments.
    """
    rows, length = segment_ids.shape
    blocks = -(-length // size)

    def split(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, blocks * size - length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(rows, blocks, size, *x.shape[2:])

    def with_neighbours(x: Array) -> Array:
        x = jnp.pad(split(x), ((0, 0), (1, 1), *((0, 0),) * (x.ndim - 1)))
        near = jnp.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)
        return near.reshape(rows * blocks, 3 * size, *x.shape[3:])

    query, ids = (split(x).reshape(rows * blocks, size, *x.shape[2:]) for x in (query, segment_ids))
    key_ids = with_neighbours(segment_ids)
    inputs = KernelInputs(
        query=query[:, :, :, None],
        key=with_neighbours(key),
        value=with_neighbours(value),
        positions=jnp.zeros_like(ids),
        segment_ids=ids,
        key_positions=jnp.zeros_like(key_ids),
        key_segment_ids=key_ids,
    )
    y = plain_rows(inputs, ScoreOptions(scale, causal=False))[:, :, :, 0]
    return y.reshape(rows, blocks * size, *y.shape[2:])[:, :length]
