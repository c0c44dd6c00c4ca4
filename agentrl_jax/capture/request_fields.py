"""Fields of a request's JSON body, checked for their type and range."""

from typing import Any

from agentrl_jax.capture.api_error import APIError


def parse_ids(value: Any, name: str) -> tuple[int, ...]:
    """A list of token ids. Raises APIError if it is none."""
    if not isinstance(value, list) or not all(
        isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**31 for i in value
    ):
        kind = "one text, or one list of token ids" if name == "prompt" else "a list of token ids"
        raise APIError(f"{name} must be {kind}", name)
    return tuple(value)


def parse_string(value: Any, name: str) -> str:
    """A string of encodable Unicode. Raises APIError if it is none."""
    if not isinstance(value, str):
        raise APIError(f"{name} must be a text", name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise APIError(f"{name} must be Unicode that can be encoded", name) from None
    return value


def parse_name(value: Any, name: str) -> str:
    """A string of printable characters. Raises APIError if it is none."""
    if not isinstance(value, str) or not value.isprintable():
        raise APIError(f"{name} must be a text without control characters", name)
    return parse_string(value, name)


def pop_flag(fields: dict[str, Any], name: str) -> bool:
    """Take a flag out of the fields, false where it is absent. Raises APIError if it is none."""
    value = fields.pop(name, None)
    if value not in (None, True, False) or (
        isinstance(value, int | float) and not isinstance(value, bool)
    ):
        raise APIError(f"{name} must be true or false", name)
    return bool(value)


def pop_number(
    fields: dict[str, Any], name: str, kind: type, low: int | float, high: int | float = 2**31 - 1
) -> Any:
    """Take a number out of the fields, None where it is absent.

    Raises:
        APIError: it is no number of this kind, or out of range.
    """
    value = fields.pop(name, None)
    if value is None:
        return None
    right = isinstance(value, int) if kind is int else isinstance(value, int | float)
    if isinstance(value, bool) or not right or not low <= value <= high:
        raise APIError(
            f"{name} must be {'a whole number' if kind is int else 'a number'} from {low} to "
            f"{high}, not {value!r:.40}",
            name,
        )
    return kind(value)
