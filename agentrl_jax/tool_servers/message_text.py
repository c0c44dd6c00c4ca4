"""The text of an observation's messages, as servers of environments send it."""

from typing import Any


def messages_text(messages: list[dict[str, Any]]) -> str:
    """The text of messages as JSON data."""
    return "\n".join(
        content
        if isinstance(content := message["content"], str)
        else "".join(part.get("text", "[image]") for part in content)
        for message in messages
    )
