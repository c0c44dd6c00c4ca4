"""Sweeps: the cells of a grid, that each is run once and stopped cleanly, and their table."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.commands import SMALL, assert_one_clear_sentence, run

from agentrl_jax.errors import UserError
from agentrl_jax.launch.sweeps import cells, grid, table
from agentrl_jax.launch.sweeps.cells import Cell, run_cells
from agentrl_jax.launch.sweeps.measures import (
    area_under_curve,
    final_return,
    final_success,
    maximum,
    mean_log_of_last,
    mean_of_last,
    start_row,
    std_of_changes,
)
from agentrl_jax.storage.format_version import RUN_FORMAT_VERSION

FAKE = (sys.executable, str(Path(__file__).parents[1] / "support" / "fake_training.py"))
WORDLE = "configs/wordle_grpo.py:smoke"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "TRAIN_COMMAND", FAKE)


def some(out: Path, *seeds: int, setting: grid.Setting | None = None) -> list[Cell]:
    return grid.make_cells(WORDLE, {}, setting or {}, seeds, out)


def test_a_grid_is_every_combination_of_its_values():
    settings = grid.parse_settings("phases.rl.steps=40,80; agent.limits.x=(1,2),[3,4];name=a=b")
    assert [tuple(setting.values()) for setting in settings] == [
        ("40", "(1,2)", "a=b"),
        ("40", "[3,4]", "a=b"),
        ("80", "(1,2)", "a=b"),
        ("80", "[3,4]", "a=b"),
    ]
    assert list(settings[0]) == ["phases.rl.steps", "agent.limits.x", "name"]
    assert grid.parse_settings("") == [{}]


def test_a_cell_is_named_by_its_setting_and_is_a_separate_training_run(tmp_path: Path):
    (cell,) = grid.make_cells(
        WORDLE, {"phases.sft.steps": "5"}, {"phases.rl.steps": "40", "name": "a/b"}, [3], tmp_path
    )
    assert cell.run_dir == tmp_path / "phases.rl.steps=40,name=a_b,seed=3"
    assert cell.flags == [
        f"--config={WORDLE}",
        "--config.phases.sft.steps=5",
        "--config.phases.rl.steps=40",
        "--config.name=a/b",
        "--config.seed=3",
    ]
    experiment = grid.load_experiment(cell)
    assert {name: phase.steps for name, phase in experiment.phases.items()} == {"sft": 5, "rl": 40}
    assert (experiment.name, experiment.seed) == ("a/b", 3)


@pytest.mark.parametrize(
    "text",
    [
        "phases.rl.steps",
        "phases.rl.steps=",
        "phases.rl.steps=1,,2",
        "=3",
        "seed=1,2",
        "phases.rl.steps=1;phases.rl.steps=2",
        "phases.rl.steps=1,1",
    ],
)
def test_an_invalid_grid_is_refused(text: str):
    with pytest.raises(UserError, match="--grid"):
        grid.parse_settings(text)


@pytest.mark.parametrize("text", [[], [""], ["a"], ["-1"], ["1.5"], ["1", "01"]])
def test_seeds_are_distinct_nonnegative_integers(text: list[str]):
    with pytest.raises(UserError, match="--seeds="):
        grid.parse_seeds(text)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"phases.rl.stepz": "3"}, "stepz"),
        ({"phases.rl.steps": "3.5"}, "phases.rl.steps=3.5"),
        ({"phases.rl": "1"}, "rl"),
        ({"phases.rll.steps": "1"}, "nothing called 'rll'"),
        ({"name": "x" * 300}, "too long"),
    ],
)
def test_a_field_or_value_that_the_config_does_not_have_is_named(
    setting: grid.Setting, words: str, tmp_path: Path
):
    with pytest.raises(UserError, match=words):
        grid.check_cells(some(tmp_path, 0, setting=setting))


def test_a_folder_of_another_config_is_left_unchanged(tmp_path: Path):
    (cell,) = some(tmp_path, 0)
    cell.run_dir.mkdir()
    (cell.run_dir / "config.json").write_text(
        json.dumps(
            {"format_version": RUN_FORMAT_VERSION, "class": "other:Experiment", "fields": {}}
        )
    )
    with pytest.raises(UserError, match="another config"):
        grid.check_cells([cell])
    with pytest.raises(UserError, match="same folder"):
        grid.check_cells(
            [
                *some(tmp_path, 0, setting={"name": "a/b"}),
                *some(tmp_path, 0, setting={"name": "a:b"}),
            ]
        )


@pytest.mark.usefixtures("fake")
def test_a_failed_cell_is_reported_stops_no_other_and_is_the_only_one_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    every, observed = some(tmp_path, 7, 1, 2), list[int]()
    failed = run_cells(every, tmp_path, 1, lambda cell: observed.append(cell.seed))
    assert [cell.seed for cell in failed] == [7] and observed == [1, 2]
    errors = capfd.readouterr().err
    assert "seed=7: failed with exit status 2" in errors and "the seventh seed is unlucky" in errors
    assert "line 8" in errors and "line 3" not in errors
    assert [cell.seed for cell in run_cells(every, tmp_path, 2)] == [7]
    assert [(cell.run_dir / "began").read_text().count("\n") for cell in every] == [2, 1, 1]


@pytest.mark.usefixtures("fake")
def test_no_more_cells_run_concurrently_than_requested(tmp_path: Path):
    every = some(tmp_path, 1, 2, 3, 4)
    run_cells(every, tmp_path, 2)
    spans = [
        (float((cell.run_dir / "began").read_text()), float((cell.run_dir / "ended").read_text()))
        for cell in every
    ]
    assert max(sum(a <= began < b for a, b in spans) for began, _ in spans) == 2


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_every_cell_once_and_waits_until_it_has_saved(
    tmp_path: Path, sign: signal.Signals
):
    code = (
        "import pathlib, sys\nfrom agentrl_jax.launch.sweeps import cells\n"
        f"cells.TRAIN_COMMAND, out = {FAKE!r}, pathlib.Path({str(tmp_path)!r})\n"
        "every = [cells.Cell('x', {'name': name}, 9, out / name) for name in 'abc']\n"
        "try:\n    cells.run_cells(every, out, 2)\nexcept KeyboardInterrupt:\n    sys.exit(130)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while (
        not all((tmp_path / name / "waiting").exists() for name in "ab")
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    process.send_signal(sign)
    _, errors = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and "cells that save and exit: 2" in errors
        and "Traceback" not in errors
    )
    assert [(tmp_path / name / "told").read_text() for name in "ab"] == ["stop\n", "stop\n"]
    assert not (tmp_path / "c").exists()


@pytest.mark.usefixtures("fake")
def test_a_folder_is_locked_by_one_command(tmp_path: Path):
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another command is running cells"):
            run_cells(some(tmp_path, 1), tmp_path, 1)
    assert run_cells(some(tmp_path, 1), tmp_path, 1) == []


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(UserError, match="/proc/nowhere cannot be written"):
        run_cells(some(Path("/proc/nowhere"), 1), Path("/proc/nowhere"), 1)


@pytest.mark.usefixtures("fake")
def test_the_table_has_a_row_per_setting_and_marks_what_is_missing(tmp_path: Path):
    settings = grid.parse_settings("phases.rl.steps=5,6")
    first, second = [some(tmp_path, 2, 3, 4, setting=setting) for setting in settings]
    run_cells([*first, second[0]], tmp_path, 4)
    lines = [table.setting_row(setting, row) for setting, row in zip(settings, (first, second))]
    # Returns -2, -3, -4: a mean of -3, s = 1, t(2) = 4.3027, so 4.3027 / sqrt(3) = 2.48. Success
    # rates .3, .4, .5: a tenth of that.
    assert table.markdown_table(lines) == (
        "| setting | return | success | seed 2 | seed 3 | seed 4 |\n|---|---|---|---|---|---|\n"
        "| phases.rl.steps=5 | -3.00 ± 2.48 | 40 ± 25 % "
        "| -2.00, 30 % | -3.00, 40 % | -4.00, 50 % |\n"
        "| phases.rl.steps=6 | -2.00 ± ? | 30 ± ? % | -2.00, 30 % | missing | missing |"
    )
    table.write_table(tmp_path, {"seeds": [2, 3, 4]}, lines)
    summary = json.loads((tmp_path / "sweep.json").read_text())
    assert summary["settings"][1]["return"] == {
        "seeds": {"2": -2.0, "3": None, "4": None},
        "mean_interval": [-2.0, None],
    }
    assert summary["settings"][0]["command"] == [
        "agentrl-train",
        f"--config={WORDLE}",
        "--config.phases.rl.steps=5",
    ]
    assert (tmp_path / "sweep.md").read_text() == table.markdown_table(lines) + "\n"


@pytest.mark.usefixtures("fake")
def test_measures_read_the_last_phase_of_a_run_folder_or_a_named_one(tmp_path: Path):
    (cell,) = some(tmp_path, 3)
    run_cells([cell], tmp_path, 1)  # its losses: 5 in sft; 3, 4, 5, 6 in rl
    measures = (
        final_return,
        final_success,
        mean_of_last("loss", 2),
        maximum("loss"),
        area_under_curve("loss"),
    )
    assert [measure.compute(cell.run_dir) for measure in measures] == [-3.0, 0.3, 5.5, 6.0, 4.5]
    assert [x.compute(cell.run_dir, "rl") for x in measures] == [-3.0, 0.3, 5.5, 6.0, 4.5]
    assert [x.compute(cell.run_dir, "sft") for x in measures] == [-9.0, 0.0, 5.0, 5.0, 5.0]
    with pytest.raises(UserError, match="no metric 'gain'"):
        maximum("gain").compute(cell.run_dir)
    with pytest.raises(UserError, match="no metric 'loss' of phase 'pretraining'"):
        maximum("loss").compute(cell.run_dir, "pretraining")
    with pytest.raises(UserError, match="trained no policy in a phase 'pretraining'"):
        final_return.compute(cell.run_dir, "pretraining")
    rows = [
        {"name": "GRPO", "mean_return": value, "environment": label}
        for label, value in (("sft", 1.0), ("rl", 2.0))
    ]
    (cell.run_dir / "summary.json").write_text(json.dumps({"table": rows}))
    assert final_return.compute(cell.run_dir) == 2.0  # in the environment named as the phase
    (cell.run_dir / "summary.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        final_return.compute(cell.run_dir)


def test_a_phase_starts_from_the_phase_that_it_names_or_else_from_the_first(tmp_path: Path):
    names = ("reader", "sft", "base", "method")
    starts = {"sft": None, "base": "sft", "method": "sft"}
    phases = {name: {"fields": {"label": name, "start": starts.get(name)}} for name in names}
    data = {"format_version": RUN_FORMAT_VERSION, "fields": {"phases": {"dict": phases}}}
    (tmp_path / "config.json").write_text(json.dumps(data))
    table = [{"name": name, "win_rate": rate} for rate, name in enumerate(names)]
    (tmp_path / "summary.json").write_text(json.dumps({"table": table}))
    started = {phase: start_row(tmp_path, phase) for phase in ("base", "method", "", "sft")}
    assert {phase: row and row["name"] for phase, row in started.items()} == {
        "base": "sft", "method": "sft", "": "sft", "sft": "reader",
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps({"table": table[:1]}))
    assert start_row(tmp_path) is None


def test_changes_from_step_to_step_have_a_standard_deviation(tmp_path: Path):
    lines = [{"phase": "rl", "entropy": value} for value in (1.0, 2.0, 4.0, 4.0)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # 1, 2 and 0, around their mean of 1
    assert std_of_changes("entropy").compute(tmp_path) == pytest.approx((2 / 3) ** 0.5)
    assert mean_log_of_last("entropy", 3).compute(tmp_path) == pytest.approx(np.log(32.0) / 3)


@pytest.mark.slow
def test_the_command_trains_what_is_missing_and_prints_the_same_table_again(tmp_path: Path):
    flags = [
        f"--config={WORDLE}",
        *SMALL,
        "--config.phases.sft.steps=3",
        "--seeds=0",
        "--grid=phases.rl.steps=1,2",
        f"--out={tmp_path}",
    ]
    first = run("sweep", *flags, "--parallel=2")
    assert first.returncode == 0, first.stderr
    assert [line.split(" | ")[0] for line in first.stdout.splitlines()[2:]] == [
        "| phases.rl.steps=1",
        "| phases.rl.steps=2",
    ]
    assert "missing" not in first.stdout and first.stderr.count(": finished") == 2
    again = run("sweep", *flags)
    assert (again.stdout, again.stderr) == (first.stdout, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--config=configs/"]),
        (["--config=configs/nope.py"], ["no config file configs/nope.py"]),
        ([f"--config={WORDLE}"], ["--out"]),
        ([f"--config={WORDLE}", "--out=x", "--config.seed=1"], ["--seeds"]),
        ([f"--config={WORDLE}", "--out=x", "--seeds="], ["--seeds="]),
        ([f"--config={WORDLE}", "--out=x", "--grid=phases.rl.stepz=1"], ["stepz"]),
        ([f"--config={WORDLE}", "--out=/proc/nowhere"], ["/proc/nowhere"]),
    ],
)
def test_wrong_flags_are_reported_in_one_sentence(flags: list[str], words: list[str]):
    assert_one_clear_sentence(run("sweep", *flags), *words)


def test_seeds_beyond_those_of_a_run_are_refused():
    with pytest.raises(UserError, match="--seeds must be from 0 to 4,294,967,295"):
        grid.parse_seeds(["0", str(2**32)])
