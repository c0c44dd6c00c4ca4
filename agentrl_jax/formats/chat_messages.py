"""OpenAI's chat messages and tools as they stand in files: parsed, checked and written again."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentrl_jax.formats.field_checks import (
    FieldError,
    check_keys,
    check_list,
    check_object,
    check_text,
)
from agentrl_jax.messages import ImagePart, Message, Role, TextPart, ToolCall, VideoPart

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",  # what OpenAI's newer models call it
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
MESSAGE_KEYS = {"role", "content", "tool_calls", "tool_call_id", "weight", "name"}
EMPTY_KEYS = ("refusal", "annotations", "audio", "function_call")  # of OpenAI's answers
UNKNOWN_KEY = "is not supported and would change what the message means; leave it out"
ASSISTANT_KEYS = ("tool_calls", "weight")


class ChatMessage(NamedTuple):
    """A message, and whether it is one to learn: an assistant's without `weight: 0`."""

    message: Message
    is_action: bool


def parse_messages(value: Any, field: str) -> list[ChatMessage]:
    """The messages of a list in OpenAI's form; their order is checked by `check_order`.

    Raises:
        FieldError: a message is wrong; names its field.
    """
    items = check_list(value, field)
    parsed = [_parse_message(item, f"{field}[{i}]") for i, item in enumerate(items)]
    names = {call.id: call.name for message, _ in parsed for call in message.tool_calls}
    for i, (item, (message, _)) in enumerate(zip(items, parsed)):
        name = item.get("name")  # of a tool, implied by its call
        if name is not None and name != names.get(message.tool_call_id or "", name):
            raise FieldError(f"{field}[{i}].name", f"{name!r:.40} is not what its call names")
    return parsed


def _parse_message(value: Any, field: str) -> ChatMessage:
    data = check_object(value, field)
    for key in EMPTY_KEYS:
        if data.get(key) in ("", [], {}):
            del data[key]
    check_keys(data, MESSAGE_KEYS, field, UNKNOWN_KEY)
    role = ROLES.get(check_text(_required(data, "role", field), f"{field}.role"))
    if role is None:
        names = ", ".join(ROLES)
        raise FieldError(f"{field}.role", f"{data['role']!r:.40} is none of {names}")
    for key in ASSISTANT_KEYS:
        if key in data and role != "assistant":
            raise FieldError(f"{field}.{key}", f"belongs to an assistant, not to the role {role}")
    if "name" in data and role != "tool":
        raise FieldError(f"{field}.name", "names are not supported; write it into the content")
    if ("tool_call_id" in data) != (role == "tool"):
        raise FieldError(
            f"{field}.tool_call_id",
            "is missing; name the call that this message answers"
            if role == "tool"
            else f"belongs to a tool's message, not to the role {role}",
        )
    calls = _parse_calls(data.get("tool_calls", []), f"{field}.tool_calls")
    content = "" if calls else _required(data, "content", field)
    message = Message(
        role,
        _parse_content(data.get("content", content), role, f"{field}.content"),
        calls,
        check_text(data["tool_call_id"], f"{field}.tool_call_id") if role == "tool" else None,
    )
    return ChatMessage(message, role == "assistant" and _weight(data, field) == 1)


def _required(data: dict[str, Any], key: str, field: str) -> Any:
    if key not in data:
        raise FieldError(f"{field}.{key}", "is missing")
    return data[key]


def _weight(data: dict[str, Any], field: str) -> int:
    weight = data.get("weight", 1)
    if isinstance(weight, bool) or weight not in (0, 1):
        raise FieldError(f"{field}.weight", f"must be 0 (not trained) or 1, not {weight!r:.40}")
    return int(weight)


def _parse_content(value: Any, role: Role, field: str) -> str | tuple[TextPart | ImagePart, ...]:
    if not isinstance(value, list):
        return check_text(value, field)
    parts = tuple(_parse_part(part, f"{field}[{i}]") for i, part in enumerate(value))
    if not parts:
        raise FieldError(field, "is an empty list; write a text or at least one part")
    if role in ("system", "assistant") and any(isinstance(part, ImagePart) for part in parts):
        raise FieldError(field, f"holds an image, which the role {role} cannot send")
    return parts


def _parse_part(value: Any, field: str) -> TextPart | ImagePart:
    data = check_object(value, field)
    kind = _required(data, "type", field)
    if kind == "text":
        check_keys(data, {"type", "text"}, field, UNKNOWN_KEY)
        return TextPart(check_text(_required(data, "text", field), f"{field}.text"))
    if kind == "image_url":
        check_keys(data, {"type", "image_url"}, field, UNKNOWN_KEY)
        field = f"{field}.image_url"
        image = check_object(_required(data, "image_url", field.rpartition(".")[0]), field)
        check_keys(image, {"url", "detail"}, field, UNKNOWN_KEY)
        detail = check_text(image["detail"], f"{field}.detail") if "detail" in image else None
        return ImagePart(check_text(_required(image, "url", field), f"{field}.url"), detail)
    if kind == "video_url":
        return _parse_video(data, field)
    raise FieldError(f"{field}.type", f"{kind!r:.40} is none of text, image_url and video_url")


def _parse_video(data: dict[str, Any], field: str) -> VideoPart:
    check_keys(data, {"type", "video_url"}, field, UNKNOWN_KEY)
    video = check_object(_required(data, "video_url", field), f"{field}.video_url")
    field = f"{field}.video_url"
    check_keys(video, {"url", "seconds"}, field, UNKNOWN_KEY)
    seconds = check_list(video.get("seconds", []), f"{field}.seconds")
    if not all(type(x) in (int, float) for x in seconds):
        raise FieldError(f"{field}.seconds", "holds something that is no number")
    url = check_text(_required(video, "url", field), f"{field}.url")
    return VideoPart(url, seconds=tuple(seconds))


def _parse_calls(value: Any, field: str) -> tuple[ToolCall, ...]:
    items = enumerate(check_list(value, field))
    return tuple(_parse_call(item, f"{field}[{i}]") for i, item in items)


def _parse_call(value: Any, field: str) -> ToolCall:
    data = check_object(value, field)
    check_keys(data, {"id", "type", "function"}, field, UNKNOWN_KEY)
    if data.get("type", "function") != "function":
        raise FieldError(f"{field}.type", f"must be function, not {data['type']!r:.40}")
    inner = f"{field}.function"
    function = check_object(_required(data, "function", field), inner)
    check_keys(function, {"name", "arguments"}, inner, UNKNOWN_KEY)
    arguments = _required(function, "arguments", inner)
    if isinstance(arguments, dict):
        raise FieldError(f"{inner}.arguments", "must be a text that holds JSON, not an object")
    return ToolCall(
        check_text(_required(data, "id", field), f"{field}.id"),
        check_text(_required(function, "name", inner), f"{inner}.name"),
        check_text(arguments, f"{inner}.arguments"),
    )


def parse_tools(value: Any, field: str) -> tuple[dict[str, Any], ...]:
    """The tools of a record, each {"type": "function", "function": {"name": ..., ...}}, unchanged.

    Raises:
        FieldError: one has another form, or two have one name.
    """
    tools = check_list(value, field)
    names: list[str] = []
    for i, tool in enumerate(tools):
        data = check_object(tool, f"{field}[{i}]")
        if data.get("type") != "function":
            raise FieldError(f"{field}[{i}].type", "must be function")
        inner = f"{field}[{i}].function"
        function = check_object(_required(data, "function", f"{field}[{i}]"), inner)
        names.append(check_text(_required(function, "name", inner), f"{inner}.name"))
        if names[-1] in names[:-1]:
            raise FieldError(f"{inner}.name", f"{names[-1]!r:.40} is the name of an earlier tool")
    return tuple(tools)


def check_order(messages: Sequence[Message], fields: Sequence[str]) -> None:
    """FieldError where a message cannot follow those before it.

    System messages come first, and the calls of an assistant are answered, each once, before
    anything else is sent. A conversation may end with unanswered calls.

    Args:
        messages: of one conversation.
        fields: where each stands in its record.
    """
    unanswered: list[str] = []  # the ids of calls
    role_before: Role = "system"
    for message, field in zip(messages, fields, strict=True):
        if message.role == "system" and role_before != "system":
            raise FieldError(f"{field}.role", "a system message must come before all others")
        if message.role == "tool":
            if message.tool_call_id not in unanswered:
                raise FieldError(
                    f"{field}.tool_call_id",
                    f"{message.tool_call_id!r:.40} is no unanswered call of the assistant's "
                    "message before it",
                )
            unanswered.remove(message.tool_call_id)
        elif unanswered:
            raise FieldError(
                f"{field}.role",
                f"the call {unanswered[0]!r:.40} has no result; add a tool message before it",
            )
        for call in message.tool_calls:
            if call.id in unanswered:
                raise FieldError(f"{field}.tool_calls", f"two calls have the id {call.id!r:.40}")
            unanswered.append(call.id)
        role_before = message.role


def message_record(message: Message, is_action: bool) -> dict[str, Any]:
    """A message in OpenAI's form: role, content, tool_calls, tool_call_id, weight, in this order.

    The content is null where an assistant only calls tools; the weight is 0 for an assistant's
    message that is not trained, and absent elsewhere.
    """
    content: Any = message.content
    if not isinstance(content, str):
        content = [_part_record(part) for part in content]
    data: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        data["content"] = content or None
        data["tool_calls"] = list(map(_call_record, message.tool_calls))
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    if message.role == "assistant" and not is_action:
        data["weight"] = 0
    return data


def _part_record(part: TextPart | ImagePart) -> dict[str, Any]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else part.to_dict()


def _call_record(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
