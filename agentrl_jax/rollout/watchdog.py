"""`Watchdog`: reports waits that take long, with what they wait for."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from agentrl_jax.workers.pool import Task

NO_TASK = Task("", 0)


class EpisodeWait(NamedTuple):
    """An episode that waits."""

    task: str
    target: str  # "the engine 'policy'", "its environment (worker 3)"
    seconds: float  # so far


class WaitRecord:
    """One wait, for the duration of a `with` block; its text is made only for a report."""

    __slots__ = ("_waits", "describe_target", "report_age", "sample", "start_time", "task", "turn")

    def __init__(
        self,
        waits: "dict[int, WaitRecord]",
        task: Task,
        sample: int,
        turn: int,
        describe_target: Callable[[], str],
        threshold: float,
    ) -> None:
        self._waits = waits
        self.task, self.sample, self.turn = task, sample, turn
        self.describe_target = describe_target
        self.start_time = 0.0
        self.report_age = threshold  # the age in seconds at which it is reported next

    def __enter__(self) -> None:
        self.start_time = time.monotonic()
        self._waits[id(self)] = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._waits[id(self)]

    def __str__(self) -> str:
        name = self.task.name.rpartition(":")[2]
        age = time.monotonic() - self.start_time
        return (
            f"{name} sample {self.sample} turn {self.turn} waits {age:.0f} s "
            f"for {self.describe_target()}"
        )


class WorkRecord(WaitRecord):
    """The work of one component of the run."""

    __slots__ = ("component",)

    def __init__(
        self,
        waits: "dict[int, WaitRecord]",
        component: str,
        describe_target: Callable[[], str],
        threshold: float,
    ) -> None:
        super().__init__(waits, NO_TASK, 0, 0, describe_target, threshold)
        self.component = component

    def __str__(self) -> str:
        age = time.monotonic() - self.start_time
        return f"{self.component} has been at {self.describe_target()} for {age:.0f} s"


class Watchdog:
    """Reports every wait older than `threshold` seconds, and again whenever its age has doubled.

    It runs in a thread of its own, since an environment in this process can block the event loop.
    Of many waits for the same target only the oldest is reported.
    """

    def __init__(self, threshold: float, log: Callable[[str], None]) -> None:
        self._threshold, self._log = threshold, log
        self._waits: dict[int, WaitRecord] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def track_wait(
        self, task: Task, sample: int, turn: int, describe_target: Callable[[], str]
    ) -> WaitRecord:
        """A context manager around one wait; `describe_target` is called for a report."""
        return WaitRecord(self._waits, task, sample, turn, describe_target, self._threshold)

    def track_work(self, component: str, describe_target: Callable[[], str]) -> WorkRecord:
        """A context manager around the work of a component."""
        return WorkRecord(self._waits, component, describe_target, self._threshold)

    def waits(self) -> list[EpisodeWait]:
        """What episodes wait for now; from any thread."""
        now = time.monotonic()
        return [
            EpisodeWait(wait.task.name, wait.describe_target(), now - wait.start_time)
            for wait in list(self._waits.values())
            if wait.task is not NO_TASK
        ]

    def report_overdue(self) -> None:
        """Report the waits that are due now."""
        now = time.monotonic()
        overdue: dict[str, list[WaitRecord]] = {}
        for wait in list(self._waits.values()):
            if now - wait.start_time >= self._threshold:
                overdue.setdefault(wait.describe_target(), []).append(wait)
        for waits in overdue.values():
            oldest = min(waits, key=lambda wait: wait.start_time)
            age = now - oldest.start_time
            if age >= oldest.report_age:
                more = f"; so do {len(waits) - 1} more" if len(waits) > 1 else ""
                self._log(f"{oldest}{more}")
                for wait in waits:
                    wait.report_age = now - wait.start_time + age

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._threshold / 4):
            self.report_overdue()
