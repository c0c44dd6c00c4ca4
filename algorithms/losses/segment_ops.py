"""Reductions over the tokens of a segment (a call, a turn, a training sequence) of packed rows,
returned at every token of it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def segment_sum(segment_ids: Int[Array, "B T"], values: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """Sum of `values` over the tokens of a row that share an id in [0, T); rows are independent."""
    length = segment_ids.shape[1]

    def row_sum(ids: Array, values: Array) -> Array:
        return jax.ops.segment_sum(values, ids, num_segments=length)[ids]

    return jax.vmap(row_sum)(segment_ids, values)


def segment_mean(
    segment_ids: Int[Array, "B T"], values: Float[Array, "B T"], mask: Bool[Array, "B T"]
) -> Float[Array, "B T"]:
    """Mean of `values` over the masked-in tokens that share an id; 0 where there are none."""
    count = segment_sum(segment_ids, mask.astype(values.dtype))
    return segment_sum(segment_ids, jnp.where(mask, values, 0.0)) / jnp.maximum(count, 1.0)
