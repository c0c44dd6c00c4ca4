"""`start_agent_process`: an agent program in its own process group, killed at the block's end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from agentrl_jax.errors import UserError

MAX_OUTPUT_BYTES = 4000  # kept of the end of a program's output


class AgentProcess(asyncio.SubprocessProtocol):
    """A process, its exit and the end of its output."""

    def __init__(self) -> None:
        self.exit_event = asyncio.Event()
        self.pid = 0
        self.exit_code: int | None = None
        self._output = b""

    @property
    def output_tail(self) -> str:
        return self._output.decode(errors="replace").strip()

    @property
    def exit_description(self) -> str:
        """How it ended, and the end of its output."""
        how = (
            f"was killed by signal {-self.exit_code}"
            if self.exit_code is not None and self.exit_code < 0
            else f"ended with exit code {self.exit_code}"
        )
        return f"{how}; it printed last: {self.output_tail or 'nothing'}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output = (self._output + data)[-MAX_OUTPUT_BYTES:]

    def process_exited(self) -> None:
        self.exit_code = self._transport.get_returncode()
        # The end of its output may still be in the pipe.
        asyncio.get_running_loop().call_later(0.1, self.exit_event.set)

    def kill(self) -> None:
        """Kill it and what it started, unless that has left its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._transport.close()


@contextlib.asynccontextmanager
async def start_agent_process(
    command: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[AgentProcess]:
    """Run a program for the duration of a block. Raises UserError if it cannot be started."""
    loop = asyncio.get_running_loop()
    try:
        _, program = await loop.subprocess_exec(
            AgentProcess,
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise UserError(
            f"the agent program {command[0]} cannot be started ({error.strerror}): "
            "does it exist, and is it executable?"
        ) from error
    try:
        yield program
    finally:
        program.kill()
        try:
            await program.exit_event.wait()
        finally:
            program.kill()  # what it started meanwhile
            program.close()
