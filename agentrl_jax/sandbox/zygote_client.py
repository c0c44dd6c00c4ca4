"""The host's side of a zygote: it is started, asked for snippets, and closed."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox import folders
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.snippet_run import STARTED
from agentrl_jax.sandbox.zygote_protocol import (
    INTERRUPT,
    MAX_PACKET,
    SnippetEnd,
    ZygoteConfig,
    pack_start,
)

START_SECONDS = 60.0  # to import modules and to try what the host can do
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from agentrl_jax.sandbox.zygote import main
main(int(sys.argv[1]))
"""
# No variable of the host reaches the zygote.
VARIABLES = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same code prints the same
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # a thread's own arena would reserve 64 MB of its limit
}


class ConfinedProcess:
    """A process that runs a snippet: its pipes, and the leash by which it is killed."""

    def __init__(
        self,
        stdout: int,
        stderr: int,
        leash: socket.socket,
        is_contained: bool,
        requests: int = -1,
        replies: int = -1,
    ) -> None:
        self.stdout, self.stderr, self.leash = stdout, stderr, leash
        self.requests, self.replies = requests, replies
        self.is_contained = is_contained
        self.pid: int | None = None
        self.has_started = False  # the code itself, confined
        self.end: SnippetEnd | None = None

    def read_leash(self) -> None:
        """Read what the zygote reports; its silence at the end of the leash is a failure."""
        try:
            data = self.leash.recv(MAX_PACKET)
        except ConnectionError:
            data = b""
        if data.isdigit():
            self.pid = int(data)
        elif data == STARTED:
            self.has_started = True
        elif data:
            self.end = SnippetEnd.decode(data)
        else:
            self.end = SnippetEnd(0, failure="the sandbox's zygote is gone")

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            self.leash.send(INTERRUPT)

    def kill(self) -> None:
        """Let the zygote kill it, and still report its end."""
        with contextlib.suppress(OSError):
            self.leash.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close all descriptors, which kills the process where it runs."""
        self.leash.close()
        for descriptor in (self.stdout, self.stderr, self.requests, self.replies):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdout = self.stderr = self.requests = self.replies = -1


class ZygoteClient:
    """A running zygote."""

    def __init__(self, config: ZygoteConfig) -> None:
        """Starts it and waits until it can serve.

        Raises:
            UserError: it cannot confine anything here.
        """
        self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).parents[2])
        flags = ["-S", "-s", "-P", "-c", _PROGRAM]
        with remote:
            self._process = subprocess.Popen(
                [sys.executable, *flags, str(remote.fileno()), root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**VARIABLES, "TMPDIR": tempfile.gettempdir()},
                cwd="/",
                pass_fds=(remote.fileno(),),
                start_new_session=True,
            )
        self.folder = ""
        self.owner, self._is_contained = os.getpid(), bool(config.launcher)
        try:
            hello = self._hello(config)
        except BaseException:
            self.close()
            raise
        self.abi: int = hello["abi"]
        self.isolation: list[bool] = hello["isolation"]
        self.folder = hello["folder"]

    def _hello(self, config: ZygoteConfig) -> dict:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(config.encode())
        self._control.settimeout(START_SECONDS)
        try:
            data = self._control.recv(MAX_PACKET)
        except OSError as error:
            raise UserError(f"the sandbox did not start: {error}") from error
        finally:
            self._control.settimeout(None)
        if not data:
            lines = self._process.stdout.read().decode(errors="replace").strip().splitlines()
            raise UserError(f"the sandbox did not start: {(lines or ['no reason given'])[-1]}")
        hello = json.loads(data)
        if "error" in hello:
            raise UserError(f"the sandbox cannot be used here: {hello['error']}")
        return hello

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None and self.owner == os.getpid()

    def start(
        self, request: bytes, stdin: bytes, limits: SandboxLimits, is_session: bool = False
    ) -> ConfinedProcess:
        """Start a snippet or a session.

        Raises:
            EnvironmentFailure: the zygote is gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe() for _ in range(4 if is_session else 2)]
        files = [_read_only_file(request), _read_only_file(stdin)]
        sent = [*files, pipes[0][1], pipes[1][1], theirs.fileno()]
        process = ConfinedProcess(pipes[0][0], pipes[1][0], ours, self._is_contained)
        if is_session:
            sent += [pipes[2][0], pipes[3][1]]
            process.requests, process.replies = pipes[2][1], pipes[3][0]
            os.set_blocking(process.requests, False)
        try:
            seconds = 0.0 if is_session else limits.seconds
            socket.send_fds(self._control, [pack_start(limits, seconds)], sent)
        except OSError as error:
            process.close()
            raise EnvironmentFailure(f"the sandbox's zygote is gone: {error}", "died") from error
        finally:
            for descriptor in sent:
                if descriptor != theirs.fileno():
                    os.close(descriptor)
            theirs.close()
        return process

    def kill(self) -> None:
        """End a zygote that does not answer; its children die with it."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the zygote and all that it started."""
        self._control.close()
        if self.owner != os.getpid():  # a fork's copy
            return
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self.folder and os.path.exists(self.folder):  # it was killed
            folders.remove(self.folder)


def wait_readable(descriptors: list[int], deadline: float) -> list[int]:
    """Those of the descriptors from which something, or their end, can be read; none: it is late.

    `deadline` is on the clock `time.monotonic`.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = max(0, int((deadline - time.monotonic()) * 1000) + 1)
    return [descriptor for descriptor, _ in poll.poll(milliseconds)]


def _read_only_file(data: bytes) -> int:
    """A descriptor of a file in memory that its reader cannot change."""
    descriptor = os.memfd_create("snippet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(descriptor)
