"""The messages and tools of a chat request, parsed and validated."""

import json
import re
from collections.abc import Sequence
from typing import Any, get_args

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.request_fields import parse_name, parse_string
from agentrl_jax.capture.request_json import check_json_text
from agentrl_jax.messages import ImagePart, Message, Role, TextPart, ToolCall, VideoPart
from agentrl_jax.tools.json_schema import is_tool_schema

TOOL_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")  # as in OpenAI's API
MESSAGE_FIELDS = {"role", "content", "tool_calls", "tool_call_id"}
# Fields of a message that may only be empty.
EMPTY_MESSAGE_FIELDS = {"refusal", "annotations", "audio", "function_call", "name"}


def parse_tools(tools: Any, choice: Any) -> tuple[tuple[dict[str, Any], ...], bool]:
    """The tools of `tools` and `tool_choice`, and whether completions are searched for tool calls.

    Raises:
        APIError: they are invalid, or a call is forced.
    """
    if tools is None or tools == []:
        if choice not in (None, "none", "auto"):
            raise APIError("tool_choice needs tools", "tool_choice")
        return (), False
    if choice not in (None, "auto", "none"):
        raise APIError(
            "tool_choice must be auto or none: a call cannot be forced here",
            "tool_choice",
            "unsupported_parameter",
        )
    if not isinstance(tools, list) or not all(
        is_tool_schema(tool) and tool.get("type") == "function" for tool in tools
    ):
        raise APIError(
            'tools must be of the form {"type": "function", '
            '"function": {"name": ..., "parameters": ...}}',
            "tools",
        )
    for i, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool["function"]["name"]):
            field_path = f"tools[{i}].function.name"
            raise APIError(f"{field_path} must be 1 to 64 letters, digits, _ and -", field_path)
    parse_string(json.dumps(tools, ensure_ascii=False), "tools")
    return tuple(tools), choice != "none"


def parse_messages(value: Any) -> tuple[Message, ...]:
    """The messages of a chat. Raises APIError if they are invalid."""
    if not isinstance(value, list) or not value:
        raise APIError("messages must be a list of at least one message", "messages")
    return tuple(_message(data, f"messages[{i}]") for i, data in enumerate(value))


def check_arguments(messages: Sequence[Message], max_depth: int) -> None:
    """Raises APIError if the JSON of a tool call's arguments nests deeper than that."""
    for i, message in enumerate(messages):
        for j, call in enumerate(message.tool_calls):
            field_path = f"messages[{i}].tool_calls[{j}].function.arguments"
            check_json_text(call.arguments, field_path, max_depth)


def _message(data: Any, field_path: str) -> Message:
    if not isinstance(data, dict):
        raise APIError(f"{field_path} must be an object", field_path)
    role: Any = "system" if data.get("role") == "developer" else data.get("role")
    if role not in get_args(Role):
        raise APIError(
            f"{field_path}.role must be system, developer, user, assistant or tool",
            f"{field_path}.role",
        )
    for name in data.keys() - MESSAGE_FIELDS:
        # The name of a tool's message is that of its function, which the call names too.
        if name not in EMPTY_MESSAGE_FIELDS or (
            data[name] not in (None, []) and not (name == "name" and role == "tool")
        ):
            raise APIError(
                f"{field_path}.{name:.40} is not supported here: leave it out",
                f"{field_path}.{name[:40]}",
                "unsupported_parameter",
            )
    if data.get("name") not in (None, []):
        parse_name(data["name"], f"{field_path}.name")
    call_id = data.get("tool_call_id")
    return Message(
        role,
        _content(data.get("content"), role, f"{field_path}.content"),
        _tool_calls(data.get("tool_calls"), f"{field_path}.tool_calls"),
        None if call_id is None else parse_name(call_id, f"{field_path}.tool_call_id"),
    )


def _content(value: Any, role: Role, field_path: str) -> str | tuple[TextPart | ImagePart, ...]:
    values = [] if value is None else value
    if isinstance(value, str):
        values = [{"type": "text", "text": value}]
    if not isinstance(values, list):
        raise APIError(f"{field_path} must be a text, or a list of parts", field_path)
    parts = tuple(_part(part, f"{field_path}[{i}]") for i, part in enumerate(values))
    if not any(isinstance(part, ImagePart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    if role not in ("user", "tool"):
        kind = "a video" if any(isinstance(part, VideoPart) for part in parts) else "an image"
        raise APIError(f"{field_path} holds {kind}, which only a user or tool sends", field_path)
    return parts


def _part(value: Any, field_path: str) -> TextPart | ImagePart:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return TextPart(parse_string(value.get("text"), field_path))
    if kind == "video_url":
        return _video(value.get("video_url"), f"{field_path}.video_url")
    image = value.get("image_url") if kind == "image_url" else None
    if not isinstance(image, dict) or image.keys() - {"url", "detail"}:
        raise APIError(
            f'{field_path} must be {{"type": "text", "text": ...}}, '
            '{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}} or '
            '{"type": "video_url", "video_url": {"url": "data:image/png;base64,..."}}',
            field_path,
        )
    detail = image.get("detail")
    return ImagePart(
        parse_string(image.get("url"), f"{field_path}.image_url.url"),
        None if detail is None else parse_string(detail, f"{field_path}.image_url.detail"),
    )


def _video(value: Any, field_path: str) -> VideoPart:
    """A video as vLLM takes it; `seconds`, the time of each frame, may be added."""
    if not isinstance(value, dict) or value.keys() - {"url", "seconds"}:
        raise APIError(
            f'{field_path} must be {{"url": "data:image/png;base64,..."}}, to which "seconds", the '
            "time of each frame, may be added",
            field_path,
        )
    url, seconds = parse_string(value.get("url"), f"{field_path}.url"), value.get("seconds", [])
    if not isinstance(seconds, list) or not all(type(x) in (int, float) for x in seconds):
        raise APIError(f"{field_path}.seconds must be a list of numbers", f"{field_path}.seconds")
    return VideoPart(url, seconds=tuple(seconds))


def _tool_calls(value: Any, field_path: str) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    try:
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in value
        ]
        return tuple(
            ToolCall(
                parse_name(call_id, f"{field_path}[{i}].id"),
                parse_name(name, f"{field_path}[{i}].function.name"),
                parse_string(arguments, f"{field_path}[{i}].function.arguments"),
            )
            for i, (call_id, name, arguments) in enumerate(calls)
        )
    except (KeyError, TypeError):
        raise APIError(
            f"{field_path} must be function calls with id, name and arguments", field_path
        ) from None
