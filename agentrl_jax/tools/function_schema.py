"""A typed Python function as a tool's name, description and JSON schema."""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolSchema


def describe_function(function: Callable[..., Any]) -> tuple[str, str, ToolSchema]:
    """The name, the docstring's description and the schema of the arguments.

    Raises:
        UserError: the docstring is missing, or an argument lacks a type that JSON has.
    """
    return _described(function.__func__ if inspect.ismethod(function) else function)


@functools.lru_cache(1024)
def _described(function: Callable[..., Any]) -> tuple[str, str, ToolSchema]:
    """Name, description and parameters of a function; `self` is left out."""
    name = function.__name__
    description, argument_texts = _parse_docstring(inspect.getdoc(function) or "")
    if not description:
        raise UserError(f"the tool {name} needs a docstring that says what it does")
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise UserError(f"the tool {name} must take {parameter.name} by its name")
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name not in hints:
            raise UserError(f"the tool {name} must give each argument a type: {parameter.name}")
        schema = _type_schema(hints[parameter.name], f"{parameter.name} of the tool {name}")
        if parameter.name in argument_texts:
            schema["description"] = argument_texts[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return name, description, parameters


_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^ +\*{0,2}(\w+)(?: *\([^)]*\))?: *(.*)$")


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and the text of each argument."""
    description, *sections = _SECTION.split(text)
    arguments: dict[str, str] = {}
    for title, body in zip(sections[::2], sections[1::2]):
        indent = min((len(s) - len(s.lstrip()) for s in body.splitlines() if s.strip()), default=0)
        name = ""
        for line in body.splitlines() if title == "Args" else ():
            match = _ARGUMENT.match(line)
            if match and len(line) - len(line.lstrip()) == indent:
                name = match[1]
                arguments[name] = match[2]
            elif name and line.strip():
                arguments[name] = f"{arguments[name]} {line.strip()}".strip()
    return " ".join(description.split()), arguments


_JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}


def _type_schema(annotation: Any, owner: str) -> dict[str, Any]:
    """The JSON schema of a type. Raises UserError where JSON has no such type."""
    if annotation is Any:
        return {}
    if annotation in _JSON_TYPES:
        return {"type": _JSON_TYPES[annotation]}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return {"enum": list(arguments), "type": _JSON_TYPES[type(arguments[0])]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(argument, owner) for argument in arguments]}
    if origin in (list, Sequence):
        return {"type": "array", "items": _type_schema(arguments[0], owner)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _type_schema(arguments[1], owner)}
    raise UserError(
        f"{owner} has the type {annotation}: use str, int, float, bool, None, Literal, lists, "
        "dicts with str keys, and unions of these"
    )
