"""A pseudo-terminal as stdout of this process, and what was written to it."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# What the dashboard may send: colors, the cursor up, home and visible, lines and screen erased.
ALLOWED = re.compile(r"\x1b\[(?:[0-9;]*m|\d*A|2K|H|2J|\?25[lh])|\r|\n")
CONTROL = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class PseudoTerminal:
    """The master's side."""

    def __init__(self, columns: int = 100, lines: int = 40) -> None:
        self._master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self._chunks: list[bytes] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:
                return
            if not chunk:
                return
            self._chunks.append(chunk)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def output(self) -> str:
        """All that was written so far."""
        return b"".join(self._chunks).decode("utf-8", "replace")

    def wait_for(self, text: str, seconds: float = 10.0, count: int = 1) -> str:
        """The output once it has a text so many times."""
        deadline = time.monotonic() + seconds
        while self.output.count(text) < count:
            assert time.monotonic() < deadline, f"no {text!r} in {self.output[-2000:]!r}"
            time.sleep(0.02)
        return self.output

    def pause(self) -> None:
        """Take no output: what is written waits, as after Ctrl-S."""
        termios.tcflow(self.slave, termios.TCOOFF)

    def resume(self) -> None:
        """Take output again."""
        termios.tcflow(self.slave, termios.TCOON)

    def close(self) -> None:
        os.close(self.slave)
        os.close(self._master)
        self._thread.join(1)


@contextmanager
def as_stdout(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> Iterator[PseudoTerminal]:
    """A terminal as `sys.stdout`."""
    terminal = PseudoTerminal(columns, lines)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "PYTEST_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    size_of = os.get_terminal_size  # rich asks for that of the standard streams
    monkeypatch.setattr(os, "get_terminal_size", lambda _=0: size_of(terminal.slave))
    with open(os.dup(terminal.slave), "w", encoding="utf-8") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        yield terminal
    monkeypatch.undo()
    terminal.close()


def forbidden_controls(output: str) -> list[str]:
    """The control sequences in an output that the dashboard does not send."""
    rest = ALLOWED.sub("", output)
    return [rest[max(0, m.start() - 5) : m.end() + 10] for m in CONTROL.finditer(rest)]


def is_sane(output: str) -> bool:
    """Whether the cursor is visible, the screen the normal one, and no color left."""
    cursor_on, cursor_off = output.rfind("\x1b[?25h"), output.rfind("\x1b[?25l")
    return cursor_on >= cursor_off and "\x1b[?1049h" not in output and "\x1b[?1h" not in output
