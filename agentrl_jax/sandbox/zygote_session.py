"""`ZygoteSession`: a Python process in the sandbox that runs code call after call."""

import contextlib
import json
import os
import secrets
import select
import time
from collections.abc import Callable
from dataclasses import replace

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox.captured_output import (
    CapturedOutput,
    capture,
    collect,
    encode_request,
    make_outcome,
)
from agentrl_jax.sandbox.cells import HEADER
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import Session
from agentrl_jax.sandbox.snippet import Outcome, Snippet, limit_of_error
from agentrl_jax.sandbox.zygote_client import ZygoteClient

INTERRUPT_SECONDS = 1.0  # that an interrupted call has to end
GRACE_SECONDS = 5.0  # that the zygote has to kill a process
MAX_REPLY_BYTES = 65_536


class ZygoteSession(Session):
    """A session whose process lives in the sandbox until it is closed or over."""

    def __init__(
        self, running_client: Callable[[], ZygoteClient], seed: int, limits: SandboxLimits
    ) -> None:
        super().__init__()
        self._running_client, self._seed, self._limits = running_client, seed, limits
        request = encode_request(Snippet("", seed=seed))
        self._process = running_client().start(request, b"", limits, is_session=True)
        self._replies, self._can_reply = b"", True
        self._is_closed = False

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._process.end is not None

    @property
    def pid(self) -> int | None:
        """The process, once it has answered."""
        return self._process.pid

    def run(self, code: str) -> Outcome:
        if self.is_over:
            raise UserError("the session is over: open another one")
        start, nonce = time.monotonic(), secrets.token_hex(16)
        body = {"nonce": nonce, "code": code, "cpu_seconds": self._limits.cpu_seconds}
        data = json.dumps(body).encode()
        output = capture(self._process, self._limits)
        request = HEADER.pack(len(data)) + data
        deadline = start + self._limits.seconds
        status = self._wait(output, nonce, request, deadline)
        is_late = status is None and self._process.end is None and not output.is_flood
        if is_late:
            self._process.interrupt()
            status = self._wait(output, nonce, b"", deadline + INTERRUPT_SECONDS)
        if status is None:
            outcome = self._end(output, start)
            return replace(outcome, limit="time") if is_late else outcome
        output.drain()
        seconds, stderr = time.monotonic() - start, output.stderr
        if is_late or output.is_flood:
            limit = "output" if output.is_flood else "time"
            return Outcome(output.stdout, stderr, None, None, limit, seconds)
        self.history.append(code)
        limit = limit_of_error(stderr) if status else None
        return Outcome(output.stdout, stderr, status, None, limit, seconds)

    def _end(self, output: CapturedOutput, start: float) -> Outcome:
        """End the process, and the session with it."""
        self._process.kill()
        collect(self._process, output, time.monotonic() + GRACE_SECONDS)
        seconds = time.monotonic() - start
        self.close()
        if self._process.end is None:
            raise EnvironmentFailure("the sandbox's zygote did not end a session", "deadline")
        return make_outcome(self._process, output, self._limits, seconds)

    def fork(self) -> "ZygoteSession":
        copy = ZygoteSession(self._running_client, self._seed, self._limits)
        for code in self.history:
            copy.run(code)
        return copy

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.close()

    def _wait(
        self, output: CapturedOutput, nonce: str, request: bytes, deadline: float
    ) -> int | None:
        """Send a request, and read output until it is answered with its nonce.

        None: it is late, or the process has ended.
        """
        process = self._process
        leash = process.leash.fileno()
        while process.end is None:
            poll = select.poll()
            replies = [process.replies] if self._can_reply else []
            for descriptor in (*output.open_streams, *replies, leash):
                poll.register(descriptor, select.POLLIN)
            if request:
                poll.register(process.requests, select.POLLOUT)
            milliseconds = int((deadline - time.monotonic()) * 1000) + 1
            if milliseconds <= 0:
                return None
            for descriptor, _ in poll.poll(milliseconds):
                if descriptor == leash:
                    process.read_leash()
                elif descriptor == process.requests:
                    request = self._send(request)
                elif descriptor == process.replies:
                    status = self._read_reply(nonce)
                    if status is not None:
                        return status
                else:
                    output.read(descriptor)
        return None

    def _send(self, request: bytes) -> bytes:
        """What is left of a request."""
        try:
            return request[os.write(self._process.requests, request) :]
        except BlockingIOError:
            return request
        except BrokenPipeError:  # closed by the code
            self._process.kill()
            return b""

    def _read_reply(self, nonce: str) -> int | None:
        """The exit status of the call with the nonce; whatever else the code wrote is ignored."""
        data = os.read(self._process.replies, MAX_REPLY_BYTES)
        if not data:  # closed by the code
            self._process.kill()
            self._can_reply = False
        *lines, self._replies = (self._replies + data).split(b"\n")
        self._replies = self._replies[-MAX_REPLY_BYTES:]
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
                reply = json.loads(line)
                if reply["nonce"] == nonce:
                    return int(reply["status"]) & 0xFF
        return None
