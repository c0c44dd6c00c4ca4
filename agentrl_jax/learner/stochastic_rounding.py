"""Weights and moments in few bits that are rounded at random: small updates are not lost."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, UInt32

from agentrl_jax.hashed_bits import array_bits
from agentrl_jax.policy import Params


def round_stochastically(
    x: Float[Array, "*shape"], dtype: jnp.dtype, bits: UInt32[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """One of the two numbers of a dtype next to x, at random, so that the mean is x.

    With a < x < b next to each other: b with the probability (x - a) / (b - a), else a.

    Args:
        x: float32.
        dtype: of the result.
        bits: random ones.
    """
    nearest = x.astype(dtype)
    error = x - nearest.astype(x.dtype)
    other = jnp.nextafter(nearest, jnp.where(error > 0, jnp.inf, -jnp.inf).astype(dtype))
    distance = other.astype(x.dtype) - nearest.astype(x.dtype)
    uniform = (bits >> 8).astype(x.dtype) * np.float32(2**-24)
    is_other = uniform * jnp.abs(distance) < jnp.abs(error)
    return jnp.where(is_other, other, nearest)


class RoundedState(NamedTuple):
    """The state of an optimizer whose weights and moments are rounded at random."""

    count: Int[Array, ""]  # updates so far
    inner: Any  # the optimizer's own


class RoundedTransformation(optax.GradientTransformation):
    """A transformation that computes in float32 and rounds weights and moments at random."""

    inner: optax.GradientTransformation

    @classmethod
    def of(cls, inner: optax.GradientTransformation, seed: int) -> "RoundedTransformation":
        """The transformation, with that which it rounds."""

        def init(params: Params) -> RoundedState:
            return RoundedState(jnp.int32(0), inner.init(params))

        def update(
            updates: Params, state: Any, params: Params | None = None
        ) -> tuple[Params, RoundedState]:
            assert params is not None, "weights are needed to round them"
            weights = _widen(params)
            updates, moments = inner.update(_widen(updates), _widen(state.inner), weights)
            key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), state.count))
            new = optax.apply_updates(weights, updates)
            new, moments = _rounded_like((params, state.inner), (new, moments), key)
            # To which the weights are added again: exact, for neighbors in few bits.
            updates = jax.tree.map(jnp.subtract, _widen(new), weights)
            return updates, RoundedState(state.count + 1, moments)

        rounded = cls(init, update)
        rounded.inner = inner
        return rounded


def _is_narrow(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 32


def _widen(tree: Any) -> Any:
    """The tree with floating arrays of at least 32 bits."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if _is_narrow(x) else x, tree)


def _rounded_like(tree: Any, wide: Any, key: UInt32[Array, "2"]) -> Any:
    """The arrays of `wide` rounded to the dtypes of `tree`, each with random numbers of its own."""
    leaves: Sequence[Array] = jax.tree.leaves(tree)
    rounded = [
        round_stochastically(new, old.dtype, array_bits(key, i, new.shape))
        if _is_narrow(old)
        else new
        for i, (old, new) in enumerate(zip(leaves, jax.tree.leaves(wide), strict=True))
    ]
    return jax.tree.unflatten(jax.tree.structure(tree), rounded)
