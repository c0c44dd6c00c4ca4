"""Sums over the tokens of a sequence (a call, a turn, a row) within packed rows, given back at every token of it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def sum_over(ids: Int[Array, "B T"], values: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """Sum of `values` over the tokens of a row that share an id in [0, T). Ids of one row say nothing about another's."""
    length = ids.shape[1]

    def of_row(ids: Array, values: Array) -> Array:
        return jax.ops.segment_sum(values, ids, num_segments=length)[ids]

    return jax.vmap(of_row)(ids, values)


def mean_over(ids: Int[Array, "B T"], values: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
    """Mean of `values` over the masked-in tokens that share an id; 0 where there are none."""
    count = sum_over(ids, mask.astype(values.dtype))
    return sum_over(ids, jnp.where(mask, values, 0.0)) / jnp.maximum(count, 1.0)


def max_over(ids: Int[Array, "B T"], values: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
    """Largest of `values` over the masked-in tokens that share an id; -inf where there are none."""
    length = ids.shape[1]

    def of_row(ids: Array, values: Array) -> Array:
        return jax.ops.segment_max(values, ids, num_segments=length)[ids]

    return jax.vmap(of_row)(ids, jnp.where(mask, values, -jnp.inf))
