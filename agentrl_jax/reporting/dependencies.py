"""The packages of the `report` extra, which are imported where they are used."""

from importlib.util import find_spec

from agentrl_jax.errors import UserError


def require_package(name: str) -> None:
    """Raises UserError, naming the extra to install, where a package is missing."""
    if find_spec(name) is None:
        raise UserError(f"reports need {name}: pip install 'agentrl_jax[report]'")
