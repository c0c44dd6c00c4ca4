"""One optimizer step, skipped where the gradient or the loss is not finite."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from agentrl_jax.distributed.sharding import platform
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Params


def optimizer_step(
    tx: optax.GradientTransformation, weights: Params, opt_state: Any, gradient: Params
) -> tuple[Params, Any]:
    """The weights and the optimizer state after a step.

    Raises:
        UserError: the optimizer needs more than the gradient, its state and the weights.
    """
    try:
        updates, opt_state = tx.update(gradient, opt_state, weights)
    except TypeError as error:
        raise UserError(
            "the optimizer cannot be updated with a gradient, its state and the weights alone: "
            f"{error}"
        ) from error
    return optax.apply_updates(weights, updates), opt_state


def finite_optimizer_step(
    tx: optax.GradientTransformation,
    weights: Params,
    opt_state: Any,
    gradient: Params,
    loss: Float[Array, ""],
) -> tuple[Params, Any, Float[Array, ""], Bool[Array, ""]]:
    """As `optimizer_step` where the gradient's norm and the loss are finite, else without change.

    Returns:
        Weights, optimizer state, the gradient's norm, and whether norm and loss are finite.
    """
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
        norm = optax.tree.norm(gradient)
        finite = jnp.isfinite(norm) & jnp.isfinite(loss)
        step, old = functools.partial(optimizer_step, tx), (weights, opt_state)
        if platform() in ("cpu", "tpu"):  # without a second copy of the weights
            new = jax.lax.cond(finite, step, lambda *unchanged: unchanged[:2], *old, gradient)
        else:  # a conditional of a GPU program waits on the host for its predicate
            new = jax.tree.map(functools.partial(jnp.where, finite), step(*old, gradient), old)
    return *new, norm, finite
