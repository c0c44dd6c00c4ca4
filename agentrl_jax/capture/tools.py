"""`ToolFormat`: how a model writes that it calls a tool, and how that is read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.messages import Message, ToolCall

Named = tuple[str, str]  # a function's name, and its arguments as JSON


@runtime_checkable
class ToolFormat(Protocol):
    def read(self, text: str) -> tuple[str, Sequence[Named]]:
        """What a model wrote, as what it says and what it calls; text that calls nothing properly is all said."""
        ...

    def write(self, content: str, calls: Sequence[ToolCall]) -> str:
        """What a model would have written."""
        ...


_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Hermes:
    """`<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`, as Qwen 2.5, Qwen 3 and Hermes write it."""

    def read(self, text: str) -> tuple[str, Sequence[Named]]:
        calls = []
        for found in _CALL.finditer(text):
            try:
                data = json.loads(found[1])
                name, arguments = data["name"], data.get("arguments", {})
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return text, ()
            if not isinstance(name, str) or not isinstance(arguments, dict):
                return text, ()
            calls.append((name, json.dumps(arguments, ensure_ascii=False)))
        return (_CALL.sub("", text).strip(), calls) if calls else (text, ())

    def write(self, content: str, calls: Sequence[ToolCall]) -> str:
        written = [f'<tool_call>\n{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}\n</tool_call>' for c in calls]
        return "\n".join([*([content] if content else []), *written])


def written(message: Message, form: ToolFormat) -> Message:
    """The message as the model would have written it: tool calls are part of its text."""
    if not message.tool_calls:
        return message
    return Message(message.role, form.write(message.text, message.tool_calls))


def canonical(message: Message) -> Message:
    """The message up to how the JSON of its tool calls is spaced and ordered, which clients change on the way."""
    if not message.tool_calls:
        return message
    return message.replace(tool_calls=tuple(ToolCall(c.id, c.name, _sorted(c.arguments)) for c in message.tool_calls))


def _sorted(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
