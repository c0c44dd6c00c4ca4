"""`Message`: one OpenAI chat message."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class ImagePart:
    """An image by URL; pixels are sent as a `data:` URL, so a message stays plain text."""

    url: str


@dataclass(frozen=True)
class ToolCall:
    """A function call requested by a model; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One chat message: a role, text or text and image parts, and an assistant's tool calls."""

    role: Role
    content: str | tuple[TextPart | ImagePart, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        return (
            ()
            if isinstance(self.content, str)
            else tuple(part for part in self.content if isinstance(part, ImagePart))
        )

    def to_dict(self) -> dict[str, Any]:
        """The message in OpenAI's JSON format."""
        content: Any = self.content
        if not isinstance(content, str):
            content = [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else {"type": "image_url", "image_url": {"url": part.url}}
                for part in content
            ]
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Message":
        """The inverse of `to_dict`. Raises KeyError where a required field is missing."""
        content = data.get("content") or ""
        if not isinstance(content, str):
            content = tuple(
                TextPart(part["text"])
                if part["type"] == "text"
                else ImagePart(part["image_url"]["url"])
                for part in content
            )
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in data.get("tool_calls") or ()
        )
        return cls(data["role"], content, calls, data.get("tool_call_id"))

    def replace(self, **changes: Any) -> "Message":
        return dataclasses.replace(self, **changes)


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]
