"""`Processes`: worlds in processes of their own, which may have another interpreter."""

import asyncio
import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, cast

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.worker import LARGEST
from agentrl_jax.workers import Lane, done, forget

PATIENCE = 0.005  # seconds that a request waits for company
PRINTED = 2**20  # bytes that a world may print while it is at work on one request

_JSON = json.JSONEncoder(check_circular=False)


class _Process(asyncio.SubprocessProtocol):
    """One worker process, from its start to its death. What is asked in one turn of the event loop goes as one line."""

    def __init__(self, number: int, command: Sequence[str], environment: dict[str, str], largest: int) -> None:
        self._number, self._largest = number, largest
        self.leaving = False  # it takes no more requests
        self.pid: int | None = None
        self._loop = asyncio.get_running_loop()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed when the worker has it
        self._file.truncate(16)
        self._note = memoryview(mmap.mmap(self._file.fileno(), 16)).cast("q")
        self._note[0] = -1
        self.lane = Lane(lambda seconds: self.kill(DeadlineExceeded(f"no answer from {self.name} in {seconds:g} s")), self._at)
        self._unsent: list[dict[str, Any]] = []
        self._sent = 0  # requests on their way
        self._flushing: asyncio.Handle | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._half: list[bytes] = []  # of a line
        self._printed = 0
        self._why: EnvironmentFailure | None = None
        self._silent, self._exited = False, asyncio.Event()
        self.starting = self._loop.create_task(self._start(command, environment))  # raises OSError where there is no such program
        self.starting.add_done_callback(forget)

    @property
    def name(self) -> str:
        return f"process {self._number}" + ("" if self.pid is None else f", pid {self.pid}")

    @property
    def exited(self) -> bool:
        return self._exited.is_set()

    async def _start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        try:
            # A session of its own, so that it can be killed with all that its worlds started.
            at = self._file.fileno()
            await self._loop.subprocess_exec(lambda: self, *command, str(at), pass_fds=(at,), env=environment, start_new_session=True)
        except OSError as error:
            self._exited.set()
            self._end(EnvironmentFailure(f"{self.name} could not be started: {error}", "died"))
            raise
        except asyncio.CancelledError:
            self._exited.set()  # asyncio has killed it and waited for it
            raise
        finally:
            self._file.close()

    def _at(self) -> tuple[int, float]:
        return self._note[0], self._note[1] / 1e9

    def request(self, within: float, world: int, **fields: Any) -> "asyncio.Future[Any]":
        identity, future = self.lane.add(within, world)
        self._unsent.append({"id": identity, "world": world, **fields})
        if self._flushing is None:
            # While it is at work more may come to go along, but quick worlds must not wait for the slow one of a batch.
            self._flushing = self._loop.call_later(PATIENCE, self._flush) if self._sent else self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        if self._stdin is None or not self._unsent:  # not connected yet
            return
        if self._flushing is not None:
            self._flushing.cancel()
        batch, self._unsent, self._flushing = self._unsent, [], None
        self._sent += len(batch)
        self._stdin.write(_JSON.encode(batch).encode() + b"\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self.pid = self._transport.get_pid()
        if self.leaving:
            self._kill()
        self._flush()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._prints(data)
            return
        if b"\n" not in data:
            self._half.append(data)
            if sum(map(len, self._half)) > self._largest:
                self.kill(EnvironmentFailure(f"an endless answer from {self.name}", "flood"))
            return
        *lines, last = b"".join([*self._half, data]).split(b"\n")
        self._half = [last] if last else []
        try:
            for line in lines:
                replies = json.loads(line)
                self.lane.settle(replies)
                self._sent -= len(replies)
                if any(reply.get("kind") == "memory" for reply in replies):  # and leaves
                    self.kill(EnvironmentFailure(f"{self.name} was replaced: it had run out of memory", "lost"))
            self._printed = 0
            if not self._sent:
                self._flush()
        except (ValueError, KeyError, TypeError, RecursionError):
            self.kill(EnvironmentFailure(f"{self.name} answered what was not asked", "died"))

    def _prints(self, data: bytes) -> None:
        self._printed += len(data)
        if self._printed > PRINTED:
            self.kill(EnvironmentFailure(f"a world in {self.name} printed more than {PRINTED:,} bytes in one turn", "flood"))
        else:
            sys.stderr.write(data.decode(errors="replace"))

    def kill(self, why: EnvironmentFailure) -> None:
        """End it; `why` is what the request that it is at hears."""
        if self._why is None:
            self._why, self.leaving = why, True
        self._kill()

    def _kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._silent, self.leaving = True, True
            self._gone()

    def process_exited(self) -> None:
        self.leaving = True
        self._exited.set()
        self._gone()
        self._loop.call_later(1.0, self._bury)  # what it started may have got away and keep its pipe open

    def _gone(self) -> None:
        self._kill()
        if self._silent and self._exited.is_set():  # every answer that it gave has been read
            self._bury()

    def _bury(self) -> None:
        code = None if self._transport is None else self._transport.get_returncode()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._end(self._why or EnvironmentFailure(f"{self.name} died ({how})", "died"))

    def _end(self, why: EnvironmentFailure) -> None:
        self.leaving = True
        self.lane.fail(why, EnvironmentFailure(f"{self.name} was replaced while it was at work on another world", "lost"))
        if self._transport is not None:
            self._transport.close()

    async def stop(self) -> None:
        self.leaving = True
        await asyncio.wait([self.starting])
        self._kill()
        await self._exited.wait()
        if self._transport is not None:
            self._transport.close()


class Processes:
    """Worlds in `count` processes; one that dies, is late or runs out of `memory` bytes is replaced."""

    def __init__(self, count: int, interpreter: str = "", memory: int = 0, largest: int = LARGEST, command: Sequence[str] = ()) -> None:
        """`interpreter`: a python that has this package, JAX not needed; empty: this one. `command` replaces the worker's whole."""
        if count < 1:
            raise UserError(f"workers need at least one process, not {count}; 0 in the config means this process")
        if interpreter:
            check_interpreter(interpreter)
        self._environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if not interpreter:
            self._environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._command = command or [interpreter or sys.executable, "-m", "agentrl_jax.worker", str(memory), str(largest)]
        self._count, self._largest = count, largest
        self._now: dict[int, _Process] = {}
        self._all: set[_Process] = set()

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        process = self._now.get(world % self._count)
        if process is None or process.leaving:
            if op == "close":
                return done(None)
            process = self._fresh(world % self._count)
        return process.request(within, op=op, world=world, **arguments)

    def where(self, world: int) -> str:
        process = self._now.get(world % self._count)
        if process is None:
            return f"process {world % self._count + 1}"
        return process.name + (", busy with another one" if process.lane.busy_elsewhere(world) else "")

    def _fresh(self, i: int) -> _Process:
        self._all = {process for process in self._all if not process.exited}
        self._now[i] = _Process(i + 1, self._command, self._environment, self._largest)
        self._all.add(self._now[i])
        return self._now[i]

    async def start(self) -> None:
        try:
            await asyncio.gather(*(self._fresh(i).starting for i in range(self._count)))
        except OSError as error:
            raise UserError(f"the worker {self._command[0]} cannot be started ({error.strerror}): name a python") from error

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._all))
        self._all, self._now = set(), {}


def check_interpreter(interpreter: str) -> None:
    """Raises UserError where this is no python that has this package."""
    advice = "name a python in which agentrl_jax, gymnasium and numpy are installed, JAX is not needed"
    try:
        done = subprocess.run([interpreter, "-c", "import agentrl_jax.worker"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the interpreter {interpreter} cannot be run ({error}): {advice}") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"the interpreter {interpreter} cannot run a worker ({reason}): {advice}")
