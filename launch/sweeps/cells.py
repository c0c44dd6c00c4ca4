"""Cells: training runs in processes of their own, so many side by side; what is finished is not run again."""

import contextlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.locks import alone

TRAIN = (sys.executable, "-m", "agentrl_jax.launch.train")
LAST_LINES = 5  # of a failed cell's log


@dataclass(frozen=True, eq=False)
class Cell:
    """One `agentrl-train`. Its log lies beside its run folder."""

    config: str  # file.py:variant
    overrides: Mapping[str, str]  # of the config's fields
    seed: int
    run_dir: Path

    @property
    def flags(self) -> list[str]:
        overrides = [f"--config.{field}={value}" for field, value in self.overrides.items()]
        return [f"--config={self.config}", *overrides, f"--config.seed={self.seed}"]

    @property
    def finished(self) -> bool:
        return (self.run_dir / "summary.json").exists()

    @property
    def log(self) -> Path:
        return self.run_dir.with_name(f"{self.run_dir.name}.log")

    def last_words(self) -> list[str]:
        return [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()][-LAST_LINES:]


def run_cells(cells: Sequence[Cell], folder: Path, parallel: int, finished: Callable[[Cell], None] = lambda cell: None) -> list[Cell]:
    """Run what is not finished, `parallel` cells side by side; calls `finished` after each and returns those that failed.

    A Ctrl-C or SIGTERM asks all of them to save and leave, waits for that and raises KeyboardInterrupt; a second one kills them.
    Raises UserError where `folder`, which is this call's alone, cannot be written.
    """
    waiting, failed = deque(cell for cell in cells if not cell.finished), []
    running: dict[Cell, subprocess.Popen[bytes]] = {}
    with alone(folder, "running cells") as lock, _terminable():  # cells inherit the lock, so none is started a second time
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    cell = waiting.popleft()
                    running[cell] = _start(cell, lock)
                    print(f"{cell.run_dir}: started, {len(waiting)} waiting", file=sys.stderr, flush=True)
                ended = [cell for cell, process in running.items() if process.poll() is not None]
                for cell in ended:
                    status = running.pop(cell).returncode
                    if status == 0 and cell.finished:
                        print(f"{cell.run_dir}: finished", file=sys.stderr, flush=True)
                        finished(cell)
                    else:
                        failed.append(cell)
                        _tell(cell, status)
                if not ended:
                    time.sleep(0.05)
        finally:
            _end(list(running.values()))
    return failed


def _start(cell: Cell, lock: int) -> subprocess.Popen[bytes]:
    """In a session of its own: a terminal's Ctrl-C comes to us alone, and we pass it on once."""
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    command = [*TRAIN, *cell.flags, f"--run_dir={cell.run_dir}"]
    with open(cell.log, "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=[lock]
        )


def _tell(cell: Cell, status: int) -> None:
    print(f"{cell.run_dir}: failed with exit status {status}; the end of {cell.log}:", file=sys.stderr)
    print("".join(f"    {line}\n" for line in cell.last_words()), end="", file=sys.stderr, flush=True)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    if processes:
        print(f"stopping, cells that save and leave: {len(processes)} (a second Ctrl-C kills them)", file=sys.stderr, flush=True)
    try:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()
        raise


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is a Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
