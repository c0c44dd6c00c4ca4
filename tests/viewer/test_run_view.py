"""Timelines, curves and comparisons of runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.viewer_runs import write_run

from agentrl_jax.errors import UserError
from agentrl_jax.storage.line_checksum import add_checksum
from agentrl_jax.viewer.comparison import differences
from agentrl_jax.viewer.curves import Curve, MetricsFile, downsample
from agentrl_jax.viewer.run_view import RunView
from agentrl_jax.viewer.timeline import step_timeline


def call(slot: int | None = 4, start: float = 100.0) -> dict[str, Any]:
    moments = ("submitted", "admitted", "prefilled", "finished")
    time = {name: start + i for i, name in enumerate(moments)}
    return {"action": [1], "time": {**time, **({} if slot is None else {"slot": slot})}}


def test_a_timeline_by_hand():
    turns = [
        {"calls": [call()], "time": {"environment": [103.0, 105.5]}},
        {"calls": [{"action": [1]}]},  # scripted: not measured
    ]
    data = step_timeline([("2-000000/5", {"turns": turns})]).to_json()
    assert data["rows"] == ["process 2, slot 4"] and data["episodes"] == ["2-000000/5"]
    assert data["kinds"] == ("waiting", "prefill", "decode", "environment")
    assert data["start"] == 100.0 and data["unmeasured"] == 1
    assert data["intervals"] == [
        [0, 0, 0.0, 1.0, 0, 0],
        [0, 1, 1.0, 2.0, 0, 0],
        [0, 2, 2.0, 3.0, 0, 0],
        [0, 3, 3.0, 5.5, 0, 0],
    ]


def test_rows_are_ordered_by_number_and_calls_without_a_slot_have_their_own():
    names = ["0-000000/0", "0-000000/1", "0-000000/2"]
    slots = [10, 9, None]
    episodes = [(name, {"turns": [{"calls": [call(slot)]}]}) for name, slot in zip(names, slots)]
    rows = step_timeline(episodes).to_json()["rows"]
    assert sorted(rows[:2]) == rows[:2] or rows.index("process 0, slot 9") < rows.index(
        "process 0, slot 10"
    )
    assert set(rows) == {"process 0, slot 9", "process 0, slot 10", "0-000000/2, no row"}


def test_an_interval_that_ends_before_it_starts_is_left_out():
    backwards = call()
    backwards["time"]["prefilled"] = 50.0
    kinds = [
        x.kind for x in step_timeline([("0-0/0", {"turns": [{"calls": [backwards]}]})]).intervals
    ]
    assert kinds == ["decode", "waiting"]


def test_the_timeline_of_a_step_has_its_episodes_alone(tmp_path: Path):
    run = RunView(write_run(tmp_path / "run", steps=2, groups=2, group_size=2))
    run.refresh()
    timeline = run.timeline("rl", 1)
    assert timeline["shown"] == timeline["total"] == 4
    assert timeline["episodes"] == [f"0-000000/{i}" for i in range(4, 8)]
    assert run.timeline("rl", 9)["intervals"] == []


def test_curves_follow_the_file(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"phase": "rl", "step": 0, "loss": 2.0, "nonfinite": None},
        {"phase": "rl", "step": 1, "loss": {"$float": "nan"}},
        {"phase": "sft", "step": 0, "loss": 5.0},
        {"step": "x", "loss": 1.0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{damaged\n")
    metrics = MetricsFile(path)
    metrics.refresh()
    assert metrics.to_json() == {
        "rl": {"loss": {"steps": [0], "values": [2.0]}},
        "sft": {"loss": {"steps": [0], "values": [5.0]}},
    }
    assert metrics.num_damaged == 2  # the last two
    with open(path, "a") as file:
        file.write('{"phase": "rl", "step": 2, "loss": 1.0}\n{being written')
    metrics.refresh()
    assert (
        metrics.to_json()["rl"]["loss"] == {"steps": [0, 2], "values": [2.0, 1.0]}
        and metrics.num_damaged == 2
    )
    path.write_text('{"phase": "rl", "step": 0, "loss": 9.0}\n')
    metrics.refresh()
    assert metrics.to_json() == {"rl": {"loss": {"steps": [0], "values": [9.0]}}}
    assert metrics.num_damaged == 0


def test_damaged_lines_are_counted_by_file(tmp_path: Path):
    run_dir = write_run(tmp_path / "run", steps=2, groups=2, group_size=2)
    run = RunView(run_dir)
    run.refresh()
    assert run.description()["damaged"] == {}
    record = run_dir / "trajectories" / "0-000000.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([lines[0], b"{}\n", lines[1][:-9] + b"\n", *lines[2:]]))
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write(add_checksum('{"phase": "rl", "step": 5, "loss": 1.0}').replace("5", "4", 1))
        file.write("\n")
    run = RunView(run_dir)
    run.refresh()
    assert run.description()["damaged"] == {
        "metrics.jsonl": 1,
        "trajectories/0-000000.jsonl": 2,
    }


def test_a_long_curve_is_means():
    curve = Curve([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 9.0])
    assert downsample(curve, 5) == curve
    assert downsample(curve, 3) == Curve([0.5, 2.5, 4.0], [1.5, 3.5, 9.0])


def test_configs_are_compared_leaf_by_leaf():
    first = {"class": "m:A", "fields": {"lr": 1, "steps": 5, "phases": [{"name": "rl"}]}}
    second = {"class": "m:A", "fields": {"lr": 2, "steps": 5, "phases": [], "new": True}}
    assert differences([first, second]) == [
        {"path": "lr", "values": [1, 2]},
        {"path": "phases[rl].name", "values": ["rl", None]},
        {"path": "new", "values": [None, True]},
    ]
    assert len(differences([first, first], only_differing=False)) == 4


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "is no run folder"),
        (["config.json", "trajectories.jsonl"], "was written by an earlier version"),
    ],
)
def test_what_is_no_run_folder_is_refused(tmp_path: Path, files: list[str], sentence: str):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=sentence):
        RunView(tmp_path)
    with pytest.raises(UserError, match="there is no run folder"):
        RunView(tmp_path / "missing")


def test_an_episode_has_the_text_of_its_tokens(tmp_path: Path):
    run = RunView(write_run(tmp_path / "run", 1, 1, 1))
    run.refresh()
    episode = run.episode("0-000000/0")
    assert episode is not None
    turn, pieces = episode["trajectory"]["turns"][0], episode["pieces"][0][0]
    assert "".join(pieces["action"]) == turn["action"]["raw_text"] + "<|im_end|>"
    assert len(pieces["prompt"]) == len(turn["calls"][0]["prompt"])
    ids = {id for row in turn["calls"][0]["alternatives"] for id in row}
    assert ids <= episode["texts"].keys()
