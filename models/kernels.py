"""Attention over whole rows by the fastest kernel that serves the platform, the shape and the options."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from absl import logging
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.sharding import per_shard, platform

ATTENDED = "attended"  # the name, for remat, of what attention returns and of its rows' totals: kept, it need not be done again
MASKED = -1e30  # finite: a row that may look at nothing gets a uniform average, never NaN
SCORES_AT_ONCE = 2**27  # floats: 512 MiB of scores on a device before the plain path takes queries in blocks
SPLASH_BLOCKS = (512, 256, 128)  # the first that divides T

Query = Float[Array, "B T K M H"]
Shared = Float[Array, "B T K H"]  # keys and values: M query heads share a key head
Ids = Int[Array, "B T"]
# What a kernel takes beside queries: keys and values [B, S, K, H], positions and segments of the queries, and of the keys.
Keys = Float[Array, "B S K H"]
KeyIds = Int[Array, "B S"]


def attend_rows(
    query: Query, key: Shared, value: Shared, positions: Ids, segment_ids: Ids, *, scale: float, window: int = 0, cap: float = 0.0,
    stem: int = 0, branch: int = 0,
) -> Query:  # fmt: skip
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
    refusal, kernel = "", KERNELS.get(target)
    for length in (stem, branch, stem + branch) if branch else (query.shape[1],):
        refusal = refusal or _refusal(target, length, query.shape[-1], str(value.dtype), cap)

    def best(*arrays: Array) -> Array:
        if kernel is None or refusal:
            return plain(*arrays)
        # Remat keeps the unused branch from adding its scores to what the used one saves for the backward pass.
        return jax.lax.platform_dependent(*arrays, **{target: functools.partial(kernel, **options)}, default=jax.checkpoint(plain))

    def on_a_shard(query: Array, key: Array, value: Array, *ids: Array) -> Array:
        if not branch:
            return best(query, key, value, *ids, *ids)
        return _branched(best, stem, branch, query, key, value, *ids)

    if kernel is not None and refusal:
        _report(f"attention on {target} takes the plain path: {refusal}")
    heads, shared, ids = ("rows", None, "kv_heads", "heads", None), ("rows", None, "kv_heads", None), ("rows", None)
    return per_shard(on_a_shard, (heads, shared, shared, ids, ids), heads)(query, key, value, positions, segment_ids)


def _branched(attend: Callable[..., Array], stem: int, branch: int, *arrays: Array) -> Array:
    """Attention of the stem over itself and of each branch, as a row of its own, over a copy of the stem's keys and itself."""
    count = (arrays[0].shape[1] - stem) // branch
    first = [x[:, :stem] for x in arrays]
    own = [x[:, stem:].reshape(-1, branch, *x.shape[2:]) for x in arrays]
    seen = [jnp.concatenate([jnp.repeat(a, count, axis=0), b], axis=1) for a, b in zip(first, own)]
    y = attend(own[0], *seen[1:3], *own[3:], *seen[3:]).reshape(arrays[0].shape[0], -1, *arrays[0].shape[2:])
    return jnp.concatenate([attend(*first, *first[3:]), y], axis=1) if stem else y


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
    query: Query, key: Keys, value: Keys, positions: Ids, segment_ids: Ids, key_positions: KeyIds, key_segments: KeyIds, *,
    scale: float, window: int = 0, cap: float = 0.0,
) -> Query:  # fmt: skip
    """`attend_rows` as XLA compiles it: any platform, shape and option.

    Where scores [B, K, M, T, S] would be more than `SCORES_AT_ONCE`, queries come in rematerialised blocks, so that no such
    array exists forward or backward.
    """
    batch, length, shared, group, width = query.shape
    key, value = key.swapaxes(1, 2), value.swapaxes(1, 2)

    def block(parts: tuple[Array, Array, Array]) -> Array:
        query, at, segments = parts
        many = query.shape[1]
        query = (query * scale).transpose(0, 2, 3, 1, 4).reshape(batch, shared, group * many, width)  # so that scores need not be
        unseen = jnp.where(visible(at, key_positions, segments, key_segments, window), 0.0, MASKED)
        y: Array = _attended(query, key, value, jnp.tile(unseen, (1, group, 1)), cap)
        return y.reshape(batch, shared, group, many, width).transpose(0, 3, 1, 2, 4)

    blocks = min(length, math.ceil(batch * shared * group * length * key.shape[2] / SCORES_AT_ONCE))
    if blocks <= 1:
        return block((query, positions, segment_ids))
    size = math.ceil(length / blocks)
    blocks = math.ceil(length / size)

    def split(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, blocks * size - length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(batch, blocks, size, *x.shape[2:]).swapaxes(0, 1)

    y = jax.lax.map(jax.checkpoint(block), (split(query), split(positions), split(segment_ids)))
    return y.swapaxes(0, 1).reshape(batch, blocks * size, *query.shape[2:])[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attended(
    query: Float[Array, "B K Q H"], key: Float[Array, "B K S H"], value: Float[Array, "B K S H"], unseen: Float[Array, "B Q S"], cap: float
) -> Float[Array, "B K Q H"]:
    """`softmax(capped(q k) + unseen) v`; its backward pass makes the weights again from their row totals, which are `ATTENDED`."""
    return _attended_forward(query, key, value, unseen, cap)[0]


def _scores(query: Array, key: Array, unseen: Array, cap: float) -> tuple[Array, Array]:
    """Scores with what may not be seen far below, and the derivative of the cap."""
    scores = jnp.einsum("BKQH,BKSH->BKQS", query, key, preferred_element_type=jnp.float32)
    if not cap:
        return scores + unseen[:, None], jnp.float32(1)
    bent = jnp.tanh(scores / cap)
    return cap * bent + unseen[:, None], 1 - bent * bent


def _attended_forward(query: Array, key: Array, value: Array, unseen: Array, cap: float) -> tuple[Array, tuple]:
    scores, _ = _scores(query, key, unseen, cap)
    most = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - most)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    y = jnp.einsum("BKQS,BKSH->BKQH", weights.astype(value.dtype), value, preferred_element_type=jnp.float32) / total
    y, log_total = (checkpoint_name(x, ATTENDED) for x in (y.astype(value.dtype), most + jnp.log(total)))
    return y, (query, key, value, unseen, y, log_total)


def _attended_backward(cap: float, kept: tuple, dy: Array) -> tuple:
    query, key, value, unseen, y, log_total = kept
    scores, slope = _scores(query, key, unseen, cap)
    weights = jnp.exp(scores - log_total)
    dvalue = jnp.einsum("BKQS,BKQH->BKSH", weights.astype(dy.dtype), dy)
    inner = jnp.sum(dy.astype(jnp.float32) * y.astype(jnp.float32), axis=-1, keepdims=True)
    dweights = jnp.einsum("BKQH,BKSH->BKQS", dy, value, preferred_element_type=jnp.float32)
    dscores = (weights * (dweights - inner) * slope).astype(query.dtype)
    dquery, dkey = jnp.einsum("BKQS,BKSH->BKQH", dscores, key), jnp.einsum("BKQS,BKQH->BKSH", dscores, query)
    return dquery, dkey, dvalue, None


_attended.defvjp(_attended_forward, _attended_backward)


def splash_rows(
    query: Query,
    key: Keys,
    value: Keys,
    positions: Ids,
    segment_ids: Ids,
    key_positions: KeyIds,
    key_segments: KeyIds,
    *,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    interpret: bool = False,
) -> Query:
    """`attend_rows` by the TPU's block-sparse flash attention (jax.experimental.pallas.ops.tpu.splash_attention).

    Blocks in the future or behind the window are never visited; within a segment the distance of positions is that of
    columns, the last query's column being the last key's, so the mask needs no positions. `interpret` runs the kernels as
    plain JAX, for tests on a CPU.
    """
    _, length, shared, group, size = query.shape
    shape = length, key.shape[1]
    edge, key_edge = (next(block for block in SPLASH_BLOCKS if n % block == 0) for n in shape)
    ahead = shape[1] - length
    mask = splash.LocalMask(shape, (window - 1, 0), ahead) if window else splash.CausalMask(shape, ahead)
    kernel = splash.make_splash_mha_single_device(
        splash.MultiHeadMask([mask] * (shared * group)),
        block_sizes=splash.BlockSizes(
            block_q=edge, block_kv=key_edge, block_q_dkv=edge, block_kv_dkv=key_edge, block_q_dq=edge, block_kv_dq=key_edge
        ),
        attn_logits_soft_cap=cap or None,
        residual_checkpoint_name=ATTENDED,
        interpret=interpret,
    )

    def one_row(query: Array, key: Array, value: Array, *segments: Array) -> Array:
        query = (query * scale).reshape(length, shared * group, size).swapaxes(0, 1)
        y = kernel(query, key.swapaxes(0, 1), value.swapaxes(0, 1), splash.SegmentIds(*segments))
        return jnp.swapaxes(y, 0, 1).reshape(length, shared, group, size).astype(value.dtype)  # type: ignore[arg-type]

    return jax.vmap(one_row)(query, key, value, segment_ids, key_segments)


def cudnn_rows(
    query: Query,
    key: Keys,
    value: Keys,
    positions: Ids,
    segment_ids: Ids,
    key_positions: KeyIds,
    key_segments: KeyIds,
    *,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    implementation: str = "cudnn",
) -> Query:
    """`attend_rows` by cuDNN's flash attention, without a soft cap.

    The mask of segments is dense: [B, 1, T, S] of booleans, and again in the dtype of `query` as the bias that cuDNN adds,
    3 bytes a pair in all: 48 MiB for each row of 4,096 tokens, whatever the number of heads.
    """
    assert not cap
    batch, length, shared, group, size = query.shape
    seen = visible(positions, key_positions, segment_ids, key_segments, window)[:, None]
    heads = query.reshape(batch, length, shared * group, size)
    y = jax.nn.dot_product_attention(heads, key, value, mask=seen, scale=scale, implementation=implementation)  # type: ignore[arg-type]
    return y.reshape(query.shape).astype(value.dtype)


KERNELS: dict[str, Callable[..., Array]] = {"tpu": splash_rows, "cuda": cudnn_rows}
