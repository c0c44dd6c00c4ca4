"""`UCIEngine`: a chess program that speaks UCI, in its own process."""

import contextlib
import os
import re
import selectors
import shutil
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError

MAX_OUTPUT_BYTES = 2**20  # per request
SPIN_OPTION_PATTERN = re.compile(
    r"option name (.+) type spin default -?\d+ min (-?\d+) max (-?\d+)"
)


def find_program(program: str) -> str:
    """The path of a program, also among Debian's games.

    Raises:
        UserError: it is not installed.
    """
    path = shutil.which(
        program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/games"])
    )
    if path is None:
        raise UserError(
            f"no chess program {program!r} is here: install Debian's package stockfish, or name a "
            "UCI engine with program=PATH"
        )
    return path


def _terminate(process: subprocess.Popen) -> None:
    """Ask the process to quit, and kill it where it does not."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.write(b"quit\n")
    process.stdin.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class UCIEngine:
    """A UCI process; it starts with the first request and again after a failure.

    It ends when it is closed, garbage collected, or Python exits. A pickled copy starts its own
    process.

    Args:
        program: the path of the program.
        timeout: seconds that anything except the search itself may take.
    """

    def __init__(self, program: str, timeout: float = 20.0) -> None:
        self.program, self.timeout = program, timeout
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._finalizer: Any = None
        self._buffer = b""
        self._current_settings: dict[str, Any] = {}
        self._option_ranges: dict[str, tuple[int, int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return UCIEngine, (self.program, self.timeout)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def best_move(
        self, position: str, settings: Mapping[str, Any], limit: str, seconds: float
    ) -> str:
        """The move, such as "e7e8q", after `position ...` and `go ...`, which takes `seconds`.

        The engine keeps no memory of earlier requests. Raises what `configure` does.
        """
        with self._exclusive_process():
            self._configure(settings)
            self._send("ucinewgame")
            self._request("isready", "readyok", self.timeout)
            self._send(f"position {position}")
            return (
                self._request(f"go {limit}", "bestmove", seconds + self.timeout)
                .partition(" ")[2]
                .split(" ")[0]
            )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Set the options that have other values.

        The process ends where this fails.

        Raises:
            UserError: a value is out of the range that the engine names.
            EnvironmentFailure: the process died or printed too much.
            DeadlineExceeded: it did not answer in time.
        """
        with self._exclusive_process():
            self._configure(settings)

    @contextlib.contextmanager
    def _exclusive_process(self) -> Iterator[None]:
        """One caller at a time, with a running process that ends after a failure."""
        with self._lock:
            try:
                self._start()
                yield
            except BaseException as error:
                if self._process is not None:
                    self._process.kill()
                self._close()
                if isinstance(error, OSError):
                    raise EnvironmentFailure(f"{self.program} failed: {error}") from error
                raise

    def close(self) -> None:
        """End the process; the next request starts a new one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None

    def _start(self) -> None:
        if self._process is not None:
            return
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [self.program], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._finalizer = weakref.finalize(self, _terminate, self._process)
        self._buffer, self._current_settings, self._option_ranges = b"", {}, {}
        self._request("uci", "uciok", self.timeout)

    def _configure(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if self._current_settings.get(name) == value:
                continue
            low, high = self._option_ranges.get(name, (value, value))
            if not low <= value <= high:
                raise UserError(f"{self.program} takes {name} from {low} to {high}, not {value}")
            self._send(f"setoption name {name} value {str(value).lower()}")
            self._current_settings[name] = value

    def _send(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def _request(self, command: str, reply_word: str, seconds: float) -> str:
        """The first line that begins with `reply_word`.

        Lines before it are parsed for the ranges of options.
        """
        self._send(command)
        until, read = time.monotonic() + seconds, 0
        while True:
            line, newline, remainder = self._buffer.partition(b"\n")
            if newline:
                self._buffer, text = remainder, line.decode(errors="replace").strip()
                if spin := SPIN_OPTION_PATTERN.fullmatch(text):
                    self._option_ranges[spin[1]] = int(spin[2]), int(spin[3])
                if text.split(" ")[0] == reply_word:
                    return text
                continue
            more = self._read(until - time.monotonic(), command, seconds)
            self._buffer, read = self._buffer + more, read + len(more)
            if read > MAX_OUTPUT_BYTES:
                raise EnvironmentFailure(f"{self.program} answered {command!r} endlessly", "flood")

    def _read(self, seconds: float, command: str, timeout: float) -> bytes:
        """What the process has printed since the last call."""
        assert self._process is not None and self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                raise DeadlineExceeded(
                    f"{self.program} did not answer {command!r} within {timeout:g} s"
                )
        more = os.read(self._process.stdout.fileno(), 65536)
        if not more:
            raise EnvironmentFailure(f"{self.program} died when asked {command!r}")
        return more
