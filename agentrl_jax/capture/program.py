"""`running`: an agent program in a process group of its own, which ends with the block that it runs in."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from agentrl_jax.errors import UserError

KEPT = 4000  # bytes of what a program printed last


class Program(asyncio.SubprocessProtocol):
    """A process, when it has exited and the last that it printed."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.pid = 0
        self.code: int | None = None
        self._printed = b""

    @property
    def printed(self) -> str:
        return self._printed.decode(errors="replace").strip()

    @property
    def ending(self) -> str:
        """How it ended, and its last words."""
        how = f"was killed by signal {-self.code}" if self.code is not None and self.code < 0 else f"ended with exit code {self.code}"
        return f"{how}; it printed last: {self.printed or 'nothing'}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._printed = (self._printed + data)[-KEPT:]

    def process_exited(self) -> None:
        self.code = self._transport.get_returncode()
        asyncio.get_running_loop().call_later(0.1, self.exited.set)  # its last words may still be in the pipe

    def kill(self) -> None:
        """End it and what it started, unless that has left its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._transport.close()


@contextlib.asynccontextmanager
async def running(command: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[Program]:
    """Raises UserError where the program cannot be started."""
    loop = asyncio.get_running_loop()
    try:
        _, program = await loop.subprocess_exec(
            Program, *command, env=dict(environment), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"the agent program {command[0]} cannot be started ({error.strerror}): is it there, and executable?") from error
    try:
        yield program
    finally:
        program.kill()
        try:
            await program.exited.wait()
        finally:
            program.kill()  # what it started while it was ending
            program.close()
