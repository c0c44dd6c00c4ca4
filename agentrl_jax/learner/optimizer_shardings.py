"""Shardings of the state of any optimizer, from those of the parameters."""

from typing import Any

import jax
from jax.sharding import NamedSharding

KeyPath = tuple[Any, ...]


def optimizer_shardings(state: Any, params: Any, shardings: Any, replicated: NamedSharding) -> Any:
    """A sharding for each array of an optimizer's state.

    An array that stands for a parameter (its path ends in the parameter's path, and its shape is
    the parameter's: a moment, a copy) is sharded as the parameter is. All others are replicated:
    counters, and moments that are factored to a row and a column.

        state.mu["layers"]["query"] [L, D, H]  ->  the sharding of params["layers"]["query"]

    Args:
        state: the optimizer's state for `params`, arrays or shapes.
        params: the trained parameters, arrays or shapes.
        shardings: a like tree of shardings.
        replicated: the sharding of what has no parameter's shape.
    """
    parameters = {
        path: (x.shape, sharding)
        for (path, x), sharding in zip(
            jax.tree.leaves_with_path(params), jax.tree.leaves(shardings), strict=True
        )
    }

    def sharding_of(path: KeyPath, x: Any) -> NamedSharding:
        for start in range(len(path) + 1):  # the longest suffix first
            shape, sharding = parameters.get(path[start:], (None, replicated))
            if shape == x.shape:
                return sharding
        return replicated

    return jax.tree_util.tree_map_with_path(sharding_of, state)
