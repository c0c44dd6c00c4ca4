"""Keys and addresses of the servers that a config names."""

import os

from agentrl_jax.errors import UserError


def key_of(variable: str, server: str) -> str:
    """The key in an environment variable; empty where no variable is named.

    Raises:
        UserError: the variable is empty.
    """
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise UserError(
            f"the environment variable {variable} should hold the key of {server}: set it, and "
            "name it in config.environment.pass_variables, without which worker processes do not "
            "get it"
        )
    return key


def check_url(url: str, owner: str) -> str:
    """The address without a slash at its end. Raises UserError where it is none of HTTP."""
    if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
        raise UserError(f"{owner} needs an address such as http://127.0.0.1:8000, not {url!r}")
    return url.rstrip("/")
