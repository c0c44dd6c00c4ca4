"""`AuxState`: what a policy gradient trains with beside the policy and its optimizer."""

import dataclasses
from typing import Any

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
