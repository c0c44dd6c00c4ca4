"""Training the last layers of a policy alone: the optimizer's transformation with all other weights held still."""

import re
from typing import Any

import jax
import numpy as np
import optax

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy
from agentrl_jax.sharding import is_names

RUN = re.compile(r"layers(?:_(\d+))?")  # a stack of like layers, and which of them, see `models.decoder.runs`


def top_layers(policy: Policy, count: int) -> Any:
    """1 where a weight belongs to one of the last `count` layers and 0 elsewhere, as arrays that broadcast to the weights that are trained.

    Embeddings, head and final norm are in no layer. Raises UserError where the policy has not so many stacked layers.
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    axes, trained = policy.axes(), policy.trainable()
    sizes: dict[int, int] = {}

    def run_of(path: Any, names: tuple[str, ...]) -> int | None:
        """Which stack a weight is in."""
        found = [match for key in path if (match := RUN.fullmatch(str(getattr(key, "key", ""))))]
        return int(found[0][1] or 0) if names[:1] == ("layers",) and found else None

    def measure(path: Any, names: tuple[str, ...], shape: Any) -> None:
        if (run := run_of(path, names)) is not None:
            sizes[run] = shape.shape[0]

    jax.tree_util.tree_map_with_path(measure, axes, shapes, is_leaf=is_names)
    total = sum(sizes.values())
    if not 0 < count <= total:
        raise UserError(f"top_layers must be from 1 to the {total} layers that the policy has, not {count}")

    def mask(path: Any, names: tuple[str, ...], shape: Any, free: bool) -> np.ndarray | None:
        run = run_of(path, names)
        if not free or run is None:
            return np.zeros((), np.float32) if free else None
        before = sum(size for other, size in sizes.items() if other < run)
        on = np.arange(before, before + sizes[run]) >= total - count
        return on.astype(np.float32).reshape(-1, *(1,) * (len(shape.shape) - 1))

    return jax.tree_util.tree_map_with_path(mask, axes, shapes, trained, is_leaf=is_names)


def only_top(tx: optax.GradientTransformation, policy: Policy, count: int) -> optax.GradientTransformation:
    """`tx` that sees the gradient of the last `count` layers alone and moves nothing else (REFUEL's second setting: 4)."""
    mask = top_layers(policy, count)

    def held(updates: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda x, on: x * on.astype(x.dtype), updates, mask)

    return optax.chain(optax.stateless(held), tx, optax.stateless(held))
