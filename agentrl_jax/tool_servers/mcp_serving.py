"""Tools of this library as a server of MCP, over stdio or streamable HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.http_server import (
    JSONResponse,
    Request,
    check_key,
    read_body,
    serve_app,
)
from agentrl_jax.capture.request_json import parse_json
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ToolCall
from agentrl_jax.tools import Tool, ToolOutput

try:
    import mcp_types as types
    from mcp import MCPError, stdio_server
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
except ImportError as error:
    raise UserError("an MCP server needs the SDK of MCP: pip install 'agentrl_jax[mcp]'") from error

MAX_SESSIONS = 1024  # open at once; further clients are refused
SESSION_IDLE_SECONDS = 600.0
PATH = "/mcp"


def make_server(tools: Sequence[Tool], threads: ThreadPoolExecutor) -> Any:
    """The SDK's server of these tools, whose calls run in the threads."""
    tools_by_name = {tool.name: tool for tool in tools}
    listed = [
        types.Tool(name=t.name, description=t.description, input_schema=dict(t.parameters))
        for t in tools
    ]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        if params.name not in tools_by_name:
            known = ", ".join(tools_by_name)
            raise MCPError(
                types.INVALID_PARAMS, f"there is no tool {params.name!r:.80}; there are {known}"
            )
        call = ToolCall("", params.name, json.dumps(params.arguments or {}))
        run = tools_by_name[params.name].run
        try:
            output = await asyncio.get_running_loop().run_in_executor(threads, run, call)
        except (EnvironmentFailure, UserError, MemoryError) as error:
            raise MCPError(types.INTERNAL_ERROR, str(error) or type(error).__name__) from error
        return _result(output)

    return Server("agentrl_jax", on_list_tools=list_tools, on_call_tool=call_tool)


def _result(output: ToolOutput) -> types.CallToolResult:
    blocks: list[Any] = [types.TextContent(type="text", text=output.text)]
    for image in output.images:
        header, _, data = image.url.partition(",")
        mime_type = header.removeprefix("data:").partition(";")[0]
        if header.startswith("data:") and header.endswith(";base64"):
            blocks.append(types.ImageContent(type="image", data=data, mime_type=mime_type))
        else:
            blocks.append(types.TextContent(type="text", text=f"[image at {image.url:.500}]"))
    return types.CallToolResult(content=blocks, is_error=output.is_error)


async def serve_stdio(tools: Sequence[Tool], max_calls: int = 8) -> None:
    """Serve one client on stdin and stdout until it closes them.

    Args:
        tools: that the server offers.
        max_calls: that run at once; others wait.
    """
    threads = ThreadPoolExecutor(max_calls, "tools")
    try:
        server = make_server(tools, threads)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


class _GuardedApp:
    """The SDK's application behind the key and the limits of requests."""

    def __init__(self, manager: Any, key: bytes, limits: ServerLimits) -> None:
        self._manager, self._key, self._limits = manager, key, limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            check_key(request, self._key)
            if request.url.path != PATH:
                raise APIError(f"{request.url.path:.200} is not served here", status=404)
            body = await read_body(request, self._limits)
            if body:
                parse_json(body, self._limits)
        except APIError as error:
            await JSONResponse(error.body(), error.status, error.headers())(scope, receive, send)
            return
        is_read = False

        async def receive_again() -> Any:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._manager.handle_request(scope, receive_again, send)


@asynccontextmanager
async def serve_http(
    tools: Sequence[Tool],
    host: str,
    port: int,
    api_key: str,
    limits: ServerLimits = ServerLimits(),  # noqa: B008  it is not changed
    max_calls: int = 8,
) -> AsyncIterator[str]:
    """Serve over streamable HTTP while the block runs; yields the address that clients connect to.

    Args:
        tools: that the server offers.
        host: the address to listen on.
        port: 0 for any free port.
        api_key: the bearer token of clients; empty: none.
        limits: of connections and requests.
        max_calls: that run at once; others wait.

    Raises:
        UserError: the port is taken, or a limit is out of range.
    """
    threads = ThreadPoolExecutor(max_calls, "tools")
    manager = StreamableHTTPSessionManager(
        make_server(tools, threads),
        json_response=True,
        session_idle_timeout=SESSION_IDLE_SECONDS,
        max_request_body_size=limits.check().max_request_bytes,
        max_sessions=MAX_SESSIONS,
    )
    app = _GuardedApp(manager, api_key.encode(), limits)
    try:
        async with manager.run(), serve_app(app, host, port, "the MCP server", limits) as url:
            yield url + PATH
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
