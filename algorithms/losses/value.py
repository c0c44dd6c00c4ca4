"""The critic's loss."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def value_loss(
    value: Float[Array, "*shape"],
    proximal_value: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    *,
    clip: float,
) -> Float[Array, "*shape"]:
    """.5 max((V - target)^2, (clip(V, V_old - clip, V_old + clip) - target)^2) (arXiv 1707.06347);
    clip inf is plain regression.
    """
    clipped = jnp.clip(value, proximal_value - clip, proximal_value + clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2)
