"""`AuxState`: what a policy gradient trains with beside the policy and its optimizer."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params
from agentrl_jax.pytree import pytree_dataclass


@pytree_dataclass
class AuxState:
    """Auxiliary training state on the device."""

    reference: Params | None  # the weights that training began with
    critic: TrainState | None
    gradient_norm: Float[Array, ""]  # its moving average


def with_aux(state: TrainState, **changes: Any) -> TrainState:
    """The state with changed fields of its `AuxState`."""
    return dataclasses.replace(state, extra=dataclasses.replace(state.extra, **changes))


def update_gradient_spike(average: Array, norm: Array) -> tuple[Array, Array]:
    """The moving average including a new gradient norm, if that is finite, and the norm divided by
    the average before; 1 for the first.
    """
    is_first = average == 0
    new_average = jnp.where(is_first, norm, 0.9 * average + 0.1 * norm)
    return jnp.where(jnp.isfinite(norm), new_average, average), jnp.where(
        is_first, 1.0, norm / jnp.where(is_first, 1.0, average)
    )
