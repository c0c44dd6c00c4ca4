"""What a confined process prints, read within its limit, and the outcome that it makes."""

import base64
import json
import os
import signal
import time
from collections.abc import Callable

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.sandbox.limits import Limit, SandboxLimits
from agentrl_jax.sandbox.snippet import Outcome, Snippet, limit_of_error
from agentrl_jax.sandbox.zygote_client import ConfinedProcess, wait_readable
from agentrl_jax.sandbox.zygote_protocol import SnippetEnd

DRAIN_SECONDS = 1.0  # that the pipes of a killed process may stay open
_CHUNK = 65_536


def encode_request(snippet: Snippet) -> bytes:
    """What the confined process reads."""
    request = {
        "code": snippet.code,
        "command": snippet.language.command,
        "seed": snippet.seed,
        "files": {path: base64.b64encode(data).decode() for path, data in snippet.files.items()},
    }
    return json.dumps(request).encode()


class CapturedOutput:
    """Stdout and stderr of a process, until both together exceed a limit; then it is killed."""

    def __init__(self, stdout: int, stderr: int, max_bytes: int, kill: Callable[[], None]) -> None:
        self._out, self._err, self._room, self._kill = stdout, stderr, max_bytes, kill
        self._chunks: dict[int, list[bytes]] = {stdout: [], stderr: []}
        self.open_streams = [stdout, stderr]
        self.is_flood = False

    @property
    def stdout(self) -> str:
        return b"".join(self._chunks[self._out]).decode(errors="replace")

    @property
    def stderr(self) -> str:
        return b"".join(self._chunks[self._err]).decode(errors="replace")

    def read(self, stream: int) -> bool:
        """Read what is there; False: the stream has ended, or there is nothing."""
        try:
            data = os.read(stream, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.open_streams.remove(stream)
            return False
        self._chunks[stream].append(data[: self._room])
        self._room -= len(data)
        if self._room < 0:
            self._room = 0
            if not self.is_flood:
                self.is_flood = True
                self._kill()
        return True

    def drain(self) -> None:
        """Read what is there by now."""
        for stream in list(self.open_streams):
            os.set_blocking(stream, False)
            while not self.is_flood and self.read(stream):
                pass
            os.set_blocking(stream, True)


def capture(process: ConfinedProcess, limits: SandboxLimits) -> CapturedOutput:
    """The output of a confined process, from now on."""
    return CapturedOutput(process.stdout, process.stderr, limits.output_kb * 1024, process.kill)


def collect(process: ConfinedProcess, output: CapturedOutput, deadline: float) -> None:
    """Read a program's output until it has ended; after the deadline `process.end` is None."""
    leash = process.leash.fileno()
    while process.end is None or output.open_streams:
        waiting = [*output.open_streams, *([leash] if process.end is None else [])]
        ready = wait_readable(waiting, deadline)
        if not ready:
            return
        for descriptor in ready:
            if descriptor != leash:
                output.read(descriptor)
            else:
                process.read_leash()
                if process.end is not None:
                    deadline = min(deadline, time.monotonic() + DRAIN_SECONDS)


def make_outcome(
    process: ConfinedProcess, output: CapturedOutput, limits: SandboxLimits, seconds: float
) -> Outcome:
    """The outcome of a process that has ended; like a shell, a container reports a signal as 128
    and its number.

    Raises:
        EnvironmentFailure: it could not be confined, and ran nothing.
    """
    end = process.end
    assert end is not None
    is_stopped = end.is_late or output.is_flood
    if end.failure or not (process.has_started or is_stopped):
        reason = end.failure or output.stderr.strip() or f"status {end.status}"
        raise EnvironmentFailure(f"the sandbox failed: {reason[:500]}", "died")
    code, number = os.waitstatus_to_exitcode(end.status), None
    if code < 0 or (process.is_contained and 128 < code < 128 + signal.NSIG):
        number = -code if code < 0 else code - 128
        code = None
    stderr = output.stderr
    limit = _limit(end, output.is_flood, number, limits)
    if limit is None and code:
        limit = limit_of_error(stderr)
    return Outcome(output.stdout, stderr, code, number, limit, seconds, end.cpu_seconds)


def _limit(
    end: SnippetEnd, is_flood: bool, number: int | None, limits: SandboxLimits
) -> Limit | None:
    """The limit that the kernel or the zygote enforced."""
    if is_flood:
        return "output"
    if end.is_late:
        return "time"
    if end.has_filled_disk or number == signal.SIGXFSZ:
        return "disk"
    if number == signal.SIGXCPU:
        return "cpu"
    if number == signal.SIGKILL and end.cpu_seconds >= limits.cpu_seconds:
        return "cpu"
    return None
