"""`Engine`: a chess program that speaks UCI, in a process of its own."""

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

LARGEST = 2**20  # bytes that it may print over one question
SPIN = re.compile(r"option name (.+) type spin default -?\d+ min (-?\d+) max (-?\d+)")


def find(program: str) -> str:
    """The path of a program, which Debian may keep among its games. Raises UserError where it is not there."""
    path = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/games"]))
    if path is None:
        raise UserError(f"no chess program {program!r} is here: install Debian's package stockfish, or name a UCI engine with program=PATH")
    return path


def _end(process: subprocess.Popen) -> None:
    """Ask the process to leave, and kill it where it does not."""
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


class Engine:
    """Starts when it is first asked, and again after it failed; leaves when it is closed, forgotten, or Python ends.

    A copy in another process is an engine of its own. `patience` is how many seconds anything but thinking may take.
    """

    def __init__(self, program: str, patience: float = 20.0) -> None:
        self.program, self.patience = program, patience
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._leaving: Any = None
        self._unread = b""
        self._set: dict[str, Any] = {}
        self._ranges: dict[str, tuple[int, int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Engine, (self.program, self.patience)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def best_move(self, game: str, settings: Mapping[str, Any], limit: str, seconds: float) -> str:
        """Its move, such as "e7e8q", after `position game` and `go limit`, which takes `seconds`.

        It remembers nothing of earlier questions.
        Raises what `configure` does.
        """
        with self._working():
            self._configure(settings)
            self._say("ucinewgame")
            self._ask("isready", "readyok", self.patience)
            self._say(f"position {game}")
            return self._ask(f"go {limit}", "bestmove", seconds + self.patience).partition(" ")[2].split(" ")[0]

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Set what is not set so already.

        Raises UserError where a setting is out of the range that the engine names, EnvironmentFailure where it dies or floods and
        DeadlineExceeded where it is late; it is ended then.
        """
        with self._working():
            self._configure(settings)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """One caller at a time, a process that is there, and none that is left in the middle of something."""
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
        """End the process; another question starts a new one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._leaving is not None:
            self._leaving()
        self._process = self._leaving = None

    def _start(self) -> None:
        if self._process is not None:
            return
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([self.program], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        self._leaving = weakref.finalize(self, _end, self._process)
        self._unread, self._set, self._ranges = b"", {}, {}
        self._ask("uci", "uciok", self.patience)

    def _configure(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if self._set.get(name) == value:
                continue
            low, high = self._ranges.get(name, (value, value))
            if not low <= value <= high:
                raise UserError(f"{self.program} takes {name} from {low} to {high}, not {value}")
            self._say(f"setoption name {name} value {str(value).lower()}")
            self._set[name] = value

    def _say(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def _ask(self, question: str, answer: str, seconds: float) -> str:
        """The first line that begins with the word `answer`; lines before it only tell the ranges of options."""
        self._say(question)
        until, read = time.monotonic() + seconds, 0
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread, text = rest, line.decode(errors="replace").strip()
                if spin := SPIN.fullmatch(text):
                    self._ranges[spin[1]] = int(spin[2]), int(spin[3])
                if text.split(" ")[0] == answer:
                    return text
                continue
            more = self._read(until - time.monotonic(), question, seconds)
            self._unread, read = self._unread + more, read + len(more)
            if read > LARGEST:
                raise EnvironmentFailure(f"{self.program} answered {question!r} endlessly", "flood")

    def _read(self, seconds: float, question: str, allowed: float) -> bytes:
        """What it has printed since."""
        assert self._process is not None and self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                raise DeadlineExceeded(f"{self.program} did not answer {question!r} within {allowed:g} s")
        more = os.read(self._process.stdout.fileno(), 65536)
        if not more:
            raise EnvironmentFailure(f"{self.program} died when asked {question!r}")
        return more
