"""Cells: training runs in their own processes, several at a time; finished ones are skipped."""

import contextlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.storage.folder_lock import exclusive_lock

TRAIN_COMMAND = (sys.executable, "-m", "agentrl_jax.launch.train")
LOG_TAIL_LINES = 5  # of a failed cell's log


@dataclass(frozen=True, eq=False)
class Cell:
    """One `agentrl-train`. Its log is next to its run folder."""

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
    def log_path(self) -> Path:
        return self.run_dir.with_name(f"{self.run_dir.name}.log")

    def log_tail(self) -> list[str]:
        return [
            line for line in self.log_path.read_text(errors="replace").splitlines() if line.strip()
        ][-LOG_TAIL_LINES:]


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    parallel: int,
    on_finished: Callable[[Cell], None] = lambda cell: None,
) -> list[Cell]:
    """Run the unfinished cells, `parallel` at a time, and return those that failed.

    Calls `on_finished` after each. A Ctrl-C or SIGTERM asks all running cells to save and exit,
    waits for that and raises KeyboardInterrupt; a second one kills them. Raises UserError where
    `folder` cannot be written or another command is running cells in it.
    """
    waiting, failed = deque(cell for cell in cells if not cell.finished), []
    running: dict[Cell, subprocess.Popen[bytes]] = {}
    # Cells inherit the lock: none is started twice, even if this process is killed.
    with exclusive_lock(folder, "running cells") as lock, _sigterm_as_interrupt():
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    cell = waiting.popleft()
                    running[cell] = _start(cell, lock.descriptor)
                    print(
                        f"{cell.run_dir}: started, {len(waiting)} waiting",
                        file=sys.stderr,
                        flush=True,
                    )
                ended = [cell for cell, process in running.items() if process.poll() is not None]
                for cell in ended:
                    status = running.pop(cell).returncode
                    if status == 0 and cell.finished:
                        print(f"{cell.run_dir}: finished", file=sys.stderr, flush=True)
                        on_finished(cell)
                    else:
                        failed.append(cell)
                        _print_failure(cell, status)
                if not ended:
                    time.sleep(0.05)
        finally:
            _terminate(list(running.values()))
    return failed


def _start(cell: Cell, lock: int) -> subprocess.Popen[bytes]:
    """Start a cell in its own session, so that only we get a terminal's Ctrl-C and forward it."""
    cell.log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*TRAIN_COMMAND, *cell.flags, f"--run_dir={cell.run_dir}"]
    with open(cell.log_path, "wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )


def _print_failure(cell: Cell, status: int) -> None:
    print(
        f"{cell.run_dir}: failed with exit status {status}; the end of {cell.log_path}:",
        file=sys.stderr,
    )
    print("".join(f"    {line}\n" for line in cell.log_tail()), end="", file=sys.stderr, flush=True)


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    if processes:
        print(
            f"stopping, cells that save and exit: {len(processes)} (a second Ctrl-C kills them)",
            file=sys.stderr,
            flush=True,
        )
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
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM as a Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
