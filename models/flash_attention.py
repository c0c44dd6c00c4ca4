"""Flash attention over whole rows: splash attention on TPU, cuDNN on CUDA."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array, Int

from agentrl_jax.distributed.jax_internals import packed_cudnn_attention
from agentrl_jax.models.kernel_inputs import (
    ATTENTION_OUTPUT,
    KernelInputs,
    Query,
    QueryIds,
    ScoreOptions,
    attention_mask,
)

SPLASH_BLOCKS = (512, 256, 128)  # the first that divides T
# Tokens of a row for each sequence that cuDNN's packed layout has room for, padding being one. Each
# reserves the log-sum-exp of a whole row, and time in the backward pass, so there are two programs.
PACKED_TOKENS = (512, 128)


def splash_rows(
    inputs: KernelInputs,
    options: ScoreOptions,
    interpret: bool = False,
) -> Query:
    """`attend_rows` by the TPU's block-sparse flash attention
    (jax.experimental.pallas.ops.tpu.splash_attention).

    Blocks in the future or behind the window are never visited; within a segment the distance of
    positions is that of columns, the last query's column being the last key's, so the mask needs no
    positions. `interpret` runs the kernels as plain JAX, for tests on a CPU.
    """
    _, length, shared, group, size = inputs.query.shape
    shape = length, inputs.key.shape[1]
    edge, key_edge = (next(block for block in SPLASH_BLOCKS if n % block == 0) for n in shape)
    ahead = shape[1] - length
    if not options.causal and options.window:
        mask = splash.LocalMask(shape, (options.window - 1, options.window - 1), ahead)
    elif not options.causal:
        mask = splash.FullMask(shape)
    elif options.window:
        mask = splash.LocalMask(shape, (options.window - 1, 0), ahead)
    else:
        mask = splash.CausalMask(shape, ahead)
    kernel = splash.make_splash_mha_single_device(
        splash.MultiHeadMask([mask] * (shared * group)),
        block_sizes=splash.BlockSizes(
            block_q=edge,
            block_kv=key_edge,
            block_q_dkv=edge,
            block_kv_dkv=key_edge,
            block_q_dq=edge,
            block_kv_dq=key_edge,
        ),
        attn_logits_soft_cap=options.cap or None,
        residual_checkpoint_name=ATTENTION_OUTPUT,
        interpret=interpret,
    )

    def one_row(query: Array, key: Array, value: Array, *segments: Array) -> Array:
        query = (query * options.scale).reshape(length, shared * group, size).swapaxes(0, 1)
        y: Any = kernel(
            query, key.swapaxes(0, 1), value.swapaxes(0, 1), splash.SegmentIds(*segments)
        )
        return jnp.swapaxes(y, 0, 1).reshape(length, shared, group, size).astype(value.dtype)

    return jax.vmap(one_row)(
        inputs.query, inputs.key, inputs.value, inputs.segment_ids, inputs.key_segment_ids
    )


def cudnn_rows(inputs: KernelInputs, options: ScoreOptions) -> Query:
    """`attend_rows` by cuDNN's flash attention, without a soft cap.

    Rows that attend to themselves, without a window, are packed sequences of which cuDNN computes
    only the pairs that attend to each other; where they are shorter than the last of
    `PACKED_TOKENS` on average, and everywhere else, a dense mask is read (`masked_cudnn_rows`).
    """
    assert not options.cap
    is_self_attention = inputs.query.shape[1] == inputs.key.shape[1]
    is_causal = options.causal and inputs.visible_until is None
    if options.window or not is_causal or not is_self_attention or not supports_packed_sequences():
        return masked_cudnn_rows(inputs, options)
    limits = [max(2, inputs.query.shape[1] // tokens) for tokens in PACKED_TOKENS]

    def packed(inputs: KernelInputs, limit: int) -> Array:
        query = inputs.query
        lengths, offsets, _ = packed_sequences(inputs.segment_ids, limit)
        y = packed_cudnn_attention(
            query.reshape(*query.shape[:2], -1, query.shape[-1]),
            inputs.key,
            inputs.value,
            lengths,
            offsets,
            options.scale,
        )
        return y.reshape(query.shape).astype(inputs.value.dtype)

    count = packed_sequences(inputs.segment_ids, 1)[2]
    programs: list[Callable[[KernelInputs], Array]] = [
        functools.partial(packed, limit=limit) for limit in limits
    ]
    programs.append(jax.checkpoint(functools.partial(masked_cudnn_rows, options=options)))
    index = jnp.sum(count > jnp.asarray(limits))
    return jax.lax.switch(index, programs, inputs)


def supports_packed_sequences() -> bool:
    """Whether cuDNN has attention over packed sequences on this process's GPUs: from Hopper on."""
    capabilities = (x.compute_capability for x in jax.local_devices() if x.platform == "gpu")
    return all(float(x) >= 9.0 for x in capabilities)


def packed_sequences(
    segment_ids: QueryIds, limit: int
) -> tuple[Int[Array, "B limit"], Int[Array, "B limit1"], Int[Array, ""]]:
    """Tokens and first column of each run of equal segment ids in each row, and the number of runs
    of the row that has most.

    Padding is a run like any other, so that every output is written. What is past the last run or
    past `limit` is -1.

    segment_ids 1 1 2 0 0, limit 4  ->  lengths 2 1 2 -1, offsets 0 2 3 -1 -1, 3
    """
    is_first = jnp.pad(
        segment_ids[:, 1:] != segment_ids[:, :-1], ((0, 0), (1, 0)), constant_values=True
    )
    counts = jnp.sum(is_first, axis=1)
    length = segment_ids.shape[1]
    starts = jax.vmap(lambda x: jnp.nonzero(x, size=limit + 1, fill_value=length)[0])(is_first)
    starts = starts.astype(jnp.int32)
    is_run = jnp.arange(limit)[None] < counts[:, None]
    lengths = jnp.where(is_run, starts[:, 1:] - starts[:, :-1], -1)
    offsets = jnp.where(jnp.pad(is_run, ((0, 0), (0, 1))), starts, -1)
    return lengths, offsets, jnp.max(counts)


def masked_cudnn_rows(
    inputs: KernelInputs,
    options: ScoreOptions,
    implementation: str = "cudnn",
) -> Query:
    """`cudnn_rows` with a dense mask.

    The mask of segments is [B, 1, T, S] of booleans, and again in the dtype of the queries as the
    bias that cuDNN adds, 3 bytes a pair in all: 48 MiB for each row of 4,096 tokens, whatever the
    number of heads.
    """
    query = inputs.query
    batch, length, shared, group, size = query.shape
    mask = attention_mask(inputs, options)
    y = jax.nn.dot_product_attention(
        query.reshape(batch, length, shared * group, size),
        inputs.key,
        inputs.value,
        mask=mask[:, None],
        scale=options.scale,
        implementation=implementation,  # type: ignore[arg-type]
    )
    return y.reshape(query.shape).astype(inputs.value.dtype)
