"""Attention over whole rows by the fastest kernel that serves the platform, the shape and the options."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from absl import logging
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.sharding import per_shard, platform

MASKED = -1e30  # finite: a row that may look at nothing gets a uniform average, never NaN
SCORES_AT_ONCE = 2**27  # floats: 512 MiB of scores on a device before the plain path takes queries in blocks
SPLASH_BLOCKS = (512, 256, 128)  # the first that divides T

Query = Float[Array, "B T K M H"]
Shared = Float[Array, "B T K H"]  # keys and values: M query heads share a key head
Ids = Int[Array, "B T"]


def attend_rows(
    query: Query, key: Shared, value: Shared, positions: Ids, segment_ids: Ids, *, scale: float, window: int = 0, cap: float = 0.0
) -> Query:
    """`softmax(capped(scale q k)) v` over what each token may see, softmax in float32, output in the dtype of `value`.

    Query t sees key s of its own segment at an earlier or equal position, less than `window` away where that is not 0;
    `capped(x) = cap tanh(x / cap)` where `cap` is not 0. Positions rise by one along each segment, whose tokens lie side
    by side in the row, as in `Batch`. What padding (segment 0) gets is finite and otherwise unspecified.

    A kernel is chosen for the ambient mesh's devices or else the default device (`served_by`), and compiled only if the
    program is lowered for that platform; rows and heads are split over the mesh.
    """
    options = {"scale": scale, "window": window, "cap": cap}
    plain = functools.partial(plain_rows, **options)
    target = platform()
    refusal = _refusal(target, query.shape[1], query.shape[-1], str(value.dtype), cap)
    kernel = KERNELS.get(target)

    def on_a_shard(*arrays: Array) -> Array:
        if kernel is None or refusal:
            return plain(*arrays)
        # Remat keeps the unused branch from adding its scores to what the used one saves for the backward pass.
        return jax.lax.platform_dependent(*arrays, **{target: functools.partial(kernel, **options)}, default=jax.checkpoint(plain))

    if kernel is not None and refusal:
        _report(f"attention on {target} takes the plain path: {refusal}")
    heads, shared, ids = ("rows", None, "kv_heads", "heads", None), ("rows", None, "kv_heads", None), ("rows", None)
    return per_shard(on_a_shard, (heads, shared, shared, ids, ids), heads)(query, key, value, positions, segment_ids)


def served_by(target: str, length: int, head_size: int, dtype: str, cap: float = 0.0) -> tuple[str, str]:
    """The name of what `attend_rows` runs on a platform (`cpu`, `tpu`, `cuda`, `rocm`), and why where it is the plain path."""
    kernel = KERNELS.get(target)
    if kernel is None:
        return "plain", f"there is no kernel for {target}"
    refusal = _refusal(target, length, head_size, dtype, cap)
    return ("plain", refusal) if refusal else (kernel.__name__.removesuffix("_rows"), "")


def _refusal(target: str, length: int, head_size: int, dtype: str, cap: float) -> str:
    """Why a platform's kernel cannot serve these; empty where it can, or where the platform has none."""
    if target == "tpu":
        if length % SPLASH_BLOCKS[-1]:
            return f"splash attention needs rows of a multiple of {SPLASH_BLOCKS[-1]} tokens, not {length}"
        if head_size % 64:
            return f"splash attention needs a head size that is a multiple of 64, not {head_size}"
    if target == "cuda":
        if dtype not in ("bfloat16", "float16"):
            return f"cuDNN attention needs bfloat16 or float16, not {dtype}"
        if head_size % 8 or head_size > 128:
            return f"cuDNN attention needs a head size that is a multiple of 8 and at most 128, not {head_size}"
        if length % 2:
            return f"cuDNN attention needs rows of an even number of tokens, not {length}"
        if cap:
            return "cuDNN attention has no soft cap"
    return ""


@functools.cache
def _report(message: str) -> None:
    logging.warning(message)


def visible(
    query_positions: Ids, positions: Int[Array, "B S"], query_segments: Ids, segment_ids: Int[Array, "B S"], window: int
) -> Bool[Array, "B T S"]:
    """True where a query may look at a key: the same segment, an earlier or equal position, less than `window` away if not 0.

    segment_ids 1 1 2 0, positions 0 1 0 0  ->  1000 1100 0010 0001
    """
    distance = query_positions[:, :, None] - positions[:, None, :]
    seen = (query_segments[:, :, None] == segment_ids[:, None, :]) & (distance >= 0)
    return seen & (distance < window) if window else seen


def plain_rows(
    query: Query, key: Shared, value: Shared, positions: Ids, segment_ids: Ids, *, scale: float, window: int = 0, cap: float = 0.0
) -> Query:
    """`attend_rows` as XLA compiles it: any platform, shape and option.

    Where scores [B, K, M, T, T] would be more than `SCORES_AT_ONCE`, queries come in rematerialised blocks, so that no such
    array exists forward or backward.
    """
    batch, length, shared, group, _ = query.shape
    key, value = key.swapaxes(1, 2), value.swapaxes(1, 2)

    def block(parts: tuple[Array, Array, Array]) -> Array:
        query, at, segments = parts
        scores = jnp.einsum("BTKMH,BKSH->BKMTS", query * scale, key, preferred_element_type=jnp.float32)
        scores = cap * jnp.tanh(scores / cap) if cap else scores
        seen = visible(at, positions, segments, segment_ids, window)
        weights = jax.nn.softmax(scores + jnp.where(seen, 0.0, MASKED)[:, None, None, :, :], axis=-1)
        return jnp.einsum("BKMTS,BKSH->BTKMH", weights.astype(value.dtype), value)

    blocks = min(length, math.ceil(batch * shared * group * length * length / SCORES_AT_ONCE))
    if blocks <= 1:
        return block((query, positions, segment_ids))
    size = math.ceil(length / blocks)
    blocks = math.ceil(length / size)

    def split(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, blocks * size - length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(batch, blocks, size, *x.shape[2:]).swapaxes(0, 1)

    y = jax.lax.map(jax.checkpoint(block), (split(query), split(positions), split(segment_ids)))
    return y.swapaxes(0, 1).reshape(batch, blocks * size, *query.shape[2:])[:, :length]


def splash_rows(
    query: Query,
    key: Shared,
    value: Shared,
    positions: Ids,
    segment_ids: Ids,
    *,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    interpret: bool = False,
) -> Query:
    """`attend_rows` by the TPU's block-sparse flash attention (jax.experimental.pallas.ops.tpu.splash_attention).

    Blocks in the future or behind the window are never visited; within a segment the distance of positions is that of
    columns, so the mask needs no positions. `interpret` runs the kernels as plain JAX, for tests on a CPU.
    """
    _, length, shared, group, size = query.shape
    edge = next(block for block in SPLASH_BLOCKS if length % block == 0)
    shape = (length, length)
    mask = splash.LocalMask(shape, (window - 1, 0), 0) if window else splash.CausalMask(shape)
    kernel = splash.make_splash_mha_single_device(
        splash.MultiHeadMask([mask] * (shared * group)),
        block_sizes=splash.BlockSizes(block_q=edge, block_kv=edge, block_q_dkv=edge, block_kv_dkv=edge, block_q_dq=edge, block_kv_dq=edge),
        attn_logits_soft_cap=cap or None,
        interpret=interpret,
    )

    def one_row(query: Array, key: Array, value: Array, segment_ids: Array) -> Array:
        query = (query * scale).reshape(length, shared * group, size).swapaxes(0, 1)
        y = kernel(query, key.swapaxes(0, 1), value.swapaxes(0, 1), splash.SegmentIds(segment_ids, segment_ids))
        return jnp.swapaxes(y, 0, 1).reshape(length, shared, group, size).astype(value.dtype)  # type: ignore[arg-type]

    return jax.vmap(one_row)(query, key, value, segment_ids)


def cudnn_rows(
    query: Query,
    key: Shared,
    value: Shared,
    positions: Ids,
    segment_ids: Ids,
    *,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    implementation: str = "cudnn",
) -> Query:
    """`attend_rows` by cuDNN's flash attention, without a soft cap.

    The mask of segments is dense: [B, 1, T, T] of booleans, and again in the dtype of `query` as the bias that cuDNN adds,
    3 bytes a pair in all: 48 MiB for each row of 4,096 tokens, whatever the number of heads.
    """
    assert not cap
    batch, length, shared, group, size = query.shape
    seen = visible(positions, positions, segment_ids, segment_ids, window)[:, None]
    heads = query.reshape(batch, length, shared * group, size)
    y = jax.nn.dot_product_attention(heads, key, value, mask=seen, scale=scale, implementation=implementation)  # type: ignore[arg-type]
    return y.reshape(query.shape).astype(value.dtype)


KERNELS: dict[str, Callable[..., Array]] = {"tpu": splash_rows, "cuda": cudnn_rows}
