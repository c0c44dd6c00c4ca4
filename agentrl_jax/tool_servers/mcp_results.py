"""What an MCP server names and answers, as tools and outputs of this library."""

import json
import re
from collections.abc import Iterable
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.tools import ToolOutput
from agentrl_jax.tools.json_schema import is_tool_schema

MAX_DESCRIPTION = 4000  # characters
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")  # the rule of OpenAI's API for tools


def selected_tools(listed: Iterable[Any], server: McpServer) -> dict[str, Any]:
    """A server's tools by the names that the policy sees, in the server's order.

    Raises:
        UserError: a tool of the config is not there, or two have the same name.
        EnvironmentFailure: a schema is none.
    """
    tools: dict[str, Any] = {}
    listed = list(listed)
    missing = [name for name in server.tools if name not in [t.name for t in listed]]
    if missing:
        known = ", ".join(t.name for t in listed) or "none"
        raise UserError(f"{server.name} has no tool {missing[0]!r}; it has {known:.500}")
    for tool in listed:
        if server.tools and tool.name not in server.tools:
            continue
        name = _NO_NAME.sub("_", tool.name)[:64]
        if name in tools:
            raise UserError(f"{server.name} has two tools that are called {name}: choose by tools=")
        tool.input_schema = plain_schema(tool.input_schema)
        function = {"name": name, "parameters": tool.input_schema}
        if not name or not is_tool_schema({"type": "function", "function": function}):
            raise EnvironmentFailure(
                f"{server.name} has a tool {tool.name!r:.80} whose schema is none: "
                f"{tool.input_schema!r:.300}",
                "nonsense",
            )
        tools[name] = tool
    return tools


def plain_schema(schema: Any, depth: int = 32) -> Any:
    """A JSON schema with {} where it has `true`, which means the same, below a keyword."""
    if not isinstance(schema, dict) or not depth:
        return schema
    plain = dict(schema)
    if isinstance(schema.get("properties"), dict):
        plain["properties"] = {
            name: {} if value is True else plain_schema(value, depth - 1)
            for name, value in schema["properties"].items()
        }
    if "items" in schema:
        is_any = schema["items"] is True
        plain["items"] = {} if is_any else plain_schema(schema["items"], depth - 1)
    return plain


def output_of(result: Any) -> ToolOutput:
    """The output of a call from the SDK's `CallToolResult`.

    Texts are joined by line feeds and images become parts; of audio and links there is a line.
    """
    lines, images = [], []
    for block in result.content:
        match block.type:
            case "text":
                lines.append(block.text)
            case "image":
                images.append(ImagePart(f"data:{block.mime_type};base64,{block.data}"))
            case "audio":
                lines.append(f"[audio of type {block.mime_type}, which is not shown]")
            case "resource_link":
                lines.append(f"[link to {block.uri}]")
            case "resource":
                content = block.resource
                text = getattr(content, "text", None)
                lines.append(text or f"[data of type {content.mime_type}, which is not shown]")
    if not result.content and result.structured_content is not None:
        lines.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolOutput("\n".join(lines), bool(result.is_error), tuple(images))
