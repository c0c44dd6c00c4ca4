"""`DataManager`: an index of tasks and rollouts in SQLite, which other processes may ask while the run goes on.

    tasks(id, name, seed, state, used)     state: started, finished, used; used: the step that trained on it, or NULL
    rollouts(task, member, sample, seat, reward, success, stop, turns, tokens, oldest, newest)     versions of its tokens, or NULL

The record (trajectories.jsonl) is what holds; this is made from it anew whenever it is opened, and whenever something went wrong.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax import journal
from agentrl_jax.trajectories import Trajectory

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (id INTEGER PRIMARY KEY, name TEXT, seed INTEGER, state TEXT, used INTEGER);
CREATE TABLE IF NOT EXISTS rollouts (
    task INTEGER REFERENCES tasks(id), member INTEGER, sample INTEGER, seat INTEGER, reward REAL, success INTEGER, stop TEXT,
    turns INTEGER, tokens INTEGER, oldest INTEGER, newest INTEGER, PRIMARY KEY (task, member)
);
"""
CAPACITY = 4096  # tasks whose news are not written yet
RESTARTS = 3
LEAVE = 10.0  # seconds that the writer gets to leave


@dataclass(frozen=True)
class News:
    """What became of a task; the newest says everything."""

    id: int
    name: str
    seed: int
    state: str
    used: int | None = None
    played: tuple[Trajectory, ...] = ()


class DataManager:
    """One thread writes. Whoever has news never waits for it: of many news of a task the last counts, and beyond CAPACITY tasks those
    heard first are forgotten, to be read from the record."""

    def __init__(
        self,
        path: Path,
        record: Path,
        phase: str,
        say: Callable[[str], None] = print,
        at: Callable[[str, Callable[[], str]], AbstractContextManager[None]] | None = None,
    ) -> None:
        """`say` hears what goes wrong; `at` is put around each piece of work (`Runtime.at`)."""
        self._path, self._record, self._phase, self._say, self._at = path, record, phase, say, at
        self._pending: dict[int, News] = {}
        self._change = threading.Condition()
        self._behind, self._closed, self._restarts = True, False, 0
        self._thread: threading.Thread | None = None
        self.busy = 0.0  # seconds that it worked

    def put(self, news: News) -> None:
        """Hand in news; does not wait."""
        with self._change:
            self._pending.pop(news.id, None)
            self._pending[news.id] = news
            if len(self._pending) > CAPACITY:
                del self._pending[next(iter(self._pending))]
                self._behind = True
            self._change.notify()
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        if self._thread is not None:
            self._restarts += 1
            if self._restarts == RESTARTS + 1:
                self._say(f"the data manager failed {RESTARTS + 1} times and is left off; the run goes on without {self._path.name}")
        if self._restarts <= RESTARTS:
            self._thread = threading.Thread(target=self._serve, name="data manager", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        taken: dict[int, News] = {}
        try:
            with closing(sqlite3.connect(self._path)) as base:
                base.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA)
                while True:
                    with self._change:
                        self._change.wait_for(lambda: self._pending or self._closed)
                        taken, self._pending = self._pending, {}
                        behind, self._behind = self._behind, False
                    if not taken:
                        return
                    self._work(base, taken, behind)
        except Exception as error:
            self._say(f"the data manager failed ({type(error).__name__}: {error}); it starts again from the record with the next news")
        with self._change:  # what is newer counts
            self._pending, self._behind = {**taken, **self._pending}, True

    def _work(self, base: sqlite3.Connection, taken: dict[int, News], behind: bool) -> None:
        began = time.monotonic()
        what = f"news of {len(taken)} tasks" + (" and the whole record" if behind else "")
        if self._at is None:
            self._write(base, taken, behind)
        else:
            with self._at("the data manager", lambda: what):
                self._write(base, taken, behind)
        self.busy += time.monotonic() - began

    def _write(self, base: sqlite3.Connection, taken: dict[int, News], behind: bool) -> None:
        with base:
            if behind:
                for table in ("rollouts", "tasks"):
                    base.execute(f"DELETE FROM {table}")
                insert(base, recorded(self._record, self._phase))
            insert(base, taken.values())

    def close(self) -> None:
        """Write what is left. A writer that hangs is left behind: the next run makes the index anew."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is not None:
            if self._pending and not self._thread.is_alive():
                self._start()
            self._thread.join(LEAVE)
            if self._thread.is_alive():
                self._say(f"the data manager is stuck and left behind: {self._path.name} is not complete")


def insert(base: sqlite3.Connection, news: "Iterator[News] | Sequence[News] | Any") -> None:
    """Put news of tasks into the tables; what was known of these tasks goes."""
    for one in news:
        base.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)", (one.id, one.name, one.seed, one.state, one.used))
        base.execute("DELETE FROM rollouts WHERE task = ?", (one.id,))
        rows = [_row(one.id, member, trajectory) for member, trajectory in enumerate(one.played)]
        base.executemany("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _row(task: int, member: int, t: Trajectory) -> tuple[Any, ...]:
    versions = [int(v) for call in t.calls for v in call.version]
    success = None if t.success is None else int(t.success)
    tokens, oldest, newest = len(versions), min(versions, default=None), max(versions, default=None)
    return task, member, t.sample, t.seat, t.total_reward, success, t.stop_reason, len(t.turns), tokens, oldest, newest


def recorded(record: Path, phase: str) -> Iterator[News]:
    """What a run's record says of a phase: the tasks that were used, with their rollouts. Raises UserError where it is damaged."""
    played: dict[int, list[Trajectory]] = {}
    steps: dict[int, int] = {}
    for header, trajectory in journal.read(record) if record.exists() else ():
        if header["phase"] == phase:
            played.setdefault(trajectory.group, []).append(trajectory)
            steps[trajectory.group] = header["step"]
    for id, members in played.items():
        yield News(id, members[0].task, members[0].seed, "used", steps[id], tuple(members))
