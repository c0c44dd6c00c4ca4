"""`open_stdio`: an MCP server as a child process, with a bound on its messages and a known end.

The process stays in this process group, so that it is killed with a worker that is.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agentrl_jax.errors import UserError
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.workers.variables import worker_variables

EXIT_SECONDS = 2.0  # that it gets after its stdin is closed, and again after SIGTERM
MAX_OUTPUT_BYTES = 1000  # kept of the end of its stderr, and of a line that is no message


class ServerProcess:
    """A server's process and what is known about its end."""

    def __init__(self, process: asyncio.subprocess.Process, max_line_bytes: int) -> None:
        self._process, self._max_line_bytes = process, max_line_bytes
        self._stderr = self._invalid_line = b""
        self._stderr_end = asyncio.Event()
        self._is_silent = False  # its stdout is at its end
        self._final = ""  # its description before it was stopped
        self.is_flood = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def description(self) -> str:
        """How it ended, and what it printed last; empty where nothing is known."""
        if self._final:
            return self._final
        code, parts = self._process.returncode, []
        if self.is_flood:
            parts.append(f"it sent a message of more than {self._max_line_bytes:,} bytes")
        elif code is not None:
            parts.append(f"killed by signal {-code}" if code < 0 else f"its exit status is {code}")
        elif self._is_silent:
            parts.append("it has closed its stdout")
        if self._invalid_line:
            text = self._invalid_line.decode(errors="replace").strip()
            parts.append(f"it sent a line that is no message: {text!r:.300}")
        if self._stderr.strip():
            lines = self._stderr.decode(errors="replace").split("\n")
            text = " | ".join(filter(None, (" ".join(line.split()) for line in lines)))
            parts.append(f"it printed last: {text[-300:]}")
        return "; ".join(parts)

    async def read_messages(self, messages: Any) -> None:
        """Pass on what it sends until it ends, or sends too much."""
        assert self._process.stdout is not None
        async with messages:
            while True:
                try:
                    line = await self._process.stdout.readline()
                except ValueError:  # asyncio's word for a line above the limit
                    self.is_flood = True
                    return
                if not line:
                    self._is_silent = True
                    if await self.wait_for_exit(0.5):  # so that its status and last words are known
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self._stderr_end.wait(), 0.5)
                    return
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await messages.send(self._parse(line))

    def _parse(self, line: bytes) -> "SessionMessage | Exception":
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            self._invalid_line = line[:MAX_OUTPUT_BYTES]
            return error

    async def write_messages(self, messages: Any) -> None:
        """Send the session's messages to it until the session or the process ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            async with messages:
                async for message in messages:
                    data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._process.stdin.write(data.encode() + b"\n")
                    await self._process.stdin.drain()

    async def read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(2**16):
            self._stderr = (self._stderr + data)[-MAX_OUTPUT_BYTES:]
        self._stderr_end.set()

    async def wait_for_exit(self, seconds: float) -> bool:
        """Whether it ended within so long; its children may hold its pipes open."""
        deadline = time.monotonic() + seconds
        while self._process.returncode is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self._process.returncode is not None

    async def stop(self) -> None:
        """Close its stdin, which asks it to end; then SIGTERM, then SIGKILL."""
        assert self._process.stdin is not None
        self._final = self.description
        self._process.stdin.close()
        for end in (self._process.terminate, self._process.kill):
            if await self.wait_for_exit(EXIT_SECONDS):
                break
            with contextlib.suppress(ProcessLookupError):
                end()
        await self.wait_for_exit(EXIT_SECONDS)
        # Pipes that its children hold open would keep asyncio's transport open for ever.
        with contextlib.suppress(AttributeError, PermissionError):
            self._process._transport.close()  # type: ignore[attr-defined]


async def start_process(server: McpServer) -> ServerProcess:
    """The server's process. Raises UserError where its command cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *server.arguments(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=worker_variables(os.environ, server.pass_variables),
            limit=server.max_answer_bytes,
        )
    except OSError as error:
        raise UserError(
            f"{server.name} cannot be started ({error.strerror}): does the program exist, and is "
            "it executable?"
        ) from error
    return ServerProcess(process, server.max_answer_bytes)


@contextlib.asynccontextmanager
async def open_stdio(process: ServerProcess) -> AsyncIterator[Any]:
    """The streams of messages from and to a process, in the SDK's form; it ends with the block."""
    incoming, received = anyio.create_memory_object_stream[Any](0)
    to_send, outgoing = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.ensure_future(process.read_messages(incoming)),
        asyncio.ensure_future(process.write_messages(outgoing)),
        asyncio.ensure_future(process.read_stderr()),
    ]
    try:
        yield received, to_send
    finally:
        for stream in (received, to_send):
            stream.close()
        await process.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (incoming, outgoing):
            stream.close()
