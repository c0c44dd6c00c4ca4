"""The index of rollouts: what it says during a run, and that the record says the same."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hand_made import make_call, make_turn
from small_runs import Bare, streaming

from agentrl_jax import data_manager, journal
from agentrl_jax.data_manager import DataManager, News, recorded
from agentrl_jax.messages import user
from agentrl_jax.trajectories import Trajectory

TABLES = ("SELECT * FROM tasks ORDER BY id", "SELECT * FROM rollouts ORDER BY task, member")


def asked(path: Path, *questions: str) -> list[list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as base:
        return [base.execute(question).fetchall() for question in questions]


def trajectory(group: int, reward: float, versions: list[int]) -> Trajectory:
    call = make_call([1], [2] * len(versions), version=versions)
    turn = make_turn([call], reward, terminated=True)
    return Trajectory((user("go"),), (turn,), f"world#{group}", group, seed=group + 70, success=reward > 0)


def test_every_row_says_what_happened(tmp_path: Path):
    manager = DataManager(tmp_path / "index.sqlite", tmp_path / "none.jsonl", "rl")
    members = trajectory(5, 1.0, [2, 2, 3]), trajectory(5, 0.0, [3])
    manager.put(News(4, "world#4", 74, "started"))
    manager.put(News(5, "world#5", 75, "finished", played=members))
    manager.put(News(5, "world#5", 75, "used", 3, members))
    manager.close()
    tasks, rollouts = asked(tmp_path / "index.sqlite", *TABLES)
    assert tasks == [(4, "world#4", 74, "started", None), (5, "world#5", 75, "used", 3)]
    assert rollouts == [
        (5, 0, 0, 0, 1.0, 1, "terminated", 1, 3, 2, 3),
        (5, 1, 0, 0, 0.0, 0, "terminated", 1, 1, 3, 3),
    ]


def test_another_process_may_ask_during_a_run(tmp_path: Path):
    question = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM tasks WHERE used < 3').fetchone()[0])"
    found: list[int] = []
    run = Bare(tmp_path, streaming(1), clock=None)

    def train(step: int) -> None:
        if step == 4:
            command = [sys.executable, "-S", "-c", question, str(tmp_path / "rollouts.sqlite")]
            for _ in range(50):
                found.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
                if found[-1] == 9:
                    break

    run.train = train
    run.go()
    assert found[-1] == 9


def test_the_index_made_of_the_record_is_the_one_made_live(tmp_path: Path):
    run = Bare(tmp_path, streaming(2), clock=None).go()
    live = asked(tmp_path / "rollouts.sqlite", *TABLES)
    assert len(live[0]) == 18 and len(live[1]) == 36
    again = DataManager(tmp_path / "again.sqlite", run.journal, "rl")
    again.put(News(99, "", 0, "started"))
    again.close()
    tasks, rollouts = asked(tmp_path / "again.sqlite", *TABLES)
    assert [tasks[:-1], rollouts] == live and tasks[-1][0] == 99


def test_what_is_heard_faster_than_written_is_read_from_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_manager, "CAPACITY", 2)
    record = tmp_path / "trajectories.jsonl"
    manager = DataManager(tmp_path / "index.sqlite", record, "rl")
    monkeypatch.setattr(manager, "_start", lambda: None)  # it does not come to write
    for id in range(5):
        members = (trajectory(id, 1.0, [0]),)
        journal.write(record, members, id, "rl")
        manager.put(News(id, f"world#{id}", id + 70, "used", id, members))
    assert len(manager._pending) == 2
    monkeypatch.undo()
    manager.put(News(7, "world#7", 77, "started"))
    manager.close()
    assert asked(tmp_path / "index.sqlite", "SELECT id, used FROM tasks ORDER BY id") == [
        [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (7, None)]
    ]


def test_other_phases_are_no_part_of_it(tmp_path: Path):
    record = tmp_path / "trajectories.jsonl"
    journal.write(record, [trajectory(0, 1.0, [0])], 0, "sft")
    journal.write(record, [trajectory(1, 1.0, [0]), trajectory(1, 0.0, [0])], 4, "rl")
    assert [(news.id, news.used, len(news.played)) for news in recorded(record, "rl")] == [(1, 4, 2)]
    assert list(recorded(tmp_path / "none", "rl")) == []
