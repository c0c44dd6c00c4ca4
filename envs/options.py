"""Checks of the options that environments take; each returns the value or raises `UserError`."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentrl_jax.errors import UserError


def checked_int(name: str, value: Any, low: int, high: int) -> int:
    """The value where it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def checked_number(name: str, value: Any, low: int, high: int) -> float:
    """The value as a float where it is a number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{name} must be a number from {low} to {high}, not {value!r}")
    return float(value)


def checked_fraction(name: str, value: Any) -> float:
    """The value as a float where it is a number in [0, 1]."""
    return checked_number(name, value, 0, 1)


def checked_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """The value where it is one of the choices."""
    known = tuple(choices)
    if value not in known:
        raise UserError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value


def checked_choices(name: str, values: Iterable[str], choices: Iterable[str]) -> tuple[str, ...]:
    """The values where each is one of the choices; of no values all choices."""
    known = tuple(choices)
    return tuple(checked_choice(name, value, known) for value in values) or known


def checked_bool(name: str, value: Any) -> bool:
    """The value where it is True or False."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, not {value!r}")
    return value


def check_no_options(environment: str, options: Mapping[str, Any]) -> None:
    """Raises UserError where `reset` gets options in an environment that has none."""
    if options:
        raise UserError(f"{environment} has no reset option {sorted(options)}: it has none")
