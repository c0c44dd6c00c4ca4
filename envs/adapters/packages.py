"""Packages that adapters need: imported where they are used, and named where they are missing."""

import importlib
from types import ModuleType

from agentrl_jax.errors import UserError


def import_package(module: str, extra: str) -> ModuleType:
    """The module.

    Args:
        module: its name.
        extra: of `agentrl_jax`, which installs it.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the package of {module!r} is not installed ({error}): "
            f"pip install 'agentrl_jax[{extra}]' does it"
        ) from error


def shortened(names: list[str], most: int) -> str:
    """The first `most` names, and how many more there are: "a, b and 3 more"."""
    rest = len(names) - most
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:most])} and {rest} more"
