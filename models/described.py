"""What linen's boxes say: the weights, and the logical axes of each."""

from typing import Any

import flax.linen as nn
import jax

from agentrl_jax.policy import Params


def unboxed(boxes: Any) -> Params:
    """The weights that linen returns in boxes with their logical axes."""
    return jax.tree.map(lambda box: box.value, boxes, is_leaf=_is_box)


def axis_names(boxes: Any) -> Any:
    """A tree like `unboxed`'s with a tuple of names per weight."""
    return jax.tree.map(lambda box: box.names, boxes, is_leaf=_is_box)


def _is_box(x: Any) -> bool:
    return isinstance(x, nn.LogicallyPartitioned)
