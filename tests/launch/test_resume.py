"""A run that was killed or interrupted and is resumed equals one that was never stopped."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.commands import SMALL, run
from support.forked import ForkedProcess, start_forked
from support.processes import ROOT, process_environment
from support.untimed import untimed_log

from agentrl_jax.storage import jsonl


def flags(run_dir: Path) -> list[str]:
    return ["--config=configs/wordle_grpo.py:smoke", f"--run_dir={run_dir}", *SMALL]


def metrics(run_dir: Path) -> list[dict]:
    """The lines of metrics.jsonl without wall-clock times."""
    lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")} for line in lines
    ]


def lines_of(run_dir: Path) -> int:
    path = run_dir / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def start_until(run_dir: Path, lines: int) -> ForkedProcess:
    """A running process that has written at least that many lines of metrics."""
    command = ["-m", "agentrl_jax.launch.train", *flags(run_dir)]
    process = start_forked(command, process_environment(1), ROOT)
    deadline = time.monotonic() + 240
    while lines_of(run_dir) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    return process


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("unbroken") / "run"
    result = run("train", *flags(run_dir))
    assert result.returncode == 0, result.stderr
    return run_dir


def assert_equal_runs(a: Path, b: Path) -> None:
    assert metrics(a) == metrics(b)
    for name in ("table", "difference"):
        assert (
            json.loads((a / "summary.json").read_text())[name]
            == json.loads((b / "summary.json").read_text())[name]
        )
    assert untimed_log(a) == untimed_log(b)


@pytest.mark.slow
def test_a_run_killed_at_random_steps_and_resumed_equals_one_that_was_never_stopped(
    unbroken: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    draw = random.Random(os.urandom(8))
    points = [draw.randrange(1, 80), draw.randrange(81, 86)]  # lines of metrics: once in each phase
    for lines in points:
        process = start_until(run_dir, lines)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    result = run("train", *flags(run_dir))
    assert result.returncode == 0, (points, result.stderr)
    assert_equal_runs(unbroken, run_dir)


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_cleanly_and_the_same_command_resumes(
    unbroken: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    process = start_until(run_dir, 83)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert process.wait(1) == 130, errors
    assert "the same command goes on from here" in out and "Traceback" not in errors
    before = lines_of(run_dir)
    result = run("train", *flags(run_dir))
    assert result.returncode == 0, result.stderr
    assert lines_of(run_dir) == 86 > before
    assert_equal_runs(unbroken, run_dir)


@pytest.mark.slow
def test_a_finished_run_prints_its_table_and_changes_nothing(unbroken: Path) -> None:
    before = metrics(unbroken)
    result = run("train", *flags(unbroken))
    assert result.returncode == 0 and "GRPO" in result.stdout and "mean return" in result.stdout
    assert metrics(unbroken) == before


@pytest.mark.slow
def test_every_trained_token_is_a_sampled_one_and_the_sampler_agrees_with_the_learner(
    unbroken: Path,
) -> None:
    rl = [line for line in metrics(unbroken) if line["phase"] == "rl"]
    assert all(line["tokens/identity"] == 1.0 for line in rl)
    gaps = [line["off_policy/logp_gap"] for line in rl if not line["skipped"]]
    assert gaps and max(gaps) < 1e-4


@pytest.mark.slow
def test_nothing_compiles_after_the_second_step(unbroken: Path) -> None:
    lines = [json.loads(line) for line in (unbroken / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["time/compilations"] for line in lines if line["step"] < 2) > 0
    assert [line["time/compilations"] for line in lines if line["step"] >= 2] == [0] * 82
