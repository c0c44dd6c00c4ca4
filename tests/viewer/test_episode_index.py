"""The index of episodes: what it reads of a line, and that it follows a log that changes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.viewer_runs import RunWriter, write_segment

from agentrl_jax.storage import trajectory_log
from agentrl_jax.viewer.episode_index import EpisodeIndex
from agentrl_jax.viewer.episode_summary import parse_line, summarize, summarize_line


def small_line(**fields: Any) -> dict[str, Any]:
    call = {
        "action": [5, 6, 7],
        "time": {"submitted": 10.0, "admitted": 11.0, "finished": 12.5},
        "training": {"weight": [0.5, 0, -0.25]},
    }
    turn = {"calls": [call], "time": {"environment": [12.5, 14.0]}}
    other = {"calls": [{"action": [8]}]}
    return {
        "schema": 2, "phase": "rl", "step": 3, "task": "a [1, 2]#7", "group": 12, "sample": 1,
        "seat": 0, "agent": "policy", "success": True, "stop_reason": "terminated",
        "error": None, "return": 1.5, "turns": [turn, other], **fields,
    }  # fmt: skip


def encoded(data: Any) -> bytes:
    return json.dumps(data).encode() + b"\n"


def test_a_line_is_summarized():
    summary = summarize_line(encoded(small_line()))
    assert summary._asdict() == {
        "step": 3, "group": 12, "sample": 1, "seat": 0, "total_reward": 1.5, "turns": 2,
        "tokens": 4, "trained": 2, "seconds": 4.0, "success": 1, "phase": "rl",
        "task": "a [1, 2]#7", "agent": "policy", "stop_reason": "terminated",
        "error": "", "damage": "",
    }  # fmt: skip


def test_lengths_in_the_place_of_arrays_change_nothing():
    writer = RunWriter()
    for line in writer.lines(2, 2, 2):
        assert summarize_line(encoded(line)) == summarize(parse_line(encoded(line)))


def test_what_the_trajectory_log_writes_is_read(tmp_path: Path):
    trajectory = RunWriter().trajectory(3, 12, 1)
    trajectory_log.write(tmp_path / "0-000000.jsonl", [trajectory], 3, "rl")
    index = EpisodeIndex(tmp_path)
    index.refresh()
    summary = index.table().summary(0)
    assert (summary.damage, summary.phase, summary.step, summary.group) == ("", "rl", 3, 12)
    assert summary.turns == len(trajectory.turns)
    assert summary.tokens == sum(len(call.action) for call in trajectory.calls)
    assert summary.total_reward == trajectory.total_reward


def test_what_is_absent_is_not_a_number():
    data = small_line(success=None, turns=[{"calls": []}], group=None, step={"$float": "inf"})
    summary = summarize_line(encoded(data))
    absent = (summary.success, summary.trained, summary.seconds, summary.group)
    assert all(map(math.isnan, absent)) and summary.step == math.inf and summary.tokens == 0


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        (b"{\n", "JSONDecodeError"),
        (b"[]\n", "an object was expected, not list"),
        (encoded({"schema": 1, "turns": []}), "schema '1' is not 2"),
        (encoded({"schema": 2}), "KeyError"),
        (encoded(small_line(turns=[1])), "TypeError"),
        (b"[" * 5000 + b"\n", "nested too deeply"),
        (encoded(small_line(step=10**400)), "OverflowError"),
        (b"\xff\xfe\n", "UnicodeDecodeError"),
    ],
)
def test_a_damaged_line_is_named(line: bytes, damage: str):
    summary = summarize_line(line)
    assert damage in summary.damage and math.isnan(summary.step)


def steps(index: EpisodeIndex) -> list[float]:
    index.refresh()
    return index.table().column("step").tolist()


def line_of_step(step: int) -> bytes:
    return encoded(small_line(step=step))


def test_the_index_follows_a_file_that_grows(tmp_path: Path):
    index = EpisodeIndex(tmp_path)
    assert steps(index) == []
    path = tmp_path / "0-000000.jsonl"
    path.write_bytes(line_of_step(0) + line_of_step(1)[:50])
    assert steps(index) == [0]
    with open(path, "ab") as file:
        file.write(line_of_step(1)[50:])
    assert steps(index) == [0, 1]
    assert index.progress() == (path.stat().st_size,) * 2
    (tmp_path / "0-000001.jsonl").write_bytes(line_of_step(2))
    assert steps(index) == [0, 1, 2]
    assert [index.table().episode_id(i) for i in range(3)] == [
        "0-000000/0",
        "0-000000/1",
        "0-000001/0",
    ]


def test_a_segment_that_was_deleted_leaves_the_index(tmp_path: Path):
    index = EpisodeIndex(tmp_path)
    for i in range(3):
        (tmp_path / f"0-00000{i}.jsonl").write_bytes(line_of_step(i))
    assert steps(index) == [0, 1, 2]
    (tmp_path / "0-000000.jsonl").unlink()
    assert index.read_line("0-000000/0") is None  # before the index knows
    assert steps(index) == [1, 2]
    assert index.read_line("0-000001/0") == line_of_step(1)


def test_a_segment_that_was_rewritten_is_read_again(tmp_path: Path):
    index, path = EpisodeIndex(tmp_path), tmp_path / "0-000000.jsonl"
    path.write_bytes(line_of_step(0) + line_of_step(1) + line_of_step(2))
    assert steps(index) == [0, 1, 2]
    with open(path, "r+b") as file:  # cut, in place
        file.truncate(len(line_of_step(0)))
    assert steps(index) == [0]
    other = tmp_path / "unfinished"
    other.write_bytes(line_of_step(7) + line_of_step(8) + line_of_step(9))
    other.replace(path)  # longer than before, but another file
    assert steps(index) == [7, 8, 9]


def test_a_line_is_read_by_its_name(tmp_path: Path):
    lines = list(RunWriter().lines(1, 1, 3))
    write_segment(tmp_path, "0-000000", lines)
    index = EpisodeIndex(tmp_path / "trajectories")
    index.refresh()
    read = [json.loads(index.read_line(f"0-000000/{i}") or b"") for i in range(3)]
    assert read == lines
    for name in ("0-000000/3", "0-000000/-1", "0-000000/x", "0-000000/" + "9" * 5000, "x/0", "",
                 "../trajectories/0-000000/0", "/etc/passwd/0"):  # fmt: skip
        assert index.read_line(name) is None, name


def test_segments_come_by_process_and_number(tmp_path: Path):
    index = EpisodeIndex(tmp_path)
    names = ["10-000000", "2-000001", "0-1000000", "0-999999", "2-000000"]
    for step, name in enumerate(names):
        (tmp_path / f"{name}.jsonl").write_bytes(line_of_step(step))
        index.refresh()
    (tmp_path / "notes.jsonl").write_bytes(line_of_step(9))
    assert steps(index) == [3, 2, 4, 1, 0]


def test_a_table_does_not_change_while_the_index_grows(tmp_path: Path):
    index, path = EpisodeIndex(tmp_path), tmp_path / "0-000000.jsonl"
    path.write_bytes(line_of_step(0))
    index.refresh()
    table = index.table()
    path.unlink()
    assert steps(index) == []
    path.write_bytes(line_of_step(4) + line_of_step(5))
    assert steps(index) == [4, 5]
    assert np.array_equal(table.column("step"), [0]) and table.summary(0).phase == "rl"
