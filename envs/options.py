"""Checks of the options that environments take; each returns the value or raises `UserError`."""

from typing import Any

from agentrl_jax.errors import UserError


def checked_int(name: str, value: Any, low: int, high: int) -> int:
    """The value where it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def checked_fraction(name: str, value: Any) -> float:
    """The value as a float where it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def checked_bool(name: str, value: Any) -> bool:
    """The value where it is True or False."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, not {value!r}")
    return value
