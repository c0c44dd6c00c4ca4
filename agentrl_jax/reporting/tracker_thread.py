"""`TrackerThread`, `TrackerGroup`: trackers that can neither stop nor slow a run."""

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentrl_jax.reporting.tracker import Status, TrackedRun, Tracker

MAX_PENDING = 1000  # records that wait for a tracker; further ones are dropped
RETRY_SECONDS = 60.0  # between two attempts to start a tracker
CLOSE_SECONDS = 60.0  # within which a tracker must have taken what waits for it
Action = Callable[[Tracker], None]


class TrackerThread:
    """Calls a tracker in a thread of its own.

    What it raises is reported once. A record that it fails to take, or that comes while
    `MAX_PENDING` others wait, is dropped and counted.
    """

    def __init__(
        self,
        tracker: Tracker,
        run: TrackedRun,
        warn: Callable[[str], None],
        max_pending: int = MAX_PENDING,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._tracker, self._warn, self._close_seconds = tracker, warn, close_seconds
        self._state_path = run.folder / "state.json"
        state = _read_state(self._state_path)
        self._run = replace(run, id=str(state.get("id", "")))
        self._last_step = int(state.get("last_step", -1))
        self._queue: queue.Queue[Action | None] = queue.Queue(max_pending)
        self._is_started, self._next_attempt, self._warned = False, 0.0, False
        self.dropped = self.taken = 0
        self._thread = threading.Thread(target=self._work, name=tracker.name, daemon=True)
        self._thread.start()

    @property
    def num_pending(self) -> int:
        return self._queue.qsize()

    def put(self, action: Action) -> None:
        """Have the tracker called soon; returns at once."""
        try:
            self._queue.put_nowait(action)
        except queue.Full:
            self._drop(f"more than {self._queue.maxsize:,} records wait for it")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """`Tracker.log`, unless the step was tracked before the run was resumed."""

        def log_new(tracker: Tracker) -> None:
            if step > self._last_step:
                tracker.log(step, metrics)
                self._last_step = step
                self._write_state()

        self.put(log_new)

    def finish(self, status: Status, deadline: float | None = None) -> None:
        """Call `Tracker.finish` after what waits, and end the thread or leave it behind.

        Args:
            status: how the run ended.
            deadline: of `time.monotonic`, until which the thread is waited for; None: in
                `close_seconds`.
        """
        deadline = deadline or time.monotonic() + self._close_seconds
        try:
            self._queue.put(lambda tracker: tracker.finish(status), timeout=_until(deadline))
            self._queue.put(None, timeout=_until(deadline))
        except queue.Full:
            self.dropped += 1
        self._thread.join(_until(deadline))
        unfinished = self._queue.qsize() if self._thread.is_alive() else 0
        if self._thread.is_alive():
            self._drop("it has not taken all records at the run's end", 0)
        if self.dropped or unfinished:
            total = self.dropped + unfinished + self.taken
            self._warn(
                f"the tracker {self._tracker.name} lacks {self.dropped + unfinished:,} of "
                f"{total:,} records; all are in the run folder"
            )

    def _work(self) -> None:
        while (action := self._queue.get()) is not None:
            if not self._is_started and not self._start():
                self.dropped += 1
                continue
            try:
                action(self._tracker)
                self.taken += 1
            except Exception as error:
                self._drop(_describe(error))

    def _start(self) -> bool:
        """Try to start the tracker, if it is time; returns whether it has started."""
        if time.monotonic() < self._next_attempt:
            return False
        try:
            self._run.folder.mkdir(parents=True, exist_ok=True)
            self._run = replace(self._run, id=self._tracker.start(self._run))
            self._write_state()
            self._is_started = True
        except Exception as error:
            self._next_attempt = time.monotonic() + RETRY_SECONDS
            self._drop(_describe(error), 0)
        return self._is_started

    def _drop(self, reason: str, count: int = 1) -> None:
        self.dropped += count
        if not self._warned:
            self._warned = True
            self._warn(
                f"the tracker {self._tracker.name} fails ({reason}): the run goes on, and what the "
                "tracker does not take is only counted"
            )

    def _write_state(self) -> None:
        unfinished = self._state_path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"id": self._run.id, "last_step": self._last_step}))
        unfinished.replace(self._state_path)


def _until(deadline: float) -> float:
    """The seconds that are left."""
    return max(0.0, deadline - time.monotonic())


def _read_state(path: Path) -> dict[str, str | int]:
    return json.loads(path.read_text()) if path.exists() else {}


def _describe(error: Exception) -> str:
    """The error's first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class TrackerGroup:
    """The trackers of a run; without any, all methods do nothing."""

    def __init__(self, threads: Sequence[TrackerThread] = ()) -> None:
        self._threads = list(threads)

    def __len__(self) -> int:
        return len(self._threads)

    @property
    def num_pending(self) -> int:
        """Records that wait for trackers."""
        return sum(thread.num_pending for thread in self._threads)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        for thread in self._threads:
            thread.log(step, metrics)

    def results(self, values: Mapping[str, float], paths: Sequence[Path]) -> None:
        """`Tracker.summary` of the values, and `Tracker.artifact` of each path."""
        for thread in self._threads:
            thread.put(lambda tracker: tracker.summary(values))
            for path in paths:
                thread.put(lambda tracker, path=path: tracker.artifact(path))

    def finish(self, status: Status) -> None:
        """See `Tracker.finish`; only the first call counts."""
        threads, self._threads = self._threads, []
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            thread.finish(status, deadline)


def open_trackers(
    trackers: Sequence[Tracker], run: TrackedRun, warn: Callable[[str], None]
) -> TrackerGroup:
    """A thread for each tracker; `run.folder` is the folder of all of them."""
    return TrackerGroup(
        [
            TrackerThread(tracker, replace(run, folder=run.folder / tracker.name), warn)
            for tracker in trackers
        ]
    )
