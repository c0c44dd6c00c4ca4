"""Target networks: copies of trained weights that follow them slowly."""

import jax

from agentrl_jax.policy import Params


def soft_update(target: Params, online: Params, rate: float) -> Params:
    """`target + rate (online - target)`, Polyak averaging, in the dtype of the weights."""
    return jax.tree.map(lambda old, new: old + rate * (new - old), target, online)
