"""What has no public name in JAX (0.10 to 0.12): the size of a cluster, and cuDNN's attention over
packed sequences.

No other module imports `jax._src`.
"""

from typing import Any

from jaxtyping import Array, Float, Int


def cluster_size() -> int:
    """The number of processes of the detected cluster; 1 where JAX detects no cluster.

    `jax.distributed.initialize` detects clusters too, but fails where there is none and where the
    devices are already in use, and under Slurm it hides all but one GPU from a single process.
    """
    from jax._src.clusters import ClusterEnv

    detectable = (env for env in ClusterEnv._cluster_types if not env.opt_in_only_method)
    detected = next((env for env in detectable if env.is_env_present()), None)
    return 1 if detected is None else detected.get_process_count()


def packed_cudnn_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B T K H"],
    value: Float[Array, "B T K H"],
    lengths: Int[Array, "B S"],
    offsets: Int[Array, "B S1"],
    scale: float,
) -> Float[Array, "B T N H"]:
    """cuDNN's causal attention within each of the sequences of a row, with its gradient.

    `jax.nn.dot_product_attention` has no argument for several sequences in a row.

    Args:
        query: bfloat16 or float16, as keys and values.
        key: K divides N.
        value: see `key`.
        lengths: int32, tokens of each sequence; -1: there is none.
        offsets: int32, where each begins in its row, one column more than `lengths`; -1 likewise.
        scale: of the scores.

    Raises:
        NotImplementedError: the GPU is older than Hopper.
    """
    from jax._src.cudnn.fused_attention_stablehlo import MaskType, dot_product_attention

    output: Any = dot_product_attention(
        query,
        key,
        value,
        q_seqlen=lengths,
        kv_seqlen=lengths,
        q_offsets=offsets,
        kv_offsets=offsets,
        scale=scale,
        mask_type=MaskType.PADDING_CAUSAL,
    )
    return output
