"""The rollout index during a run, and its agreement with the trajectory log."""

import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.fixtures import make_call, make_turn
from support.small_runs import LearnerlessRun, async_source

from agentrl_jax.messages import user
from agentrl_jax.storage import rollout_index, trajectory_log
from agentrl_jax.storage.rollout_index import IndexEvent, RolloutIndex, log_events
from agentrl_jax.trajectories import Trajectory

TABLES = ("SELECT * FROM tasks ORDER BY id", "SELECT * FROM rollouts ORDER BY task, member")


def query(path: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(text).fetchall() for text in queries]


def trajectory(group: int, reward: float, versions: list[int]) -> Trajectory:
    call = make_call([1], [2] * len(versions), version=versions)
    turn = make_turn([call], reward, terminated=True)
    return Trajectory(
        (user("go"),), (turn,), f"task#{group}", group, seed=group + 70, success=reward > 0
    )


def test_the_rows_hold_the_last_state_of_each_task(tmp_path: Path):
    index = RolloutIndex(tmp_path / "index.sqlite", list, "rl")
    members = trajectory(5, 1.0, [2, 2, 3]), trajectory(5, 0.0, [3])
    index.put(IndexEvent(4, "task#4", 74, "started"))
    index.put(IndexEvent(5, "task#5", 75, "finished", trajectories=members))
    index.put(IndexEvent(5, "task#5", 75, "used", 3, members))
    index.close()
    tasks, rollouts = query(tmp_path / "index.sqlite", *TABLES)
    assert tasks == [(4, "task#4", 74, "started", None), (5, "task#5", 75, "used", 3)]
    assert rollouts == [
        (5, 0, 0, 0, 1.0, 1, "terminated", 1, 3, 2, 3),
        (5, 1, 0, 0, 0.0, 0, "terminated", 1, 1, 3, 3),
    ]


def test_a_cut_episode_has_no_success_and_a_silent_environments_is_unknown(tmp_path: Path):
    silent = trajectory(1, 0.0, [0]).replace(success=None)
    members = (silent, silent.replace(stop_reason="tokens"))
    index = RolloutIndex(tmp_path / "index.sqlite", list, "rl")
    index.put(IndexEvent(1, "task#1", 71, "used", 0, members))
    index.close()
    (rows,) = query(tmp_path / "index.sqlite", "SELECT success, stop FROM rollouts ORDER BY member")
    assert rows == [(None, "terminated"), (0, "tokens")]


def test_another_process_may_query_the_index_during_a_run(tmp_path: Path):
    program = (
        "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
        "print(connection.execute('SELECT count(*) FROM tasks WHERE used < 3').fetchone()[0])"
    )
    counts: list[int] = []
    run = LearnerlessRun(tmp_path, async_source(1), clock=None)

    def train(step: int) -> None:
        if step == 4:
            command = [sys.executable, "-S", "-c", program, str(tmp_path / "rollouts.sqlite")]
            for _ in range(50):
                counts.append(
                    int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                )
                if counts[-1] == 9:
                    break

    run.train_step = train
    run.run()
    assert counts[-1] == 9


def test_an_index_rebuilt_from_the_log_equals_the_live_one(tmp_path: Path):
    run = LearnerlessRun(tmp_path, async_source(2), clock=None).run()
    live = query(tmp_path / "rollouts.sqlite", *TABLES)
    assert len(live[0]) == 18 and len(live[1]) == 36
    rebuilt = RolloutIndex(tmp_path / "rebuilt.sqlite", run.read_log, "rl")
    rebuilt.put(IndexEvent(99, "", 0, "started"))
    rebuilt.close()
    tasks, rollouts = query(tmp_path / "rebuilt.sqlite", *TABLES)
    assert [tasks[:-1], rollouts] == live and tasks[-1][0] == 99


def test_events_dropped_from_a_full_queue_are_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rollout_index, "MAX_PENDING", 2)
    log_path = tmp_path / "trajectories.jsonl"
    index = RolloutIndex(tmp_path / "index.sqlite", lambda: trajectory_log.read(log_path), "rl")
    monkeypatch.setattr(index, "_start", lambda: None)  # nothing is written
    for id in range(5):
        members = (trajectory(id, 1.0, [0]),)
        trajectory_log.write(log_path, members, id, "rl")
        index.put(IndexEvent(id, f"task#{id}", id + 70, "used", id, members))
    assert len(index._pending) == 2
    monkeypatch.undo()
    index.put(IndexEvent(7, "task#7", 77, "started"))
    index.close()
    assert query(tmp_path / "index.sqlite", "SELECT id, used FROM tasks ORDER BY id") == [
        [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (7, None)]
    ]


def test_only_the_lines_of_the_phase_are_indexed(tmp_path: Path):
    log_path = tmp_path / "trajectories.jsonl"
    trajectory_log.write(log_path, [trajectory(0, 1.0, [0])], 0, "sft")
    trajectory_log.write(log_path, [trajectory(1, 1.0, [0]), trajectory(1, 0.0, [0])], 4, "rl")
    assert [
        (event.id, event.used_at_step, len(event.trajectories))
        for event in log_events(trajectory_log.read(log_path), "rl")
    ] == [(1, 4, 2)]


def test_events_of_two_threads_restart_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The event loop and the trainer both hand in events, also at the moment of a failure."""

    def writers() -> int:
        return sum(thread.name == "rollout index" for thread in threading.enumerate())

    running: list[int] = []
    start, there = threading.Thread.start, threading.Barrier(2)

    def counted_start(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(0.02)  # before `put` knows of it
        running.append(writers())

    monkeypatch.setattr(threading.Thread, "start", counted_start)
    index = RolloutIndex(tmp_path / "index.sqlite", list, "rl")

    def put(id: int) -> None:
        there.wait()
        index.put(IndexEvent(id, f"task#{id}", 70, "started"))

    with ThreadPoolExecutor(2) as pool:
        wait(pool.submit(put, id) for id in range(2))
    index.close()
    assert running[-1] == 1 and writers() == 0
    assert query(tmp_path / "index.sqlite", "SELECT id FROM tasks ORDER BY id") == [[(0,), (1,)]]


def test_a_failure_at_the_end_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    insert, failures = rollout_index.insert_events, iter(range(2))

    def faulty(*args: Any) -> None:
        if next(failures, None) is not None:
            time.sleep(0.05)
            raise sqlite3.OperationalError("disk I/O error")
        insert(*args)

    monkeypatch.setattr(rollout_index, "insert_events", faulty)
    messages: list[str] = []
    index = RolloutIndex(tmp_path / "index.sqlite", list, "rl", messages.append)
    index.put(IndexEvent(4, "task#4", 74, "started"))
    index.close()
    assert len(messages) == 2 and query(tmp_path / "index.sqlite", TABLES[0]) == [
        [(4, "task#4", 74, "started", None)]
    ]
