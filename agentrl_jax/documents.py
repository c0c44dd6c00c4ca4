"""`Document`: what a policy is pretrained on, a text or a conversation."""

import json
from dataclasses import dataclass

from agentrl_jax.messages import Message, ToolSchema


@dataclass(frozen=True)
class ChatDocument:
    """A conversation, with the tools that it shows; the last message is an assistant's."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()

    @property
    def text(self) -> str:
        """Roles, texts, calls and tools, a line or more each, without a template's marks."""
        lines = ["tools", *map(json.dumps, self.tools)] if self.tools else []
        for message in self.messages:
            lines += [message.role, message.text]
            lines += [
                f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
                for call in message.tool_calls
            ]
        return "\n".join(line.removesuffix("\n") for line in lines)


Document = str | ChatDocument


def document_text(document: Document) -> str:
    return document if isinstance(document, str) else document.text
