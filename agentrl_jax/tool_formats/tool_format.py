"""`ToolFormat`: how a model writes tool calls, and how they are parsed."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.tools.json_schema import coerce_text


@dataclass(frozen=True)
class ParsedCalls:
    """The calls of a text, in order, and the content beside them.

    A malformed call is among them: its `error` says what is wrong, its `arguments` are its text.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()


@runtime_checkable
class ToolFormat(Protocol):
    """Converts between text and tool calls, in time linear in the text."""

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        """Split a completion into content and calls; it raises nothing, whatever the text.

        Args:
            text: of an assistant message.
            tools: on offer; their schemas give the types of arguments that are written as text.
        """
        ...

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """The text of a message with tool calls, as a model would write it.

        Raises:
            UserError: the arguments of a call are not a JSON object, or do not fit the format.
        """
        ...


class MalformedCall(Exception):
    """The text of a call cannot be read; the message says why."""


def parsed_calls(content: str, calls: Sequence[ToolCall]) -> ParsedCalls:
    """The result of a parser: the calls get their ids, and content beside calls is stripped."""
    if not calls:
        return ParsedCalls(content)
    numbered = (dataclasses.replace(call, id=f"call_{i}") for i, call in enumerate(calls))
    return ParsedCalls(content.strip(), tuple(numbered))


def read_call(text: str, read: Callable[[str], ToolCall]) -> ToolCall:
    """What `read` makes of the text of a call; a malformed call where it raises MalformedCall."""
    try:
        return read(text)
    except MalformedCall as error:
        return malformed_call(text, str(error))


def malformed_call(text: str, error: str) -> ToolCall:
    return ToolCall("", "", text, error)


def make_call(name: Any, arguments: Any) -> ToolCall:
    """A call of these arguments. Raises MalformedCall where they are no JSON object."""
    if not isinstance(name, str) or not name:
        raise MalformedCall("the name must be a text")
    if not name.isprintable():
        raise MalformedCall("the name must not hold control characters")
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise MalformedCall("the arguments must be an object with names as keys")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        (name + text).encode()
    except RecursionError:
        raise MalformedCall("the arguments are nested too deep") from None
    except (TypeError, ValueError) as error:
        raise MalformedCall(f"the arguments are not JSON: {error}") from None
    return ToolCall("", name, text)


def make_text_call(
    name: str, arguments: Mapping[str, str], tools: Sequence[ToolSchema]
) -> ToolCall:
    """A call of arguments that are texts, each converted to the type that its tool declares."""
    properties = properties_of(name, tools)
    converted = {key: coerce_text(text, properties.get(key, {})) for key, text in arguments.items()}
    return make_call(name, converted)


def properties_of(name: str, tools: Sequence[ToolSchema]) -> Mapping[str, Any]:
    """The schemas of a tool's arguments; none where there is no such tool."""
    functions = [tool["function"] for tool in tools if tool["function"]["name"] == name]
    return functions[0].get("parameters", {}).get("properties", {}) if functions else {}


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends. Raises MalformedCall where there is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except RecursionError:
        raise MalformedCall("the JSON is nested too deep") from None
    except ValueError as error:
        raise MalformedCall(f"this is not valid JSON: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"the key {key!r:.80} occurs twice")
        data[key] = value
    return data


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_reject_constant)


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call. Raises UserError where they are no JSON object."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the arguments of a call of {call.name!r} are not JSON ({error!s:.100}): "
            "write them as a JSON object"
        ) from None
    if not isinstance(arguments, dict):
        raise UserError(f"the arguments of a call of {call.name!r} must be a JSON object")
    return arguments


def argument_text(value: Any) -> str:
    """An argument as bare text, from which `coerce_text` makes it again."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def single_argument(call: ToolCall, name: str) -> str:
    """The text of a call's only argument. Raises UserError where it has others, or is malformed."""
    arguments = arguments_of(call)
    if list(arguments) != [name]:
        raise UserError(
            f"a call of {call.name!r} has the arguments {list(arguments)}, and this tool format "
            f"writes {name!r} alone: choose another format"
        )
    return argument_text(arguments[name])
