"""`TrainState`: what a learner updates on the devices, and what a checkpoint holds."""

from typing import Any

import jax
from jaxtyping import Array, Int, Key

from agentrl_jax.policy import Params
from agentrl_jax.pytree import pytree_dataclass


@pytree_dataclass
class TrainState:
    """Everything on the devices that training changes."""

    step: Int[Array, ""]
    params: Params
    opt_state: Any
    key: Key[Array, ""]
    extra: Any = None  # an algorithm's additions (reference policy, critics, target networks)


def merge_trainable(trainable: Params, params: Params) -> Params:
    """`params` with the weights of `trainable` that are not None in their place."""
    return jax.tree.map(
        lambda new, old: old if new is None else new, trainable, params, is_leaf=lambda x: x is None
    )
