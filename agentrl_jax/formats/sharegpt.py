"""ShareGPT's conversations: [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}].

Calls and their results stand in messages of their own, as LLaMA-Factory writes them:
{"from": "function_call", "value": "{\\"name\\": ..., \\"arguments\\": {...}}"} and
{"from": "observation", "value": "..."}.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentrl_jax.formats.chat_messages import ChatMessage
from agentrl_jax.formats.chat_record import episode
from agentrl_jax.formats.field_checks import (
    FieldError,
    check_keys,
    check_list,
    check_object,
    check_text,
    parse_json,
)
from agentrl_jax.messages import Message, ToolCall, assistant, user
from agentrl_jax.trajectories import Trajectory

USER, ASSISTANT = ("human", "user"), ("gpt", "assistant", "model")
CALL, RESULT = ("function_call",), ("observation", "tool", "function_response")
SPEAKERS = ("system", *USER, *ASSISTANT, *CALL, *RESULT)


def sharegpt_trajectory(data: Mapping[str, Any]) -> Trajectory:
    """The trajectory of `conversations`, with the text of `system`, if any, before them.

    Raises:
        FieldError: a field is missing or wrong.
    """
    messages, fields, unanswered = list[ChatMessage](), list[str](), list[str]()
    if data.get("system"):
        system = Message("system", check_text(data["system"], "system"))
        messages.append(ChatMessage(system, False))
        fields.append("system")
    for i, item in enumerate(check_list(data["conversations"], "conversations")):
        fields.append(f"conversations[{i}]")
        message = _parse_message(item, fields[-1], f"call_{i}", unanswered)
        messages.append(ChatMessage(message, message.role == "assistant"))
    return episode(messages, fields, data)


def _parse_message(item: Any, field: str, call_id: str, unanswered: list[str]) -> Message:
    """A message; a call gets the id, and a result answers the first of the unanswered ids."""
    data = check_object(item, field)
    check_keys(data, {"from", "value", "weight"}, field, "is not supported; leave it out")
    if data.get("weight", 1) != 1:
        raise FieldError(f"{field}.weight", "is supported in `messages` alone")
    for key in ("from", "value"):
        if key not in data:
            raise FieldError(f"{field}.{key}", "is missing")
    speaker, text = data["from"], check_text(data["value"], f"{field}.value")
    if speaker == "system":
        return Message("system", text)
    if speaker in USER:
        return user(text)
    if speaker in ASSISTANT:
        return assistant(text)
    if speaker in CALL:
        unanswered.append(call_id)
        return assistant("").replace(tool_calls=(_parse_call(text, f"{field}.value", call_id),))
    if speaker in RESULT:
        return Message("tool", text, tool_call_id=unanswered.pop(0) if unanswered else "")
    raise FieldError(f"{field}.from", f"{speaker!r:.40} is none of {', '.join(SPEAKERS)}")


def _parse_call(text: str, field: str, call_id: str) -> ToolCall:
    call = check_object(parse_json(text, field), field)
    check_keys(call, {"name", "arguments"}, field, "is not supported; leave it out")
    arguments = call.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call_id, check_text(call.get("name"), f"{field}.name"), arguments)
