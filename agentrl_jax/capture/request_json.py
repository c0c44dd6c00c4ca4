"""The JSON of a request: bounds on its number of values, its nesting and its numbers."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.server_limits import ServerLimits

MAX_DIGITS = 100  # of a whole number
MAX_PATH = 200  # characters of a field's path in a message


@dataclass(frozen=True)
class _RefusedNumber:
    """Stands where a number was that is refused."""

    reason: str


def parse_json(data: bytes, limits: ServerLimits) -> Any:
    """The JSON of a body.

    Raises:
        APIError: it is invalid, holds too many values, nests too deep, or has a number that is not
            finite or too long.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > limits.max_json_items:
        raise APIError(
            f"a request may hold {limits.max_json_items:,} commas and brackets", status=413
        )
    refused: list[_RefusedNumber] = []

    def refuse(reason: str) -> _RefusedNumber:
        refused.append(_RefusedNumber(reason))
        return refused[-1]

    def parse_float(text: str) -> Any:
        value = float(text)
        return value if math.isfinite(value) else refuse(f"{text:.20} is too large a number")

    def parse_int(text: str) -> Any:
        num_digits = len(text.removeprefix("-"))
        if num_digits > MAX_DIGITS:
            return refuse(
                f"a number of {num_digits:,} digits, of at most {MAX_DIGITS}, is too long"
            )
        return int(text)

    try:
        value = json.loads(
            data,
            parse_float=parse_float,
            parse_int=parse_int,
            parse_constant=lambda text: refuse(f"{text} is no JSON number"),
        )
    except RecursionError:
        raise _nested_too_deep("the body", limits.max_json_depth) from None
    except ValueError as error:
        raise APIError(f"the body is no JSON: {error}") from None
    check_depth(value, "the body", limits.max_json_depth)
    if refused:
        _raise_refused(value, refused[0])
    return value


def check_depth(value: Any, name: str, max_depth: int, param: str | None = None) -> None:
    """Raises APIError, which names the value, if its lists and objects nest deeper than that."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(max_depth):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, list | dict)
        ]
        if not level:
            return
    raise _nested_too_deep(name, max_depth, param)


def check_json_text(text: str, name: str, max_depth: int) -> None:
    """Raises APIError if a text is JSON that nests deeper than that; it may be no JSON at all."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _nested_too_deep(name, max_depth, name) from None
    except ValueError:
        return
    check_depth(value, name, max_depth, name)


def _nested_too_deep(name: str, max_depth: int, param: str | None = None) -> APIError:
    return APIError(f"{name} nests deeper than {max_depth} levels of lists and objects", param)


def _raise_refused(value: Any, first: _RefusedNumber) -> None:
    """Raises APIError for a number that is refused, with its path."""
    # A number whose key comes twice is nowhere in the value.
    path, number = next(_refused_numbers(value, ""), ("", first))
    where = f" (in {path[:MAX_PATH]})" if path else ""
    raise APIError(number.reason + where, path[:MAX_PATH] or None)


def _refused_numbers(value: Any, path: str) -> Iterator[tuple[str, _RefusedNumber]]:
    if isinstance(value, _RefusedNumber):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _refused_numbers(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from _refused_numbers(child, f"{path}[{i}]")
