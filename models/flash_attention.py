"""Flash attention over whole rows: splash attention on TPU, cuDNN on CUDA."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array

from agentrl_jax.models.kernel_inputs import (
    ATTENTION_OUTPUT,
    KernelInputs,
    Query,
    ScoreOptions,
    attention_mask,
)

SPLASH_BLOCKS = (512, 256, 128)  # the first that divides T


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
    if options.window:
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


def cudnn_rows(
    inputs: KernelInputs,
    options: ScoreOptions,
    implementation: str = "cudnn",
) -> Query:
    """`attend_rows` by cuDNN's flash attention, without a soft cap.

    The mask of segments is dense: [B, 1, T, S] of booleans, and again in the dtype of the queries
    as the bias that cuDNN adds, 3 bytes a pair in all: 48 MiB for each row of 4,096 tokens,
    whatever the number of heads.
    """
    assert not options.cap
    query = inputs.query
    batch, length, shared, group, size = query.shape
    mask = attention_mask(
        inputs.positions,
        inputs.key_positions,
        inputs.segment_ids,
        inputs.key_segment_ids,
        options.window,
    )
    y = jax.nn.dot_product_attention(
        query.reshape(batch, length, shared * group, size),
        inputs.key,
        inputs.value,
        mask=mask[:, None],
        scale=options.scale,
        implementation=implementation,  # type: ignore[arg-type]
    )
    return y.reshape(query.shape).astype(inputs.value.dtype)
