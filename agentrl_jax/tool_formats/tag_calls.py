"""Tool calls written in tags: Qwen3-Coder's functions and parameters, and one tag a tool."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.tool_formats.tool_format import (
    MalformedCall,
    ParsedCalls,
    argument_text,
    arguments_of,
    make_text_call,
    malformed_call,
    parsed_calls,
    single_argument,
)

_FUNCTION = re.compile(r"(?:<tool_call>\s*)?<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"\s*(?:<parameter=([^<>\n]*)>|(</function>(?:\s*</tool_call>)?))")
_PARAMETER_END = "</parameter>"


@dataclass(frozen=True)
class FunctionTagToolFormat:
    """`<function=add><parameter=a>1</parameter></function>`, as Qwen3-Coder writes it.

    `<tool_call>` around a function is optional. Values are bare texts, converted to the types of
    the tool's schema.
    """

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content: list[str] = []
        calls: list[ToolCall] = []
        position = 0
        while match := _FUNCTION.search(text, position):
            content.append(text[position : match.start()])
            try:
                arguments, position = _read_parameters(text, match.end())
                calls.append(make_text_call(match[1].strip(), arguments, tools))
            except _UnclosedTag as error:
                calls.append(malformed_call(text[match.start() :], str(error)))
                position = len(text)
            except MalformedCall as error:
                calls.append(malformed_call(text[match.start() : position], str(error)))
        return parsed_calls("".join([*content, text[position:]]), calls)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        return "\n".join([*filter(None, [content]), *map(_function_text, calls)])


class _UnclosedTag(MalformedCall):
    """A tag that is never closed: the rest of the text belongs to it."""


def _read_parameters(text: str, position: int) -> tuple[dict[str, str], int]:
    """The parameters from `position` to the function's end, and where that is."""
    arguments: dict[str, str] = {}
    while True:
        match = _PARAMETER.match(text, position)
        if match is None:
            raise _UnclosedTag("<parameter=...> or </function> is missing")
        if match[2]:
            return arguments, match.end()
        end = text.find(_PARAMETER_END, match.end())
        if end < 0:
            raise _UnclosedTag(f"there is no {_PARAMETER_END}")
        if match[1] in arguments:
            raise _UnclosedTag(f"the parameter {match[1]!r:.80} occurs twice")
        arguments[match[1]] = _without_line_feeds(text[match.end() : end])
        position = end + len(_PARAMETER_END)


def _without_line_feeds(text: str) -> str:
    """A value without the line feeds that set it off from its tags."""
    return text.removeprefix("\n").removesuffix("\n")


def _function_text(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{argument_text(value)}\n{_PARAMETER_END}\n"
        for name, value in arguments_of(call).items()
    )
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


@dataclass(frozen=True)
class TagToolFormat:
    """One tag a tool, which holds its only argument: `<search>red shoes</search>`."""

    # tag -> (tool, argument)
    tags: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {"search": ("search", "query")}
    )

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        names = "|".join(re.escape(tag) for tag in self.tags)
        start_tag = re.compile(f"<({names})>")
        content: list[str] = []
        calls: list[ToolCall] = []
        position = 0
        while match := start_tag.search(text, position):
            content.append(text[position : match.start()])
            end_tag = f"</{match[1]}>"
            end = text.find(end_tag, match.end())
            if end < 0:
                calls.append(malformed_call(text[match.start() :], f"there is no {end_tag}"))
                position = len(text)
                break
            calls.append(self._call(match[1], text[match.end() : end], tools))
            position = end + len(end_tag)
        return parsed_calls("".join([*content, text[position:]]), calls)

    def _call(self, tag: str, value: str, tools: Sequence[ToolSchema]) -> ToolCall:
        tool, argument = self.tags[tag]
        try:
            return make_text_call(tool, {argument: value.strip()}, tools)
        except MalformedCall as error:
            return malformed_call(value, str(error))

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        tag_of_tool = {tool: (tag, argument) for tag, (tool, argument) in self.tags.items()}
        texts = [content] if content else []
        for call in calls:
            if call.name not in tag_of_tool:
                raise UserError(f"this tag format has no tag for the tool {call.name!r}: add one")
            tag, argument = tag_of_tool[call.name]
            texts.append(f"<{tag}>{single_argument(call, argument)}</{tag}>")
        return "\n".join(texts)
