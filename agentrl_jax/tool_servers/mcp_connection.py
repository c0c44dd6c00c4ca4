"""`McpConnection`: a session with an MCP server, on an event loop in a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.tool_servers.access import key_of
from agentrl_jax.tool_servers.mcp_config import McpServer

try:
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, REQUEST_TIMEOUT

    from agentrl_jax.tool_servers.byte_limit import ResponseWatch
    from agentrl_jax.tool_servers.mcp_results import output_of, selected_tools
    from agentrl_jax.tool_servers.stdio_transport import ServerProcess, open_stdio, start_process
except ImportError as error:
    raise UserError("an MCP server needs the SDK of MCP: pip install 'agentrl_jax[mcp]'") from error

from agentrl_jax.tools import Tool, ToolOutput

GRACE_SECONDS = 10.0  # beyond a call's own times, for a busy machine


class McpConnection:
    """An open session; `tools` are the server's.

    A server that ends, hangs or answers nonsense is a failure of the environment; from then on the
    connection `is_broken`, and all its calls fail.
    """

    def __init__(self, server: McpServer) -> None:
        """Start or reach the server, and ask for its tools.

        Raises:
            UserError: the command cannot be started, the server refuses the token, or a tool that
                the config names is not there.
            EnvironmentFailure: the server ended, or did not answer as a server of MCP.
            DeadlineExceeded: it has not named its tools within `start_seconds`.
        """
        self.server = server.check()
        self.tools: tuple[Tool, ...] = ()
        self.is_broken = False
        self._key = key_of(server.token_variable, server.name)
        self._client: Any = None
        self._process: ServerProcess | None = None
        self._watch: ResponseWatch | None = None
        self._error: Exception | None = None
        self._opened = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=server.name[:60], daemon=True)
        self._thread.start()
        self._opened.wait(server.start_seconds + GRACE_SECONDS)
        if not self.tools:
            self.close()
            raise self._error or self._late("has not named its tools", server.start_seconds)

    @property
    def pid(self) -> int | None:
        """The process of a server that was started."""
        return self._process.pid if self._process else None

    def call(self, tool: Any, arguments: dict[str, Any]) -> ToolOutput:
        """The output of a call of one of its tools, whose name is the server's.

        Raises:
            EnvironmentFailure, DeadlineExceeded, UserError: see the class.
        """
        lost = EnvironmentFailure(f"the connection to {self.server.name} is lost", "lost")
        if self.is_broken:
            raise lost
        coroutine = self._call(tool, arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop has just been closed
            coroutine.close()
            raise lost from None
        seconds = self.server.call_seconds + self.server.probe_seconds + GRACE_SECONDS
        try:
            return future.result(seconds)
        except CancelledError:
            raise lost from None
        except TimeoutError:
            future.cancel()
            self.is_broken = True
            raise self._late(f"did not answer a call of {tool}", seconds) from None

    def close(self) -> None:
        """End the session, and the process of a server that was started."""
        self.is_broken = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(GRACE_SECONDS)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._error = self._error or self._explained(error)
        finally:
            self.is_broken = True
            self._opened.set()

    async def _serve(self) -> None:
        """Open the session and keep it until `close`; closing must happen in the same task."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.server.start_seconds):
                    transport = await stack.enter_async_context(self._transport())
                    self._client = await stack.enter_async_context(Client(transport, cache=None))
                    self.tools = await self._list_tools()
            except TimeoutError:
                self._error = self._late("has not named its tools", self.server.start_seconds)
                return
            except Exception as error:
                self._error = self._explained(error)
                return
            self._opened.set()
            await self._closing.wait()

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if not self.server.url:
            self._process = await start_process(self.server)
            yield open_stdio(self._process)
            return
        self._watch = ResponseWatch(self._key, self.server)
        async with self._watch.client() as client:
            yield streamable_http_client(self.server.url, http_client=client)

    async def _list_tools(self) -> tuple[Tool, ...]:
        listed, cursor = [], None
        while len(listed) <= self.server.max_tools:
            page = await self._client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        if not listed or len(listed) > self.server.max_tools:
            count = f"more than {self.server.max_tools}" if listed else "no"
            raise UserError(f"{self.server.name} has {count} tools, where max_tools is the most")
        return tuple(
            self._tool(name, tool) for name, tool in selected_tools(listed, self.server).items()
        )

    def _tool(self, name: str, tool: Any) -> Tool:
        def run(**arguments: Any) -> ToolOutput:
            return self.call(tool.name, arguments)

        seconds = self.server.call_seconds + self.server.probe_seconds + 2 * GRACE_SECONDS
        text = (tool.description or tool.title or "")[:4000]
        return Tool(name, text, tool.input_schema, run, seconds, self.server.max_characters)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ToolOutput:
        seconds = self.server.call_seconds
        try:
            return output_of(
                await self._client.call_tool(tool, arguments, read_timeout_seconds=seconds)
            )
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                return ToolOutput(f"Error: {error.message}", True)
            if error.code == REQUEST_TIMEOUT:
                return await self._late_output(tool)
            failure = self._explained(error)
        except Exception as error:
            failure = self._explained(error)
        self.is_broken = True
        raise failure

    async def _late_output(self, tool: str) -> ToolOutput:
        """What the policy sees where the server works on; a server that does not has failed."""
        try:
            async with asyncio.timeout(self.server.probe_seconds):
                await self._client.list_tools()
        except TimeoutError:
            self.is_broken = True
            raise self._late(f"hangs since a call of {tool}", self.server.call_seconds) from None
        except Exception as error:
            self.is_broken = True
            raise self._explained(error) from error
        return ToolOutput(f"Error: {tool} took longer than {self.server.call_seconds:g} s", True)

    def _late(self, what: str, seconds: float) -> DeadlineExceeded:
        end = self._process.description if self._process else ""
        return DeadlineExceeded(
            f"{self.server.name} {what} within {seconds:g} s{end and f': {end}'}"
        )

    def _explained(self, error: BaseException) -> Exception:
        """The failure for what the SDK raised."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, UserError | EnvironmentFailure):
            return error
        reason = self._watch.problem() if self._watch else None
        if isinstance(reason, Exception):
            return reason
        name = self.server.name
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            flood = self._process is not None and self._process.is_flood
            how = (self._process.description if self._process else "") or error.message
            return EnvironmentFailure(f"{name} has ended: {how}", "flood" if flood else "died")
        if isinstance(error, MCPError):
            return EnvironmentFailure(f"{name} answered with an error: {error.message:.500}")
        kind = "nonsense" if isinstance(error, ValueError | RuntimeError) else "died"
        text = " ".join(str(error).split())
        return EnvironmentFailure(f"{name} failed: {type(error).__name__}: {text:.500}", kind)
