"""The names of activations in config.json."""

from agentrl_jax.errors import UserError
from agentrl_jax.models.layers import Activation, gelu, gelu_exact, silu

ACTIVATIONS: dict[str, Activation] = {
    "silu": silu,
    "swish": silu,
    "gelu_pytorch_tanh": gelu,
    "gelu": gelu_exact,
}


def read_activation(name: str) -> Activation:
    """The activation of a name.

    Raises:
        UserError: it is not supported.
    """
    if name not in ACTIVATIONS:
        raise UserError(
            f"config.json: the activation {name!r} is not supported, only {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def activation_name(activation: Activation) -> str | None:
    """The first name of an activation; None: it has none."""
    return next((name for name, known in ACTIVATIONS.items() if known is activation), None)
