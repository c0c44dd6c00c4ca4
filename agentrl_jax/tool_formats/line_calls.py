"""Tool calls that are lines of text: fenced code, and commands with a bracket."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.tool_formats.tool_format import (
    MalformedCall,
    ParsedCalls,
    make_text_call,
    malformed_call,
    parsed_calls,
    single_argument,
)

_FENCE = re.compile(r"^```[ \t]*([\w+#.-]*)[ \t]*$", re.MULTILINE)
_FENCE_END = re.compile(r"^```[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class FencedCodeToolFormat:
    """A block of code in a fence, "```python", is a call of one tool; other blocks are content."""

    tool: str = "python"
    argument: str = "code"
    languages: tuple[str, ...] = ("python", "py")  # the first is written

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content: list[str] = []
        calls: list[ToolCall] = []
        position = 0
        while match := _FENCE.search(text, position):
            end = _FENCE_END.search(text, match.end())
            is_call = match[1].lower() in self.languages
            if end is None:
                if is_call:
                    content.append(text[position : match.start()])
                    error = "the block of code does not end in a line ```"
                    calls.append(malformed_call(text[match.start() :], error))
                    position = len(text)
                break
            if is_call:
                content.append(text[position : match.start()])
                code = text[match.end() + 1 : max(match.end() + 1, end.start() - 1)]
                calls.append(_text_call(self.tool, self.argument, code, tools))
            else:
                content.append(text[position : end.end()])
            position = end.end()
        return parsed_calls("".join([*content, text[position:]]), calls)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        blocks = [
            f"```{self.languages[0]}\n{single_argument(call, self.argument)}\n```" for call in calls
        ]
        return "\n".join([*filter(None, [content]), *blocks])


_COMMAND = re.compile(r"[ \t]*(Action(?: \d+)?:)?[ \t]*(?:([A-Za-z_]\w*)\[)?")


@dataclass(frozen=True)
class BracketToolFormat:
    """`search[red shoes]`, as ReAct (arXiv 2210.03629) and WebShop (arXiv 2207.01206) write it.

    A command is a line of its own, with or without "Action:" or "Action 1:" before it.
    """

    # tool -> its only argument
    arguments: Mapping[str, str] = field(
        default_factory=lambda: {"search": "query", "click": "target"}
    )

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content: list[str] = []
        calls: list[ToolCall] = []
        for line in text.split("\n"):
            match = _COMMAND.match(line)
            assert match is not None  # every part of it is optional
            if match[1] or match[2] in self.arguments:
                calls.append(self._call(match[2], line.rstrip(), match.end(), tools))
            else:
                content.append(line)
        return parsed_calls("\n".join(content), calls)

    def _call(
        self, name: str | None, line: str, start: int, tools: Sequence[ToolSchema]
    ) -> ToolCall:
        if name is None or name not in self.arguments:
            commands = ", ".join(f"{tool}[...]" for tool in self.arguments)
            return malformed_call(line, f"there is no such action: there are {commands}")
        if not line.endswith("]") or len(line) <= start:
            return malformed_call(line, f"{name}[...] does not end in ]")
        return _text_call(name, self.arguments[name], line[start:-1], tools)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        return "\n".join([*filter(None, [content]), *map(self._line, calls)])

    def _line(self, call: ToolCall) -> str:
        if call.name not in self.arguments:
            raise UserError(f"this bracket format has no command {call.name!r}: add its argument")
        return f"{call.name}[{single_argument(call, self.arguments[call.name])}]"


def _text_call(tool: str, argument: str, text: str, tools: Sequence[ToolSchema]) -> ToolCall:
    try:
        return make_text_call(tool, {argument: text}, tools)
    except MalformedCall as error:
        return malformed_call(text, str(error))


def unfenced(text: str, *languages: str) -> str:
    """The content of a fenced block, of one of the languages or of none, where the text is one."""
    pattern = rf"\s*```(?:{'|'.join(languages)})?[ \t]*\n(.*?)\n?```\s*"
    match = re.fullmatch(pattern, text, re.DOTALL)
    return match[1] if match else text
