"""`MessageEscaper`: messages and tools in which added tokens from outside are plain text."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.added_tokens import escape_json
from agentrl_jax.messages import Message, ToolCall, ToolSchema
from agentrl_jax.tool_formats import ToolFormat
from agentrl_jax.tool_formats.tool_format import arguments_of

Escape = Callable[[str], str]


@dataclass(frozen=True)
class MessageEscaper:
    """Writes messages as texts, in which only what the policy wrote spells added tokens."""

    tool_format: ToolFormat
    escape: Escape  # all added tokens
    escape_written: Escape  # those that no policy writes within a message

    def message(self, message: Message) -> Message:
        """The message with its tool calls in its text, and all that spells added tokens escaped."""
        is_action = message.role == "assistant"
        content = (
            self.action(message, self.escape)
            if is_action
            else message.map_text(self.escape)
            if message.images
            else self.escape(message.text)
        )
        call_id = message.tool_call_id
        return Message(
            message.role, content, tool_call_id=None if call_id is None else self.escape(call_id)
        )

    def action(self, message: Message, escape_content: Escape) -> str:
        """The message as the policy wrote it, or would.

        What a call holds is always escaped, the tokens of the format never.
        """
        if message.raw_text is not None:
            return self.escape_written(message.raw_text)
        content = escape_content(message.text)
        if not message.tool_calls:
            return content
        return self.tool_format.render(content, [self._call(call) for call in message.tool_calls])

    def tools(self, tools: Sequence[ToolSchema]) -> list[Any]:
        return [escape_json(tool, self.escape) for tool in tools]

    def _call(self, call: ToolCall) -> ToolCall:
        decoded = arguments_of(call)
        escaped = escape_json(decoded, self.escape)
        # A token may be spelled with JSON's escapes, or in a key that is decoded only once.
        arguments = (
            self.escape(call.arguments)
            if escaped == decoded
            else json.dumps(escaped, ensure_ascii=False)
        )
        return dataclasses.replace(call, name=self.escape(call.name), arguments=arguments)
