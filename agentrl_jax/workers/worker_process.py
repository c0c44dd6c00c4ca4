"""`WorkerProcess`: one process of a `ProcessPool`, with its pipes and the requests sent to it."""

import asyncio
import contextlib
import json
import mmap
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure
from agentrl_jax.workers.memory_watch import MemoryWatch, too_large
from agentrl_jax.workers.pool import ignore_result
from agentrl_jax.workers.request_queue import RequestQueue

BATCHING_DELAY = 0.005  # seconds that a request waits for others to be sent along
MAX_PRINTED_BYTES = 2**20  # bytes that an environment may print during one request
LARGE_LINE = 2**20  # bytes of replies; they take about 4 ms to parse

_JSON = json.JSONEncoder(check_circular=False)


def _parse_line(line: bytes) -> Any:
    return json.loads(line)


class WorkerProcess(asyncio.SubprocessProtocol):
    """One worker process, from its start to its exit.

    The requests of one iteration of the event loop are sent as one line.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: dict[str, str],
        max_reply_bytes: int,
        memory: MemoryWatch | None = None,
    ) -> None:
        self._number, self._max_reply_bytes, self._memory = number, max_reply_bytes, memory
        self.is_closing = False  # it accepts no more requests
        self.pid: int | None = None
        self._loop = asyncio.get_running_loop()
        self._status_file = tempfile.TemporaryFile()  # noqa: SIM115  closed when the worker has it
        self._status_file.truncate(16)
        self._status = memoryview(mmap.mmap(self._status_file.fileno(), 16)).cast("q")
        self._status[0] = -1
        self.request_queue = RequestQueue(
            lambda seconds: self.kill(
                DeadlineExceeded(f"no answer from {self.name} in {seconds:g} s")
            ),
            self._current_request,
        )
        self._outgoing: list[dict[str, Any]] = []
        self._num_in_flight = 0  # requests sent and not answered
        self._flush_handle: asyncio.Handle | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._partial_line: list[bytes] = []  # chunks of an incomplete line of replies
        self._partial_bytes = 0
        self._lines: deque[bytes] = deque()  # of replies that are not parsed yet
        self._parsing: asyncio.Future[Any] | None = None
        self._is_gone = False
        self._printed_bytes = 0
        self._failure: EnvironmentFailure | None = None
        self._stdout_closed, self._exit_event = False, asyncio.Event()
        # Raises OSError if there is no such program.
        self.start_task = self._loop.create_task(self._start(command, environment))
        self.start_task.add_done_callback(ignore_result)

    @property
    def name(self) -> str:
        return f"process {self._number}" + ("" if self.pid is None else f", pid {self.pid}")

    @property
    def has_exited(self) -> bool:
        return self._exit_event.is_set()

    async def _start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        try:
            # Its own process session, so that it can be killed with all processes that it started.
            status_fd = self._status_file.fileno()
            await self._loop.subprocess_exec(
                lambda: self,
                *command,
                str(status_fd),
                pass_fds=(status_fd,),
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self._exit_event.set()
            self._fail_pending(
                EnvironmentFailure(f"{self.name} could not be started: {error}", "died")
            )
            raise
        except asyncio.CancelledError:
            self._exit_event.set()  # asyncio has killed it and waited for it
            raise
        finally:
            self._status_file.close()

    def _current_request(self) -> tuple[int, float]:
        return self._status[0], self._status[1] / 1e9

    def request(self, timeout: float, env_id: int, **fields: Any) -> "asyncio.Future[Any]":
        identity, future = self.request_queue.add(timeout, env_id)
        self._outgoing.append({"id": identity, "env_id": env_id, **fields})
        if self._flush_handle is None:
            # While it is busy more requests may join the batch, but fast environments must not wait
            # for the slow one of a batch.
            self._flush_handle = (
                self._loop.call_later(BATCHING_DELAY, self._flush)
                if self._num_in_flight
                else self._loop.call_soon(self._flush)
            )
        return future

    def _flush(self) -> None:
        if self._stdin is None or not self._outgoing:  # not connected yet
            return
        if self._flush_handle is not None:
            self._flush_handle.cancel()
        batch, self._outgoing, self._flush_handle = self._outgoing, [], None
        self._num_in_flight += len(batch)
        self._stdin.write(_JSON.encode(batch).encode() + b"\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self.pid = self._transport.get_pid()
        if self._memory is not None:
            self._memory.add(self.pid, self._on_memory_exceeded)
        if self.is_closing:
            self._kill()
        self._flush()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._forward_stderr(data)
            return
        if b"\n" not in data:
            self._partial_line.append(data)
            self._partial_bytes += len(data)
            if self._partial_bytes > self._max_reply_bytes:
                self.kill(EnvironmentFailure(f"an endless reply from {self.name}", "flood"))
            return
        *lines, last = b"".join([*self._partial_line, data]).split(b"\n")
        self._partial_line, self._partial_bytes = [last] if last else [], len(last)
        self._lines.extend(lines)
        self._parse_lines()

    def _parse_lines(self) -> None:
        """Resolve the lines in order, long ones in a thread while those after them wait."""
        while self._lines and self._parsing is None:
            line = self._lines.popleft()
            if len(line) > LARGE_LINE:
                self._parsing = self._loop.run_in_executor(None, _parse_line, line)
                self._parsing.add_done_callback(self._on_parsed)
                return
            self._resolve(lambda: _parse_line(line))  # noqa: B023  called at once
        if self._is_gone and self._parsing is None:
            self._finalize()

    def _on_parsed(self, future: "asyncio.Future[Any]") -> None:
        self._parsing = None
        if not future.cancelled():
            self._resolve(future.result)
        self._parse_lines()

    def _resolve(self, parse: Callable[[], Any]) -> None:
        try:
            replies = parse()
            self.request_queue.resolve(replies)
            self._num_in_flight -= len(replies)
            if any(reply.get("kind") == "memory" for reply in replies):  # it exits
                self.kill(
                    EnvironmentFailure(
                        f"{self.name} was replaced: it had run out of memory", "lost"
                    )
                )
            self._printed_bytes = 0
            if not self._num_in_flight:
                self._flush()
        except (ValueError, KeyError, TypeError, RecursionError):
            self.kill(EnvironmentFailure(f"{self.name} sent an invalid reply", "died"))

    def _forward_stderr(self, data: bytes) -> None:
        self._printed_bytes += len(data)
        if self._printed_bytes > MAX_PRINTED_BYTES:
            self.kill(
                EnvironmentFailure(
                    f"an environment in {self.name} printed more than {MAX_PRINTED_BYTES:,} bytes "
                    "in one turn",
                    "flood",
                )
            )
        else:
            sys.stderr.write(data.decode(errors="replace"))

    def _on_memory_exceeded(self, size: int) -> None:
        description = f"{self.name} and what it started {too_large(size)}"
        self.kill(EnvironmentFailure(description, "memory"))

    def kill(self, failure: EnvironmentFailure) -> None:
        """Kill it; the request in progress raises `failure`. Safe to call from other threads."""
        if self._failure is None:
            self._failure, self.is_closing = failure, True
        self._kill()

    def _kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._stdout_closed, self.is_closing = True, True
            self._on_gone()

    def process_exited(self) -> None:
        self.is_closing = True
        if self._memory is not None and self.pid is not None:
            self._memory.remove(self.pid)
        self._exit_event.set()
        self._on_gone()
        # Processes that it started may have escaped and keep its pipe open.
        self._loop.call_later(1.0, self._finalize)

    def _on_gone(self) -> None:
        self._kill()
        if self._stdout_closed and self._exit_event.is_set():  # all of its replies have been read
            self._finalize()

    def _finalize(self) -> None:
        self._is_gone = True
        if self._parsing is not None:  # it follows when all of its replies are resolved
            return
        code = None if self._transport is None else self._transport.get_returncode()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._fail_pending(self._failure or EnvironmentFailure(f"{self.name} died ({how})", "died"))

    def _fail_pending(self, failure: EnvironmentFailure) -> None:
        self.is_closing = True
        self.request_queue.fail(
            failure,
            EnvironmentFailure(
                f"{self.name} was replaced while it was busy with another environment", "lost"
            ),
        )
        if self._transport is not None:
            self._transport.close()

    async def stop(self) -> None:
        self.is_closing = True
        await asyncio.wait([self.start_task])
        self._kill()
        await self._exit_event.wait()
        if self._transport is not None:
            self._transport.close()
