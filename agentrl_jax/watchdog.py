"""`Watchdog`: who waits for whom, and who has waited for long."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from agentrl_jax.workers import Task

NOBODY = Task("", 0)


class Wait:
    """One wait, for as long as the `with` block runs. What it says is put into words only when it is told."""

    __slots__ = ("_waits", "due", "sample", "since", "target", "task", "turn")

    def __init__(self, waits: "dict[int, Wait]", task: Task, sample: int, turn: int, target: Callable[[], str], patience: float) -> None:
        self._waits = waits
        self.task, self.sample, self.turn, self.target = task, sample, turn, target
        self.since, self.due = 0.0, patience

    def __enter__(self) -> None:
        self.since = time.monotonic()
        self._waits[id(self)] = self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del self._waits[id(self)]

    def __str__(self) -> str:
        name = self.task.name.rpartition(":")[2]
        return f"{name} sample {self.sample} turn {self.turn} waits {time.monotonic() - self.since:.0f} s for {self.target()}"


class Work(Wait):
    """A piece of work of one of the run's modules."""

    __slots__ = ("who",)

    def __init__(self, waits: "dict[int, Wait]", who: str, target: Callable[[], str], patience: float) -> None:
        super().__init__(waits, NOBODY, 0, 0, target, patience)
        self.who = who

    def __str__(self) -> str:
        return f"{self.who} has been at {self.target()} for {time.monotonic() - self.since:.0f} s"


class Watchdog:
    """Tells `say` of every wait that is older than `patience` seconds, and again whenever its age has doubled.

    It looks from a thread of its own, since a world in this process can hold up the event loop itself. Of many that wait for the
    same, the oldest stands for all.
    """

    def __init__(self, patience: float, say: Callable[[str], None]) -> None:
        self._patience, self._say = patience, say
        self._waits: dict[int, Wait] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def wait(self, task: Task, sample: int, turn: int, target: Callable[[], str]) -> Wait:
        """A context manager around one wait; `target` says in words for what, if asked."""
        return Wait(self._waits, task, sample, turn, target, self._patience)

    def work(self, who: str, target: Callable[[], str]) -> Work:
        """A context manager around what a module is at."""
        return Work(self._waits, who, target, self._patience)

    def look(self) -> None:
        """Tell of the waits that are due now."""
        now, long = time.monotonic(), {}
        for wait in list(self._waits.values()):
            if now - wait.since >= self._patience:
                long.setdefault(wait.target(), []).append(wait)
        for waits in long.values():
            oldest = min(waits, key=lambda wait: wait.since)
            age = now - oldest.since
            if age >= oldest.due:
                others = f"; so do {len(waits) - 1} more" if len(waits) > 1 else ""
                self._say(f"{oldest}{others}")
                for wait in waits:
                    wait.due = now - wait.since + age

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._patience / 4):
            self.look()
