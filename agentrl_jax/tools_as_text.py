"""Tools for chat templates that know none: described in a message, answered by the user."""

import json
from collections.abc import Sequence

from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall, ToolSchema, user
from agentrl_jax.tool_formats.tool_format import ToolFormat


def with_tools_as_text(
    messages: Sequence[Message], tools: Sequence[ToolSchema], tool_format: ToolFormat
) -> list[Message]:
    """The conversation without the role "tool".

    The tools are described at the start of the first message. Results, with a user message that
    follows them, are one user message: roles still alternate.
    """
    prepared: list[Message] = []
    follows_result = False
    for message in messages:
        if message.role == "tool":
            message = _joined("<tool_response>\n", message, "\n</tool_response>")
            is_result = True
        else:
            is_result = False
        if follows_result and message.role == "user":
            prepared[-1] = _joined(prepared[-1], "\n", message)
        else:
            prepared.append(message)
        follows_result = is_result
    if tools and prepared:
        description = describe_tools(tools, tool_format)
        content = _joined(f"{description}\n\n", prepared[0]).content
        prepared[0] = prepared[0].replace(content=content)
    return prepared


def _joined(*pieces: Message | str) -> Message:
    """A user message with the contents of messages and texts, one after the other."""
    if not any(isinstance(piece, Message) and piece.images for piece in pieces):
        return user("".join(x if isinstance(x, str) else x.text for x in pieces))
    parts: list[TextPart | ImagePart] = []
    for piece in pieces:
        content = piece if isinstance(piece, str) else piece.content
        parts += [TextPart(content)] if isinstance(content, str) else content
    return Message("user", tuple(parts))


def describe_tools(tools: Sequence[ToolSchema], tool_format: ToolFormat) -> str:
    """One line per tool, and how a call of the first is written."""
    functions = [tool["function"] for tool in tools]
    properties = functions[0].get("parameters", {}).get("properties", {})
    examples = {name: _example_value(schema) for name, schema in properties.items()}
    example = json.dumps(examples, ensure_ascii=False)
    call = tool_format.render("", (ToolCall("", functions[0]["name"], example),))
    lines = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    return f"You may call these tools:\n{lines}\nA call is written like this:\n{call}"


def _example_value(schema: ToolSchema) -> object:
    examples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return examples.get(str(schema.get("type")), "text")
