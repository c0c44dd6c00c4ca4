"""The files and the terminal output of a run, and the plots of its metrics."""

import dataclasses
import io
import json
import math
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.reporting import plots, progress_line
from agentrl_jax.reporting.evaluation_table import difference_sentence
from agentrl_jax.reporting.reporter import Reporter
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.trajectory_record import TrajectoryRecord

PHASES = ("sft", "rl", "polish")


@pytest.fixture
def reporter(tmp_path: Path) -> Iterator[Reporter]:
    reporter = Reporter(tmp_path / "run")
    yield reporter
    reporter.close()


def lines(run_dir: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [line for _, line in jsonl.read_lines(run_dir / name)]


def group(reward: float) -> Group:
    return Group("task", (Trajectory((user("go"),), (Turn((), assistant("a"), (), reward),)),))


def records(step: int) -> list[TrajectoryRecord]:
    return [TrajectoryRecord("rl", step, t) for t in group(float(step)).trajectories]


def record_steps(reporter: Reporter, sft: int, rl: int) -> None:
    for step in range(sft):
        reporter.step("sft", step, {"loss": 1.0 / (step + 1)}, 0.5)
    for step in range(rl):
        reporter.step("rl", step, {"rollout/return": float(step)}, 0.5)
        reporter.recorder.put(records(step))


def test_a_step_is_written_at_once_as_one_line(tmp_path: Path, reporter: Reporter):
    metrics = {
        "loss": np.float32(0.5),
        "tokens": 512,
        "entropy": math.nan,
        "gradient_norm": math.inf,
        "time/collect": 0.25,
    }
    reporter.step("rl", 7, metrics, 1.5)
    (text,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    line = (
        '{"phase": "rl", "step": 7, "time/seconds": 1.5, "loss": 0.5, "tokens": 512, '
        '"entropy": null, "gradient_norm": null, "time/collect": 0.25'
    )
    assert text == f'{line}, "crc32": "{zlib.crc32(line.encode()):08x}"}}'


def test_two_runs_differ_only_in_their_time(tmp_path: Path):
    recorded = []
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        reporter = Reporter(tmp_path / name, quiet=True)
        reporter.step("sft", 0, {"loss": 0.5, "time/update": seconds / 2}, seconds)
        reporter.close()
        recorded.append(
            [
                {key: x for key, x in line.items() if not key.startswith("time/")}
                for line in lines(tmp_path / name)
            ]
        )
    assert recorded[0] == recorded[1] == [{"phase": "sft", "step": 0, "loss": 0.5}]


def test_rewinding_deletes_the_step_and_everything_after_it(tmp_path: Path, reporter: Reporter):
    record_steps(reporter, sft=2, rl=3)
    reporter.step("polish", 0, {"loss": 0.0}, 0.1)
    reporter.step("unknown", 9, {"loss": 0.0}, 0.1)
    reporter.rewind(PHASES, "rl", 1)
    remaining = [(line["phase"], line["step"]) for line in lines(tmp_path / "run")]
    assert remaining == [("sft", 0), ("sft", 1), ("rl", 0), ("unknown", 9)]
    assert [record.step for record in trajectory_log.read(tmp_path / "run" / "trajectories")] == [0]
    reporter.step("rl", 1, {"loss": 0.0}, 0.1)
    assert lines(tmp_path / "run")[-1]["step"] == 1


def test_a_killed_and_resumed_run_leaves_the_lines_of_an_uninterrupted_one(tmp_path: Path):
    uninterrupted = Reporter(tmp_path / "uninterrupted", quiet=True)
    record_steps(uninterrupted, sft=2, rl=3)
    uninterrupted.close()
    killed = Reporter(tmp_path / "killed", quiet=True)
    record_steps(killed, sft=2, rl=2)
    killed.close()
    log_names = ["metrics.jsonl", "trajectories/0-000000.jsonl"]
    for name in log_names:
        with (tmp_path / "killed" / name).open("a") as file:
            file.write('{"phase": "rl", "st')
    resumed = Reporter(tmp_path / "killed", quiet=True)
    resumed.rewind(PHASES, "rl", 1)
    for step in (1, 2):
        resumed.step("rl", step, {"rollout/return": float(step)}, 0.5)
        resumed.recorder.put(records(step))
    resumed.close()
    for name in log_names:
        assert (tmp_path / "killed" / name).read_text() == (
            tmp_path / "uninterrupted" / name
        ).read_text()


def test_a_truncated_last_line_is_dropped_before_appending(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"phase": "sft", "step": 0}\n{"phase": "sf')
    reporter = Reporter(tmp_path, quiet=True)
    reporter.step("sft", 1, {}, 0.1)
    reporter.close()
    assert [line["step"] for line in lines(tmp_path)] == [0, 1]


def events(run_dir: Path) -> list[tuple[int, str, float]]:
    """(step, name, value) of every TensorBoard scalar."""
    from tensorboardX.proto import event_pb2

    scalars = []
    for path in sorted((run_dir / "tensorboard").iterdir()):
        data = path.read_bytes()
        event_of: Any = event_pb2  # its classes are made at run time
        while data:
            (n,) = struct.unpack("<Q", data[:8])
            event = event_of.Event.FromString(data[12 : 12 + n])
            scalars += [
                (event.step, value.tag, value.simple_value) for value in event.summary.value
            ]
            data = data[12 + n + 4 :]
    return scalars


def test_tensorboard_counts_steps_over_all_phases(tmp_path: Path):
    for _ in range(2):  # the second run resumes at the third step in total
        reporter = Reporter(tmp_path, quiet=True)
        reporter.rewind(PHASES, "rl", 0)
        if not lines(tmp_path):
            record_steps(reporter, sft=2, rl=0)
        reporter.step("rl", 0, {"loss": 9.0, "entropy": math.nan}, 0.1)
        reporter.close()
    scalars = events(tmp_path)
    assert [(step, value) for step, name, value in scalars if name == "loss"] == [
        (0, 1.0),
        (1, 0.5),
        (2, 9.0),
        (2, 9.0),
    ]
    assert not [name for _, name, _ in scalars if name == "entropy"]


def test_without_a_terminal_a_plain_line_is_printed_every_ten_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    now = [1000.0]
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: now[0])
    reporter = Reporter(tmp_path)
    reporter.begin("rl", 100, 40)
    for step in range(40, 100):
        now[0] += 1.0
        reporter.step("rl", step, {"tokens": 3000, "rollout/return": -2.0, "loss": 5.0}, 2.0)
    reporter.end("rl")
    reporter.log("saved to [bold]runs/a[/bold]")
    reporter.close()
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "rl 41/100  1,500 tokens/s  return -2.000  1:58 left"
    assert len(out) == 6 + 1 + 1
    assert out[-2] == "rl 100/100  60 steps in 1:00  1,500 tokens/s  return -2.000"
    assert out[-1] == "saved to [bold]runs/a[/bold]"
    assert not any("\x1b" in line for line in out)


def test_phases_without_rollouts_show_the_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reporter: Reporter
):
    reporter.begin("sft", 7300, 0)
    reporter.step("sft", 0, {"loss": 1.25}, 1.0)
    reporter.end("sft")
    assert capsys.readouterr().out.startswith("sft 1/7300  loss 1.250  2:01:39 left\n")


def test_a_terminal_gets_a_dashboard_and_the_last_line_of_a_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    reporter = Reporter(tmp_path)
    reporter.begin("rl", 2, 0)
    for step in range(2):
        reporter.step("rl", step, {"tokens": 100, "rollout/return": 1.0}, 0.5)
    reporter.log("half way")
    reporter.end("rl")
    reporter.close()
    out = terminal.getvalue()
    assert "half way" in out and "rl 2/2  2 steps in 0:00  200 tokens/s  return 1.000" in out
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")  # the cursor is there again


def test_a_quiet_reporter_prints_warnings_and_the_table_alone_and_writes_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    reporter = Reporter(tmp_path, quiet=True)
    reporter.begin("sft", 1, 0)
    reporter.step("sft", 0, {"loss": 1.0}, 0.1)
    reporter.log("hello")
    reporter.end("sft")
    reporter.warn("an environment failed")
    assert capsys.readouterr() == ("", "an environment failed\n")
    reporter.table([])
    assert capsys.readouterr() == ("", "")
    reporter.table([summary("SFT", -1.0), summary("GRPO", 0.5)], (1.5, 0.2))
    out, err = capsys.readouterr()
    assert "Evaluation" in out and "so GRPO is better than SFT" in out and not err
    reporter.close()
    assert len(lines(tmp_path)) == 1


def test_what_a_line_contains_is_printed_and_not_interpreted(
    capsys: pytest.CaptureFixture[str], reporter: Reporter
):
    reporter.log("[red]a[/red] :smile: \x1b[31mb\x1b[0m \x07\ttwo\nlines")
    assert capsys.readouterr().out == "[red]a[/red] :smile: ␛[31mb␛[0m ␇       two\nlines\n"


def summary(name: str, mean: float, win_rate: float | None = 0.5) -> EvaluationSummary:
    return EvaluationSummary(
        name, 128, mean, 0.125, win_rate, None if win_rate is None else (0.41, 0.59), 4.25, None
    )


def test_the_table_shows_every_policy_and_the_difference(
    capsys: pytest.CaptureFixture[str], reporter: Reporter
):
    reporter.table(
        [
            summary("SFT", -3.0),
            dataclasses.replace(summary("[expert]", math.nan, None), interval=math.inf),
        ],
        (0.5, 0.2),
    )
    out = capsys.readouterr().out
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line
    ]
    assert cells == [
        ["SFT", "128", "-3.00 ± 0.12", "50 % (41-59)", "4.2", "-"],
        ["[expert]", "128", "-", "-", "4.2", "-"],
    ]
    assert out.endswith(
        "GRPO - SFT, same seeds: mean return +0.50 ± 0.20 (95 %), so GRPO is better than SFT.\n"
    )
    assert "truncated" not in out


def test_the_table_shows_truncated_episodes_where_there_are_any(
    capsys: pytest.CaptureFixture[str], reporter: Reporter
):
    cut = dataclasses.replace(summary("GRPO", -1.0), truncated=0.25)
    reporter.table([summary("SFT", -3.0), cut])
    out = capsys.readouterr().out
    last_cells = [line.split("│")[-2].strip() for line in out.splitlines() if "│" in line]
    assert "truncated" in out and last_cells == ["0 %", "25 %"]


def test_the_table_has_a_row_for_every_environment(
    capsys: pytest.CaptureFixture[str], reporter: Reporter
):
    rows = [
        dataclasses.replace(summary(name, -1.0), environment=label)
        for label in ("kuhn", "ttt")
        for name in ("random", "MARS")
    ]
    reporter.table(rows)
    out = capsys.readouterr().out
    cells = [
        [cell.strip() for cell in line.split("│")[1:3]] for line in out.splitlines() if "│" in line
    ]
    assert cells == [["kuhn", "random"], ["kuhn", "MARS"], ["ttt", "random"], ["ttt", "MARS"]]
    assert "environment" in out


def test_curves_have_a_line_for_every_environment(tmp_path: Path):
    steps: list[dict] = [
        {"phase": "rl", "step": step, "rollout/return": 0.5, "rollout/kuhn/return": step * 1.0,
         **({"rollout/ttt/return": 2.0} if step == 1 else {}), "rollout/stopped/turns": 0.0}
        for step in range(3)
    ]  # fmt: skip
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    rows = [dataclasses.replace(summary("MARS", -1.0), environment="kuhn")]
    (axes,) = plots.figure(path, rows).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["kuhn"].get_xydata().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert lines["ttt"].get_xydata().tolist() == [[1, 2]]
    assert not axes.texts  # the players of several environments are in the table alone


def test_a_difference_counts_only_where_its_interval_excludes_zero():
    assert "GRPO is worse than SFT" in difference_sentence((-0.5, 0.2), ("GRPO", "SFT"))
    assert "cannot tell" in difference_sentence((0.1, 0.2), ("GRPO", "SFT"))
    assert "cannot tell" in difference_sentence((0.1, math.inf), ("GRPO", "SFT"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the run folder .*file/run .*choose another"):
        Reporter(tmp_path / "file" / "run")


def test_labels_are_moved_apart_in_their_order():
    assert plots.spread([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])
    assert plots.spread([0.0, 0.1, 0.8], 0.2) == pytest.approx([-0.05, 0.15, 0.8])
    assert plots.spread([0.1, 0.25, 0.3], 0.2) == pytest.approx(
        [0.2167 - 0.2, 0.2167, 0.2167 + 0.2], abs=1e-3
    )
    assert plots.spread([], 0.2) == []


def test_a_running_mean_covers_the_values_before():
    assert plots.running_mean(np.asarray([1.0, 3.0, 5.0, 7.0]), 2).tolist() == [1, 2, 4, 6]


@pytest.mark.parametrize("recorded", ["nothing", "supervised", "everything"])
@pytest.mark.parametrize("evaluated", [False, True])
def test_plots_are_drawn_from_any_subset_of_the_metrics(
    tmp_path: Path, recorded: str, evaluated: bool
):
    steps: list[dict] = []
    if recorded != "nothing":
        steps += [{"phase": "sft", "step": step, "loss": 2.0 - step} for step in range(2)]
    if recorded == "everything":
        steps += [
            {
                "phase": "rl",
                "step": 0,
                "loss": 0.1,
                "rollout/return": -1.0,
                "rollout/success": 0.5,
                "entropy": None,
            }
        ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    players = [summary("SFT", -1.0), summary("random", math.nan, None)] if evaluated else None
    plots.draw(tmp_path / "metrics.jsonl", tmp_path / "curves.png", players)
    png = (tmp_path / "curves.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (1200, 800)


@pytest.mark.parametrize("package", ["matplotlib", "tensorboardX"])
def test_a_missing_package_is_reported_before_a_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
):
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"reports need {package}: pip install 'agentrl_jax\[report\]'"
    with pytest.raises(UserError, match=message):
        Reporter(tmp_path / "run")
    assert not (tmp_path / "run").exists()
