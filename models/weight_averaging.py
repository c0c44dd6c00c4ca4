"""Arithmetic on whole trees of weights: Polyak averaging and the merging of checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Params


def polyak(target: Params, online: Params, tau: float | Float[Array, ""]) -> Params:
    """Polyak averaging `(1 - tau) target + tau online`, computed in float32 and returned in the
    dtypes of `target`, without a gradient.

    Keep targets in float32 where tau is small: in bfloat16 a step below a 512th of a weight rounds
    away.

    Raises:
        UserError: a weight is held in integers.
    """
    _check_floats(target)

    def average(target: Array, online: Array) -> Array:
        mixed = (1.0 - tau) * target.astype(jnp.float32) + tau * online.astype(jnp.float32)
        return jax.lax.stop_gradient(mixed.astype(target.dtype))

    return jax.tree.map(average, target, online)


def interpolate(trees: Sequence[Params], weights: Sequence[float | int]) -> Params:
    """`sum_i weights[i] trees[i]`, computed in float32, with the first tree's dtypes and shardings:
    the merge of UI-TARS-2 (arXiv:2509.02544).

    A tree whose weight is 1, and trees that are all equal, are returned to the last bit.

    Raises:
        UserError: not one weight per tree, weights that do not sum to 1, trees that differ in
            structure, shape or dtype, or weights held in integers.
    """
    if not trees or len(trees) != len(weights):
        raise UserError(
            f"{len(trees)} checkpoints cannot be interpolated with {len(weights)} weights: "
            "give one weight each."
        )
    if not abs(sum(weights) - 1.0) <= 1e-6:
        raise UserError(f"The weights of an interpolation must sum to 1, not {sum(weights)}.")
    _check_floats(trees[0])
    for number, other in enumerate(trees[1:], 2):
        _check_same_trees(trees[0], other, number)
    base = max(range(len(trees)), key=lambda i: weights[i])
    others = [i for i in range(len(trees)) if i != base and weights[i] != 0.0]

    def weighted_sum(*arrays: Array) -> Array:
        wide = [x.astype(jnp.float32) for x in arrays]
        # Differences from one tree: equal weights stay equal, where a plain sum would round.
        total = sum((weights[i] * (wide[i] - wide[base]) for i in others), wide[base])
        return total.astype(arrays[0].dtype)

    shardings = jax.tree.map(lambda x: x.sharding if isinstance(x, Array) else None, trees[0])
    merge = jax.jit(lambda trees: jax.tree.map(weighted_sum, *trees), out_shardings=shardings)
    return merge(tuple(trees))


@dataclass
class Interpolation:
    """The weighted mean of phases' weights, by the phases' names, as a `Phase.start`."""

    weights: dict[str, float]

    def phases(self) -> list[str]:
        return list(self.weights)

    def params(self, load: Callable[[str], Params]) -> Params:
        """Raises UserError as `interpolate` does."""
        return interpolate(list(map(load, self.weights)), list(self.weights.values()))


def _check_floats(tree: Params) -> None:
    """Raise `UserError` for the first weight that is not a floating-point array."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise UserError(
                f"{jax.tree_util.keystr(path)} is held in {x.dtype}: "
                "averages need floating-point weights, not quantized ones."
            )


def _check_same_trees(first: Params, other: Params, number: int) -> None:
    """Raise `UserError` for the first tensor in which the trees differ."""
    left, right = (
        {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (first, other)
    )
    for name in [*left, *right]:
        if name not in left or name not in right:
            raise UserError(
                f"Checkpoints 1 and {number} cannot be interpolated: only one of them has {name}."
            )
        a, b = _dtype_and_shape(left[name]), _dtype_and_shape(right[name])
        if a != b:
            raise UserError(
                f"Checkpoints 1 and {number} cannot be interpolated: {name} is {a} in one "
                f"and {b} in the other."
            )
    if jax.tree.structure(first) != jax.tree.structure(other):  # tuples in place of lists, say
        raise UserError(
            f"Checkpoints 1 and {number} cannot be interpolated: they are trees of other kinds."
        )


def _dtype_and_shape(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}"
