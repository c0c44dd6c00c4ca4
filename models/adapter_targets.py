"""The matrices of a policy that low-rank adapters may be added to, by name."""

import jax

from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.vision.policy import VISION

STACK_AXES = ("layers", "experts")  # leading axes with a matrix for each index


def target_name(path: tuple[str, ...]) -> str:
    """The name in `LoraConfig.targets` of a weight."""
    return f"{VISION}.{path[-1]}" if path[0] == VISION else path[-1]


def count_axes(axes: tuple[str, ...]) -> tuple[int, int]:
    """The number of leading stack axes of a weight, and of the contracted axes after them."""
    stack = next(i for i, name in enumerate(axes) if name not in STACK_AXES)
    return stack, 2 if axes[stack] == "heads" else 1


def matrix_shapes_and_axes(
    policy: Decoder,
) -> dict[tuple[str, ...], tuple[tuple[int, ...], tuple[str, ...]]]:
    """Shape and axes, by path, of every weight of a decoder that is a matrix or a stack of
    matrices.
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    flat, _ = jax.tree_util.tree_flatten_with_path(shapes)
    axes = jax.tree.leaves(policy.axes(), is_leaf=lambda x: isinstance(x, tuple))
    named = {
        tuple(key.key for key in path): (x.shape, names) for (path, x), names in zip(flat, axes)
    }
    return {
        path: entry
        for path, entry in named.items()
        if not path[-1].endswith("bias") and len(entry[1]) - count_axes(entry[1])[0] > 1
    }
