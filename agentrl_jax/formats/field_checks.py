"""Checks of the fields of a record from elsewhere; every error names the field."""

import json
import math
from collections.abc import Collection
from typing import Any


class FieldError(ValueError):
    """A field of a record is wrong.

    The reader of the record adds file and line: "a.jsonl, line 3" + ", messages[2].role: must be".
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f", {field}: {problem}" if field else f": {problem}")


def parse_json(text: str, field: str = "") -> Any:
    """The value of a JSON text in which nothing is ambiguous.

    Args:
        text: a line, or the content of a field.
        field: which one.

    Raises:
        FieldError: the text is not JSON, repeats a key of an object, or holds what cannot be
            written again: a number that is not finite, or half of a surrogate pair.
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=_object_without_repeated_keys,
            parse_constant=_reject_constant,
            parse_float=_finite_float,
        )
    except (ValueError, RecursionError) as error:
        raise FieldError(field, f"not valid JSON ({error}); mend it") from error
    if "\\ud" in text or "\\uD" in text:
        check_characters(json.dumps(data, ensure_ascii=False), field)
    return data


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r:.40} stands twice in one object")
    return data


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def check_characters(text: str, field: str) -> str:
    """The text; FieldError where it holds half of a surrogate pair, which UTF-8 cannot write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise FieldError(
            field, f"holds half of a surrogate pair ({half}), which is no character"
        ) from error
    return text


def check_object(value: Any, field: str) -> dict[str, Any]:
    """The object without the keys whose value is null, which count as absent."""
    if not isinstance(value, dict):
        raise FieldError(field, f"must be an object, not {_kind(value)}")
    return {key: x for key, x in value.items() if x is not None}


def check_list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise FieldError(field, f"must be a list, not {_kind(value)}")
    return value


def check_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise FieldError(field, f"must be a text, not {_kind(value)}")
    return check_characters(value, field)


def check_number(value: Any, field: str) -> float:
    """The number; integers become floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(field, f"must be a number, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FieldError(field, "must be a finite number")
    return number


def check_flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise FieldError(field, f"must be true or false, not {_kind(value)}")
    return value


def check_keys(data: dict[str, Any], allowed: Collection[str], field: str, remedy: str) -> None:
    """FieldError where the object has another key; `remedy` says what to do about it."""
    for key in data:
        if key not in allowed:
            raise FieldError(f"{field}.{key:.40}" if field else f"{key:.40}", remedy)


def _kind(value: Any) -> str:
    """The JSON type of a value, for messages: "a list"."""
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "a boolean",
        type(None): "null",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)
