"""`Message`: one OpenAI chat message."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
# A tool in OpenAI's JSON: {"type": "function", "function": {"name": ..., "parameters": ...}}.
ToolSchema = Mapping[str, Any]


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class ImagePart:
    """An image by URL; pixels are sent as a `data:` URL, so a message stays plain text."""

    url: str
    detail: str | None = None  # OpenAI's "low", "high" or "auto"

    def to_dict(self) -> dict[str, Any]:
        """The part in OpenAI's JSON format."""
        detail = {} if self.detail is None else {"detail": self.detail}
        return {"type": "image_url", "image_url": {"url": self.url, **detail}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ImagePart":
        """The inverse of `to_dict`, of a video too.

        Raises KeyError where a required field is missing.
        """
        if data["type"] == "video_url":
            video = data["video_url"]
            seconds, patch = tuple(video.get("seconds", ())), video.get("temporal_patch")
            return VideoPart(video["url"], seconds=seconds, temporal_patch=patch)
        return cls(data["image_url"]["url"], data["image_url"].get("detail"))


@dataclass(frozen=True)
class VideoPart(ImagePart):
    """A video by URL: an animated PNG, GIF or WebP, which counts as one image of its message."""

    seconds: tuple[float, ...] = ()  # the time of each frame; empty: the file's
    temporal_patch: int | None = None  # in `Call.images`: of which the tokens are; None: of all

    def to_dict(self) -> dict[str, Any]:
        """The part in the JSON format of vLLM and Qwen, with `seconds` added."""
        seconds = {"seconds": list(self.seconds)} if self.seconds else {}
        patch = {} if self.temporal_patch is None else {"temporal_patch": self.temporal_patch}
        return {"type": "video_url", "video_url": {"url": self.url, **seconds, **patch}}


@dataclass(frozen=True)
class ToolCall:
    """A function call requested by a model; `arguments` is a JSON object as text.

    Where the call is malformed, `error` says how, and `arguments` is the text that was written.
    """

    id: str
    name: str
    arguments: str
    error: str = ""


@dataclass(frozen=True)
class Message:
    """One chat message: a role, text or text, image and video parts, and an assistant's tool calls.

    `content` is what stands beside the tool calls. `raw_text` is the text that a policy wrote,
    where calls were parsed from it or it holds added tokens of its tokenizer; a renderer shows it
    as it is, and what spells such tokens in any other text as plain text.
    """

    role: Role
    content: str | tuple[TextPart | ImagePart, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    raw_text: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def full_text(self) -> str:
        """`raw_text` where there is one, else the text without the calls."""
        return self.text if self.raw_text is None else self.raw_text

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The image and video parts."""
        return (
            ()
            if isinstance(self.content, str)
            else tuple(part for part in self.content if isinstance(part, ImagePart))
        )

    def map_text(self, change: Callable[[str], str]) -> "str | tuple[TextPart | ImagePart, ...]":
        """The content with each of its texts changed."""
        if isinstance(self.content, str):
            return change(self.content)
        return tuple(
            TextPart(change(part.text)) if isinstance(part, TextPart) else part
            for part in self.content
        )

    def to_dict(self) -> dict[str, Any]:
        """The message in OpenAI's JSON format; `raw_text` and a call's `error` only where set."""
        content: Any = self.content
        if not isinstance(content, str):
            content = [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else part.to_dict()
                for part in content
            ]
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    **({"error": call.error} if call.error else {}),
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        if self.raw_text is not None:
            data["raw_text"] = self.raw_text
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Message":
        """The inverse of `to_dict`. Raises KeyError where a required field is missing."""
        content = data.get("content") or ""
        if not isinstance(content, str):
            content = tuple(
                TextPart(part["text"]) if part["type"] == "text" else ImagePart.from_dict(part)
                for part in content
            )
        calls = tuple(
            ToolCall(
                call["id"],
                call["function"]["name"],
                call["function"]["arguments"],
                call.get("error", ""),
            )
            for call in data.get("tool_calls") or ()
        )
        return cls(data["role"], content, calls, data.get("tool_call_id"), data.get("raw_text"))

    def replace(self, **changes: Any) -> "Message":
        return dataclasses.replace(self, **changes)


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def tool_result(call: ToolCall, text: str, images: Sequence[ImagePart] = ()) -> Message:
    """The message that answers a tool call."""
    content = (TextPart(text), *images) if images else text
    return Message("tool", content, tool_call_id=call.id)


def with_call_ids(message: Message, turn: int) -> Message:
    """The message with tool calls whose ids no other turn's have."""
    calls = (
        dataclasses.replace(call, id=f"call_{turn}_{i}")
        for i, call in enumerate(message.tool_calls)
    )
    return message.replace(tool_calls=tuple(calls)) if message.tool_calls else message


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def action_to_json(action: "Message | str") -> "str | dict[str, Any]":
    """An action as JSON data: its text where the message is nothing but that."""
    message = assistant(action) if isinstance(action, str) else action
    return message.text if message == assistant(message.text) else message.to_dict()


def action_from_json(data: "str | Mapping[str, Any]") -> Message:
    """The inverse of `action_to_json`."""
    return assistant(data) if isinstance(data, str) else Message.from_dict(data)
