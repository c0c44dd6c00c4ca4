"""`MemoryWatch`: bounds the resident memory of processes, each with all that it started.

Address space says nothing (JAX, torch and browsers reserve much more than they use), and limits of
the kernel count each process by itself, so a thread looks at what is resident in Linux's /proc.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
INTERVAL = 0.2  # seconds between two looks
MAX_SHARE = 0.02  # of the time of a core: with thousands of processes it looks less often
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
OnExceeded = Callable[[int], None]  # is called with the bytes, on the watch's thread


class Process(NamedTuple):
    """What Linux tells of a process."""

    parent: int
    session: int
    resident: int  # bytes; pages that are shared with others count in full


class MemoryWatch:
    """Looks at processes that lead a session of their own, until they are removed."""

    def __init__(self, limit: int) -> None:
        """Nothing is watched, and there is no thread, before `add`.

        Args:
            limit: bytes of each watched process with all that it started.
        """
        self._limit = limit
        self._watched: dict[int, OnExceeded] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, pid: int, on_exceeded: OnExceeded) -> None:
        """Watch a process, and call `on_exceeded` at each look at which it has more memory."""
        with self._lock:
            self._watched[pid] = on_exceeded
            if self._thread is None and PROC.is_dir():
                self._thread = threading.Thread(
                    target=self._run, name="memory of workers", daemon=True
                )
                self._thread.start()

    def remove(self, pid: int) -> None:
        """Watch a process no more."""
        with self._lock:
            self._watched.pop(pid, None)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        interval = INTERVAL
        while not self._closed.wait(interval):
            start = time.thread_time()
            self._look()
            interval = max(INTERVAL, (time.thread_time() - start) / MAX_SHARE)

    def _look(self) -> None:
        with self._lock:
            watched = dict(self._watched)
        processes = dict(running_processes()) if watched else {}
        members = process_members(processes, watched)
        for pid, on_exceeded in watched.items():
            size = sum(processes[p].resident for p in members[pid])
            if size > self._limit:
                # Forked processes share most of it, which has taken long to find out.
                size = sum(_proportional_bytes(p, processes[p].resident) for p in members[pid])
            if size > self._limit and pid in self._watched:
                on_exceeded(size)


def too_large(size: int) -> str:
    """What is said of a worker that has so many bytes, after its name."""
    return (
        f"had {size / 2**20:,.0f} MiB of memory, more than it may: raise "
        "config.environment.memory_mb, or switch the bound off with -1"
    )


def resident_bytes() -> int:
    """The resident memory of this process; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int((PROC / "self/statm").read_bytes().split()[1]) * PAGE_BYTES
    return 0


def running_processes() -> Iterator[tuple[int, Process]]:
    """All processes by their id."""
    for name in os.listdir(PROC):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (PROC / name / "stat").read_bytes()  # "71 (name) S 1 71 71 ..."
                fields = stat.rpartition(b")")[2].split()
                resident = int(fields[21]) * PAGE_BYTES
                yield int(name), Process(int(fields[1]), int(fields[3]), resident)


def process_members(
    processes: Mapping[int, Process], leaders: Iterable[int]
) -> dict[int, list[int]]:
    """For each leader the processes of its session and its descendants, itself included."""
    members: dict[int, list[int]] = {pid: [] for pid in leaders}
    for pid, process in processes.items():
        if process.session in members:
            members[process.session].append(pid)
            continue
        ancestor, steps = pid, 0
        while ancestor in processes and ancestor not in members and steps < len(processes):
            ancestor, steps = processes[ancestor].parent, steps + 1
        if ancestor in members:
            members[ancestor].append(pid)
    return members


def _proportional_bytes(pid: int, default: int) -> int:
    """A process's memory, of which each page that n processes share counts as an n-th."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        rollup = (PROC / str(pid) / "smaps_rollup").read_bytes()
        return int(rollup.partition(b"\nPss:")[2].split()[0]) * 1024
    return default
