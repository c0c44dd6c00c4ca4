"""`RolloutIndex`: an SQLite index of tasks and rollouts, which other processes may query meanwhile.

    tasks(id, name, seed, state, used)
        state: started, finished or used; used: the training step, or NULL
    rollouts(task, member, sample, seat, reward, success, stop, turns, tokens, oldest, newest)
        success: 0 of an episode that was cut, NULL where the environment does not report it
        oldest, newest: weight versions of its tokens, or NULL

The trajectory log is the source of truth: the index is rebuilt from it
whenever it is opened, and after every failure.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.trajectories import Trajectory
from agentrl_jax.trajectory_record import TrajectoryRecord

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY, name TEXT, seed INTEGER, state TEXT, used INTEGER
);
CREATE TABLE IF NOT EXISTS rollouts (
    task INTEGER REFERENCES tasks(id), member INTEGER, sample INTEGER, seat INTEGER, reward REAL,
    success INTEGER, stop TEXT, turns INTEGER, tokens INTEGER, oldest INTEGER, newest INTEGER,
    PRIMARY KEY (task, member)
);
"""
MAX_PENDING = 4096  # tasks with unwritten events
MAX_RESTARTS = 3
CLOSE_TIMEOUT = 10.0  # seconds that the writer thread gets to finish


@dataclass(frozen=True)
class IndexEvent:
    """The state of a task; an event replaces all earlier ones of its task."""

    id: int
    name: str
    seed: int
    state: str
    used_at_step: int | None = None
    trajectories: tuple[Trajectory, ...] = ()


class RolloutIndex:
    """One thread writes; `put` never waits for it.

    Of several pending events of a task only the last is written. Beyond `MAX_PENDING` tasks the
    oldest events are dropped, and the index is rebuilt from the trajectory log.
    """

    def __init__(
        self,
        path: Path,
        read_log: Callable[[], Iterable[TrajectoryRecord]],
        phase: str,
        log: Callable[[str], None] = print,
        track_work: Callable[[str, Callable[[], str]], AbstractContextManager[None]] | None = None,
    ) -> None:
        """A closed index of a phase; the thread starts with the first event.

        Args:
            path: the SQLite file.
            read_log: reads the trajectory log to rebuild from.
            phase: the phase whose lines of the log count.
            log: called with a line about each failure.
            track_work: a context manager around each piece of work (`Runtime.track_work`).
        """
        self._path, self._read_log, self._phase = path, read_log, phase
        self._log, self._track_work = log, track_work
        self._pending: dict[int, IndexEvent] = {}
        self._condition = threading.Condition()
        self._needs_rebuild, self._closed, self._restarts = True, False, 0
        self._thread: threading.Thread | None = None
        self.busy_seconds = 0.0  # spent writing

    def put(self, event: IndexEvent) -> None:
        """Hand in an event; does not wait."""
        with self._condition:
            self._pending.pop(event.id, None)
            self._pending[event.id] = event
            if len(self._pending) > MAX_PENDING:
                del self._pending[next(iter(self._pending))]
                self._needs_rebuild = True
            self._condition.notify()
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def _start(self) -> None:
        """Start the writer, or start it again; the caller holds the lock."""
        if self._thread is not None:
            self._restarts += 1
            if self._restarts == MAX_RESTARTS + 1:
                self._log(
                    f"the rollout index failed {MAX_RESTARTS + 1} times and is switched off; "
                    f"the run continues without {self._path.name}"
                )
        if self._restarts <= MAX_RESTARTS:
            thread = threading.Thread(target=self._writer_loop, name="rollout index", daemon=True)
            thread.start()
            self._thread = thread

    def _writer_loop(self) -> None:
        events: dict[int, IndexEvent] = {}
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.executescript(
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA
                )
                while True:
                    with self._condition:
                        self._condition.wait_for(lambda: self._pending or self._closed)
                        events, self._pending = self._pending, {}
                        rebuild, self._needs_rebuild = self._needs_rebuild, False
                    if not events:
                        return
                    self._timed_write(connection, events, rebuild)
        except Exception as error:
            self._log(
                f"the rollout index failed ({type(error).__name__}: {error}); "
                "it is rebuilt from the trajectory log with the next event"
            )
        with self._condition:  # of two events of a task the newer one counts
            self._pending, self._needs_rebuild = {**events, **self._pending}, True

    def _timed_write(
        self, connection: sqlite3.Connection, events: dict[int, IndexEvent], rebuild: bool
    ) -> None:
        start = time.monotonic()
        work = f"events of {len(events)} tasks" + (" and the trajectory log" if rebuild else "")
        if self._track_work is None:
            self._write(connection, events, rebuild)
        else:
            with self._track_work("the rollout index", lambda: work):
                self._write(connection, events, rebuild)
        self.busy_seconds += time.monotonic() - start

    def _write(
        self, connection: sqlite3.Connection, events: dict[int, IndexEvent], rebuild: bool
    ) -> None:
        with connection:
            if rebuild:
                for table in ("rollouts", "tasks"):
                    connection.execute(f"DELETE FROM {table}")
                insert_events(connection, log_events(self._read_log(), self._phase))
            insert_events(connection, events.values())

    def close(self) -> None:
        """Write the pending events; a writer thread that hangs is abandoned."""
        self._closed = True
        while self._thread is not None and self._restarts <= MAX_RESTARTS:
            with self._condition:
                self._condition.notify()
                if self._pending and not self._thread.is_alive():
                    self._start()
            self._thread.join(CLOSE_TIMEOUT)
            if self._thread.is_alive():
                self._log(
                    f"the rollout index is stuck and abandoned: {self._path.name} is not complete"
                )
            if self._thread.is_alive() or not self._pending:
                return


def insert_events(connection: sqlite3.Connection, events: Iterable[IndexEvent]) -> None:
    """Write events into the tables; they replace the rows of their tasks."""
    for event in events:
        connection.execute(
            "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)",
            (event.id, event.name, event.seed, event.state, event.used_at_step),
        )
        connection.execute("DELETE FROM rollouts WHERE task = ?", (event.id,))
        rows = [
            _rollout_columns(event.id, member, trajectory)
            for member, trajectory in enumerate(event.trajectories)
        ]
        connection.executemany(
            "INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
        )


def _rollout_columns(task: int, member: int, trajectory: Trajectory) -> tuple[Any, ...]:
    versions = [int(v) for call in trajectory.calls for v in call.version]
    success = None if trajectory.succeeded is None else int(trajectory.succeeded)
    return (
        task,
        member,
        trajectory.sample,
        trajectory.agent_index,
        trajectory.total_reward,
        success,
        trajectory.stop_reason,
        len(trajectory.turns),
        len(versions),
        min(versions, default=None),
        max(versions, default=None),
    )


def log_events(log: Iterable[TrajectoryRecord], phase: str) -> Iterator[IndexEvent]:
    """The used tasks of a phase, with their rollouts, from a trajectory log."""
    trajectories: dict[int, list[Trajectory]] = {}
    steps: dict[int, int] = {}
    for record in log:
        if record.phase == phase:
            trajectories.setdefault(record.trajectory.group, []).append(record.trajectory)
            steps[record.trajectory.group] = record.step
    for id, members in trajectories.items():
        yield IndexEvent(id, members[0].task, members[0].seed, "used", steps[id], tuple(members))
