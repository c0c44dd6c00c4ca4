"""`ToolFormat`: how a model writes tool calls, and how they are parsed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.messages import Message, ToolCall

FunctionCall = tuple[str, str]  # a function's name, and its arguments as JSON


@runtime_checkable
class ToolFormat(Protocol):
    """Converts between text and tool calls."""

    def parse(self, text: str) -> tuple[str, Sequence[FunctionCall]]:
        """Split a completion into content and calls; without a well-formed call all is content."""
        ...

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """The text of a message with tool calls, as a model would write it."""
        ...


_TOOL_CALL_PATTERN = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class HermesToolFormat:
    """`<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`, as Qwen 2.5, Qwen 3 and
    Hermes write it.
    """

    def parse(self, text: str) -> tuple[str, Sequence[FunctionCall]]:
        calls = []
        for match in _TOOL_CALL_PATTERN.finditer(text):
            try:
                data = json.loads(match[1])
                name, arguments = data["name"], data.get("arguments", {})
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return text, ()
            if not isinstance(name, str) or not isinstance(arguments, dict):
                return text, ()
            calls.append((name, json.dumps(arguments, ensure_ascii=False)))
        return (_TOOL_CALL_PATTERN.sub("", text).strip(), calls) if calls else (text, ())

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        bodies = [f'{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}' for c in calls]
        rendered = [f"<tool_call>\n{body}\n</tool_call>" for body in bodies]
        return "\n".join([*([content] if content else []), *rendered])


def with_calls_as_text(message: Message, tool_format: ToolFormat) -> Message:
    """The message with its tool calls as part of its text, as the model would write it."""
    if not message.tool_calls:
        return message
    return Message(message.role, tool_format.render(message.text, message.tool_calls))


def canonicalize(message: Message) -> Message:
    """The message with sorted and evenly spaced JSON in its tool calls, which clients change."""
    if not message.tool_calls:
        return message
    return message.replace(
        tool_calls=tuple(
            ToolCall(c.id, c.name, _sort_json_keys(c.arguments)) for c in message.tool_calls
        )
    )


def _sort_json_keys(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
