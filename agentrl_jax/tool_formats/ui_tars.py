"""UI-TARS' actions: `Thought: ...` and `Action: click(start_box='(10,20)')`."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.tool_formats.tool_format import (
    MalformedCall,
    ParsedCalls,
    arguments_of,
    make_text_call,
    malformed_call,
    parsed_calls,
)

_MARKER = "Action:"
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*\(\s*")
_ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(['\"])")
# A quote ends a value where another argument or the end of the call follows: models do not escape
# every apostrophe of a text that they type.
_END = r"\s*(?:,\s*[A-Za-z_]\w*\s*=|\)\s*(?:\n|\Z))"
_VALUE = {
    quote: re.compile(rf"((?:[^\\{quote}]|\\.|{quote}(?!{_END}))*+){quote}(\s*,?\s*)", re.DOTALL)
    for quote in "'\""
}
_ESCAPE = re.compile(r"\\(['\"\\nt])")
_ESCAPED = {"n": "\n", "t": "\t"}
_BOX_TOKENS = re.compile(r"<\|box_(?:start|end)\|>")


@dataclass(frozen=True)
class UITarsToolFormat:
    """`Action: click(start_box='(10,20)')`, as UI-TARS (arXiv 2501.12326) writes it.

    The calls follow the last "Action:", separated by empty lines. Values are quoted texts, such as
    '(10,20)', '<|box_start|>(10,20)<|box_end|>' or '<point>10 20</point>'; where a tool's schema
    asks for an array, points and boxes become their numbers.
    """

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content, marker, body = text.rpartition(_MARKER)
        if not marker:
            return ParsedCalls(text)
        calls: list[ToolCall] = []
        body, position = body.rstrip(), 0
        while position < len(body) or not calls:
            try:
                call, position = _read_call(body, position, tools)
                calls.append(call)
            except MalformedCall as error:
                calls.append(malformed_call(body[position:].strip(), str(error)))
                break
        return parsed_calls(content, calls)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        actions = "\n\n".join(map(_call_text, calls))
        return "\n".join(filter(None, [content, f"{_MARKER} {actions}" if calls else ""]))


def _read_call(body: str, position: int, tools: Sequence[ToolSchema]) -> tuple[ToolCall, int]:
    """The call at `position` and where it ends."""
    match = _NAME.match(body, position)
    if match is None:
        raise MalformedCall("an action must be written as name(argument='value')")
    name, position = match[1], match.end()
    arguments: dict[str, str] = {}
    while not body.startswith(")", position):
        argument = _ARGUMENT.match(body, position)
        if argument is None:
            raise MalformedCall(f"an argument of {name:.80} must be written as name='value'")
        value = _VALUE[argument[2]].match(body, argument.end())
        if value is None:
            raise MalformedCall(f"the argument {argument[1]:.80} does not end in {argument[2]}")
        if argument[1] in arguments:
            raise MalformedCall(f"the argument {argument[1]:.80} occurs twice")
        arguments[argument[1]], position = _unescape(value[1]), value.end()
    return make_text_call(name, arguments, tools), position + 1


def _unescape(text: str) -> str:
    unescaped = _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)
    return _BOX_TOKENS.sub("", unescaped)


def _call_text(call: ToolCall) -> str:
    arguments = (f"{name}='{_escape(value)}'" for name, value in arguments_of(call).items())
    return f"{call.name}({', '.join(arguments)})"


def _escape(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(x, int | float) for x in value):
        return f"({','.join(map(str, value))})"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for character, escape in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(character, escape)
    return text
