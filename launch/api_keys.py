"""The key that clients of a server send."""

import os
import secrets

from agentrl_jax.errors import UserError


def resolve_api_key(variable: str) -> str:
    """The key in the environment variable, or a new one without a variable.

    Raises:
        UserError: the variable is empty.
    """
    if variable and not os.environ.get(variable):
        raise UserError(
            f"the environment variable {variable} should hold the key that clients send: set "
            "it, or leave the flag out"
        )
    return os.environ[variable] if variable else f"sk-{secrets.token_urlsafe(24)}"
