"""Items of OpenAI's Responses API from and to messages."""

from collections.abc import Mapping
from typing import Any

from agentrl_jax.messages import Message, ToolCall


def input_message(item: Mapping[str, Any]) -> Message:
    """A message of a request's input; of content in parts the texts are joined."""
    content = item["content"]
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    role = "system" if item["role"] == "developer" else item["role"]
    return Message(role, content)


def chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function in the form of the chat completions API."""
    fields = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return {"type": "function", "function": fields}


def message_item(text: str, index: int) -> dict[str, Any]:
    """The text of an action as an item of a response's output."""
    content = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{index}",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }


def call_item(call: ToolCall) -> dict[str, Any]:
    """A call of a tool as an item of a response's output."""
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    }


def output_item(call: ToolCall, text: str) -> dict[str, Any]:
    """What a tool answered, as an item."""
    return {"type": "function_call_output", "call_id": call.id, "output": text}
