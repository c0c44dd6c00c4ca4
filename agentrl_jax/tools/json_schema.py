"""JSON schemas of tools' arguments: values checked, and bare texts converted to their types."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
# "(10,20)", "[10, 20, 30, 40]" or "<point>10 20</point>"
_NUMBERS = re.compile(
    r"(?:<\w+>|[\s(\[])*(-?\d+(?:\.\d+)?(?:[\s,]+-?\d+(?:\.\d+)?)*)(?:</\w+>|[\s)\]])*"
)
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}


def is_tool_schema(data: Any) -> bool:
    """Whether data from elsewhere are a tool in OpenAI's JSON format, whose arguments' schema the
    functions below can read.
    """
    function = data.get("function") if isinstance(data, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return False
    try:
        return _is_schema(function.get("parameters", {}))
    except RecursionError:
        return False


def _is_schema(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    types = data.get("type", [])
    types = [types] if isinstance(types, str) else types
    required, options = data.get("required", []), data.get("anyOf", [])
    properties = data.get("properties", {})
    if not all(isinstance(part, list) for part in (types, required, options, data.get("enum", []))):
        return False
    if not isinstance(properties, dict) or not all(isinstance(x, str) for x in types + required):
        return False
    parts = [data[key] for key in ("items", "additionalProperties") if key in data]
    if isinstance(data.get("additionalProperties"), bool):
        parts.pop()
    return all(map(_is_schema, (*parts, *options, *properties.values())))


def violation(value: Any, schema: Schema, name: str) -> str | None:
    """Why a value does not fit a schema, in one sentence; None: it fits.

    Read are `type`, `enum`, `anyOf`, `items`, `properties`, `required` and `additionalProperties`;
    other keywords constrain nothing.

    Args:
        value: JSON data.
        schema: a JSON schema.
        name: what the sentence calls the value.
    """
    if "anyOf" in schema:
        reasons = [violation(value, option, name) for option in schema["anyOf"]]
        return None if None in reasons else f"{name} must be {_description(schema)}"
    if not _has_type(value, schema):
        return f"{name} must be {_description(schema)}, not {_abbreviated(value)}"
    if "enum" in schema and value not in schema["enum"]:
        options = ", ".join(map(_abbreviated, schema["enum"]))
        return f"{name} must be one of {options}, not {_abbreviated(value)}"
    if isinstance(value, list) and "items" in schema:
        reasons = (violation(x, schema["items"], f"{name}[{i}]") for i, x in enumerate(value))
        return next(filter(None, reasons), None)
    if isinstance(value, dict):
        return _object_violation(value, schema, name)
    return None


def _object_violation(value: Mapping[str, Any], schema: Schema, name: str) -> str | None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    missing = [key for key in schema.get("required", ()) if key not in value]
    if missing:
        return f"{name} lacks {', '.join(missing)}"
    extra = schema.get("additionalProperties", True)
    unknown = [key for key in value if key not in properties]
    if unknown and extra is False:
        known = ", ".join(properties) or "none"
        return f"{name} has no {_abbreviated(unknown[0])}: there is {known}"
    schemas = {key: properties.get(key, extra if isinstance(extra, dict) else {}) for key in value}
    reasons = (violation(value[key], schemas[key], key) for key in value)
    return next(filter(None, reasons), None)


def coerce_text(text: str, schema: Schema) -> Any:
    """A bare text as a value of the schema's type; the text itself where it is none.

    "3" -> 3 for an integer; "(10,20)" -> [10, 20] for an array of numbers.
    """
    options = schema.get("anyOf", [schema])
    if any(not _types(option) or "string" in _types(option) for option in options):
        return text
    candidates = [reading for reading in _readings(text) if violation(reading, schema, "") is None]
    return candidates[0] if candidates else text


def _readings(text: str) -> list[Any]:
    """What a text may stand for: a constant, JSON, or the numbers of a point or box."""
    stripped = text.strip()
    readings: list[Any] = []
    if stripped.lower() in _CONSTANTS:
        readings.append(_CONSTANTS[stripped.lower()])
    try:
        value = json.loads(stripped, parse_constant=_reject_constant)
        is_whole = isinstance(value, float) and value.is_integer()
        readings += [int(value), value] if is_whole else [value]
    except (ValueError, RecursionError):
        pass
    match = _NUMBERS.fullmatch(stripped)
    if match:
        readings.append([json.loads(_plain(number)) for number in re.split(r"[\s,]+", match[1])])
    return readings


def _plain(number: str) -> str:
    """A number without leading zeros, which JSON does not permit."""
    return re.sub(r"^(-?)0+(?=\d)", r"\1", number)


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _types(schema: Schema) -> Sequence[str]:
    declared = schema.get("type", ())
    return [declared] if isinstance(declared, str) else declared


def _has_type(value: Any, schema: Schema) -> bool:
    types = _types(schema)
    if not types or any(t not in _TYPES for t in types):
        return True
    if isinstance(value, bool):
        return "boolean" in types
    return any(isinstance(value, _TYPES[t]) for t in types)


def _description(schema: Schema) -> str:
    """ "an integer", "a string or null" """
    options = schema.get("anyOf", [schema])
    names = [name for option in options for name in _types(option)] or ["another value"]
    articles = {"integer": "an integer", "array": "an array", "object": "an object", "null": "null"}
    return " or ".join(articles.get(name, f"a {name}") for name in names)


def _abbreviated(value: Any) -> str:
    """A value in a message, cut short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:80]}..."
