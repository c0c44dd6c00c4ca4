"""Training only the last layers of a policy: a gradient transformation that freezes all other
weights.
"""

import re
from typing import Any

import jax
import numpy as np
import optax

from agentrl_jax.distributed.sharding import is_logical_axes
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy

# the name of a stack of layers and its number, see `models.decoder_architecture.layer_stacks`
LAYER_STACK_PATTERN = re.compile(r"layers(?:_(\d+))?")


def last_layers_mask(policy: Policy, num_layers: int) -> Any:
    """1 where a weight belongs to one of the last `num_layers` layers and 0 elsewhere, as arrays
    that broadcast to the trainable weights.

    Embeddings, head and final norm are in no layer.

    Raises:
        UserError: the policy has fewer stacked layers.
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    axes, trainable = policy.axes(), policy.trainable()
    sizes: dict[int, int] = {}

    def stack_of(path: Any, names: tuple[str, ...]) -> int | None:
        """The number of the stack that a weight is in."""
        matches = [
            match
            for key in path
            if isinstance(key, jax.tree_util.DictKey)
            and (match := LAYER_STACK_PATTERN.fullmatch(str(key.key)))
        ]
        return int(matches[0][1] or 0) if names[:1] == ("layers",) and matches else None

    def measure(path: Any, names: tuple[str, ...], shape: Any) -> None:
        if (stack := stack_of(path, names)) is not None:
            sizes[stack] = shape.shape[0]

    jax.tree_util.tree_map_with_path(measure, axes, shapes, is_leaf=is_logical_axes)
    total = sum(sizes.values())
    if not 0 < num_layers <= total:
        raise UserError(
            f"top_layers must be from 1 to the {total} layers that the policy has, not {num_layers}"
        )

    def mask(
        path: Any, names: tuple[str, ...], shape: Any, is_trainable: bool
    ) -> np.ndarray | None:
        stack = stack_of(path, names)
        if not is_trainable or stack is None:
            return np.zeros((), np.float32) if is_trainable else None
        before = sum(size for other, size in sizes.items() if other < stack)
        is_last = np.arange(before, before + sizes[stack]) >= total - num_layers
        return is_last.astype(np.float32).reshape(-1, *(1,) * (len(shape.shape) - 1))

    return jax.tree_util.tree_map_with_path(mask, axes, shapes, trainable, is_leaf=is_logical_axes)


def freeze_all_but_last(
    tx: optax.GradientTransformation, policy: Policy, num_layers: int
) -> optax.GradientTransformation:
    """`tx` on the gradient of the last `num_layers` layers alone, with zero updates of all other
    weights (REFUEL's second setting: 4).
    """
    mask = last_layers_mask(policy, num_layers)

    def masked(updates: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda x, factor: x * factor.astype(x.dtype), updates, mask)

    return optax.chain(optax.stateless(masked), tx, optax.stateless(masked))
