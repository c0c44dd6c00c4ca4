"""Attention over whole rows by the fastest kernel that serves the platform, the shape and the
options.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from absl import logging
from jaxtyping import Array

from agentrl_jax.distributed.sharding import per_shard, platform
from agentrl_jax.models.flash_attention import SPLASH_BLOCKS, cudnn_rows, splash_rows
from agentrl_jax.models.kernel_inputs import KernelInputs, KeyValue, Query, QueryIds, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows

KERNELS: dict[str, Callable[..., Array]] = {"tpu": splash_rows, "cuda": cudnn_rows}


def attend_rows(
    query: Query,
    key: KeyValue,
    value: KeyValue,
    positions: QueryIds,
    segment_ids: QueryIds,
    visible_until: QueryIds | None = None,
    *,
    scale: float,
    window: int = 0,
    cap: float = 0.0,
    prefix_length: int = 0,
    branch_length: int = 0,
    inner_branches: bool = False,
    causal: bool = True,
) -> Query:
    """`softmax(capped(scale q k)) v` over the keys that each query may attend to, softmax in
    float32, output in the dtype of `value`.

    Query t attends to key s of its own segment at an earlier or equal position, less than `window`
    away where that is not 0; `capped(x) = cap tanh(x / cap)` where `cap` is not 0. Positions rise
    by one along each segment, whose tokens are contiguous in the row, as in `Batch`. The output at
    padding (segment 0) is finite and otherwise unspecified. If not `causal`, it attends to its
    whole segment, which is no longer than `window` where that is not 0.

    A kernel is chosen for the ambient mesh's devices or else the default device (`kernel_for`), and
    compiled only if the program is lowered for that platform; rows and heads are split over the
    mesh.

    Args:
        visible_until: the last position that each query attends to (see `PolicyInputs`); a TPU then
            takes the plain path.
        prefix_length: columns of the prefix that the branches of a row share (see `PolicyInputs`).
        branch_length: columns of each branch; 0: rows are not branched.
        inner_branches: branches may leave the prefix before its end. On a TPU with a window they
            take the plain path, since splash attention measures windows in columns.
    """
    options = ScoreOptions(scale, window, cap, causal)
    branched = (prefix_length, branch_length, prefix_length + branch_length)
    lengths = branched if branch_length else (query.shape[1],)
    attend = _kernel_or_plain_path(platform(), lengths, query.shape[-1], str(value.dtype), options)
    if visible_until is not None and platform() == "tpu":
        _warn_once(
            "attention on tpu takes the plain path: images are attended to in both directions"
        )
        attend = functools.partial(plain_rows, options=options)

    def on_a_shard(*arrays: Array) -> Array:
        if not branch_length:
            return attend(KernelInputs.of_rows(*arrays))
        counts_columns = inner_branches and options.window and platform() == "tpu"
        attend_branch = functools.partial(plain_rows, options=options) if counts_columns else attend
        return _attend_branches(
            attend, attend_branch, prefix_length, branch_length, inner_branches, arrays
        )

    heads = ("rows", None, "kv_heads", "heads", None)
    shared, ids = ("rows", None, "kv_heads", None), ("rows", None)
    arrays = [query, key, value, positions, segment_ids]
    axes = [heads, shared, shared, ids, ids]
    if visible_until is not None:
        arrays, axes = [*arrays, visible_until], [*axes, ids]
    return per_shard(on_a_shard, tuple(axes), heads)(*arrays)


def _kernel_or_plain_path(
    target: str, lengths: tuple[int, ...], head_size: int, dtype: str, options: ScoreOptions
) -> Callable[[KernelInputs], Array]:
    """The platform's kernel, or the plain path where the platform has none or its kernel does not
    support rows of one of these lengths.
    """
    plain = functools.partial(plain_rows, options=options)
    kernel = KERNELS.get(target)
    if kernel is None:
        return plain
    reasons = (
        _unsupported_reason(target, length, head_size, dtype, options.cap) for length in lengths
    )
    if reason := next(filter(None, reasons), ""):
        _warn_once(f"attention on {target} takes the plain path: {reason}")
        return plain

    def attend(inputs: KernelInputs) -> Array:
        # Remat keeps the unused branch from adding its scores to what the used one saves for the
        # backward pass.
        return jax.lax.platform_dependent(
            inputs,
            **{target: functools.partial(kernel, options=options)},
            default=jax.checkpoint(plain),
        )

    return attend


def _attend_branches(
    attend_prefix: Callable[[KernelInputs], Array],
    attend_branch: Callable[[KernelInputs], Array],
    prefix_length: int,
    branch_length: int,
    inner_branches: bool,
    arrays: tuple[Array, ...],
) -> Array:
    """Attention of the prefix over itself, and of each branch, as a separate row, over a copy of
    the prefix's keys and its own. Where branches leave it early, the prefix's keys from a branch's
    first position on are of no segment in its copy.

    `arrays` are the arguments of `KernelInputs.of_rows`.
    """
    rows, length = arrays[0].shape[:2]
    count = (length - prefix_length) // branch_length
    prefix = [x[:, :prefix_length] for x in arrays]
    branch = [x[:, prefix_length:].reshape(-1, branch_length, *x.shape[2:]) for x in arrays]
    copies = [jnp.repeat(x, count, axis=0) for x in prefix]
    if inner_branches:
        is_before = copies[3] < branch[3][:, :1]
        copies[4] = jnp.where(is_before, copies[4], -1)
    _, key, value, positions, segment_ids = (
        jnp.concatenate(pair, axis=1) for pair in zip(copies[:5], branch)
    )
    inputs = KernelInputs(
        query=branch[0],
        key=key,
        value=value,
        positions=branch[3],
        segment_ids=branch[4],
        key_positions=positions,
        key_segment_ids=segment_ids,
        visible_until=branch[5] if len(branch) > 5 else None,
    )
    y = attend_branch(inputs).reshape(rows, -1, *arrays[0].shape[2:])
    if not prefix_length:
        return y
    return jnp.concatenate([attend_prefix(KernelInputs.of_rows(*prefix)), y], axis=1)


def kernel_for(
    target: str, length: int, head_size: int, dtype: str, cap: float = 0.0
) -> tuple[str, str]:
    """The name of the kernel that `attend_rows` runs on a platform (`cpu`, `tpu`, `cuda`, `rocm`),
    and the reason where it is the plain path.
    """
    kernel = KERNELS.get(target)
    if kernel is None:
        return "plain", f"there is no kernel for {target}"
    refusal = _unsupported_reason(target, length, head_size, dtype, cap)
    return ("plain", refusal) if refusal else (kernel.__name__.removesuffix("_rows"), "")


def _unsupported_reason(target: str, length: int, head_size: int, dtype: str, cap: float) -> str:
    """Why a platform's kernel cannot serve these; empty where it can, or where the platform has
    none.
    """
    if target == "tpu":
        if length % SPLASH_BLOCKS[-1]:
            multiple = SPLASH_BLOCKS[-1]
            return f"splash attention needs rows of a multiple of {multiple} tokens, not {length}"
        if head_size % 64:
            return f"splash attention needs a head size that is a multiple of 64, not {head_size}"
    if target == "cuda":
        if dtype not in ("bfloat16", "float16"):
            return f"cuDNN attention needs bfloat16 or float16, not {dtype}"
        if head_size % 8 or head_size > 128:
            needed = "a head size that is a multiple of 8 and at most 128"
            return f"cuDNN attention needs {needed}, not {head_size}"
        if length % 2:
            return f"cuDNN attention needs rows of an even number of tokens, not {length}"
        if cap:
            return "cuDNN attention has no soft cap"
    return ""


@functools.cache
def _warn_once(message: str) -> None:
    logging.warning(message)
