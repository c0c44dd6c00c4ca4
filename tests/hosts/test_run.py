"""Whole runs of several processes: equal to one process, stopped, killed and resumed together."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from many import HERE, finish, start, succeed

LAST = 8  # lines of metrics.jsonl


def begin(
    count: int, run_dir: Path, *more: str, devices: int = 1, own: Sequence[Sequence[str]] = (), config: str = "letters_run.py"
) -> list[subprocess.Popen[str]]:
    command = ["-m", "agentrl_jax.launch.train", f"--config={HERE / config}", f"--run_dir={run_dir}", *more]
    return start(count, command, devices, own)


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


def sampled(run_dir: Path) -> dict[tuple[int, int, int], list[list[int]]]:
    """The tokens of every recorded trajectory, whichever process played it."""
    found = {}
    for path in run_dir.glob("trajectories*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            found[line["step"], line["group"], line["sample"]] = [call["action"] for turn in line["turns"] for call in turn["calls"]]
    return found


def table(run_dir: Path) -> Any:
    return json.loads((run_dir / "summary.json").read_text())["table"]


def assert_like(run_dir: Path, other: Path) -> None:
    """Equal to 1e-5, and the same episodes."""
    ours, theirs = metrics(run_dir), metrics(other)
    assert len(ours) == len(theirs) == LAST
    for a, b in zip(ours, theirs):
        assert a.keys() == b.keys()
        for key, value in b.items():
            assert a[key] == (value if isinstance(value, str) else pytest.approx(value, abs=1e-5)), key
    assert sampled(run_dir) == sampled(other) and len(sampled(other)) == 5 * 4 * 3  # steps, recorded groups, samples
    assert table(run_dir) == table(other)


def wait_for(lines: int, run_dir: Path, processes: list[subprocess.Popen[str]]) -> None:
    path, deadline = run_dir / "metrics.jsonl", time.monotonic() + 200
    while not (path.exists() and path.read_text().count("\n") >= lines):
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes), finish(processes, 1)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    succeed(begin(1, run_dir))
    return run_dir


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("two") / "run"
    succeed(begin(2, run_dir))
    return run_dir


@pytest.mark.slow
def test_a_run_of_two_processes_equals_one(alone: Path, two: Path):
    assert_like(two, alone)
    assert (two / "trajectories.1.jsonl").exists() and not list(two.glob("evaluations/*unfinished"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "devices", "flags"),
    [
        (4, 1, ["--config.mesh.data=2", "--config.mesh.tensor=2"]),
        (2, 2, ["--config.mesh.data=1", "--config.mesh.fsdp=4", "--config.engine.mesh.data=2"]),
        (2, 2, ["--config.mesh.fsdp=2", "--config.mesh.dcn_data=2"]),
        (2, 2, ["--config.mesh.each=1", "--config.engine.first_device=1"]),
    ],
    ids=["teams of two", "sharded weights and two engine devices", "a mesh over two networks", "learner and engine on disjoint devices"],
)
def test_meshes_over_processes_equal_one_process(alone: Path, tmp_path: Path, count: int, devices: int, flags: list[str]):
    succeed(begin(count, tmp_path / "run", *flags, devices=devices))
    assert_like(tmp_path / "run", alone)


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_the_restart_resumes_exactly(two: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    for victim, lines in ((0, 4), (1, 6)):
        processes = begin(2, run_dir)
        wait_for(lines, run_dir, processes)
        processes[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        (status, _, errors), _ = sorted(finish(processes, 120), key=lambda result: result[0] == -signal.SIGKILL)
        assert time.monotonic() - killed < 60  # silence is 10 s
        assert status == os.EX_TEMPFAIL, errors
        last, name = errors.strip().splitlines()[-1], f"process {victim} (pid {processes[victim].pid}"
        assert last.startswith("error: ") and name in last and "start all processes again" in last
        assert lines <= len(metrics(run_dir)) < LAST
    succeed(begin(2, run_dir))
    assert metrics(run_dir) == metrics(two) and sampled(run_dir) == sampled(two) and table(run_dir) == table(two)


@pytest.mark.slow
def test_sigterm_at_one_process_stops_all_at_the_same_step_and_another_number_goes_on(two: Path, alone: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    processes = begin(2, run_dir)
    wait_for(4, run_dir, processes)
    processes[1].send_signal(signal.SIGTERM)
    results = finish(processes)
    assert [status for status, _, _ in results] == [130, 130], results
    assert "the same command goes on from here" in results[0][1]
    done = len(metrics(run_dir))
    saved = [int(path.name) for path in (run_dir / "checkpoints" / "rl").iterdir() if path.name.isdigit()]
    assert done < LAST and max(saved) == done - 3  # SFT has three steps
    succeed(begin(1, run_dir))
    assert_like(run_dir, alone)


@pytest.mark.slow
def test_what_one_process_may_not_do_ends_all_with_its_message(tmp_path: Path):
    processes = begin(2, tmp_path / "run", own=[[], ["--config.seed=1"]])
    for status, _, errors in finish(processes):
        assert status == 2
        assert f"error: process 1 (pid {processes[1].pid}" in errors and "belongs to another config (config.seed was 0 and is 1)" in errors


@pytest.mark.slow
def test_two_processes_stream_without_staleness_what_they_play_in_turns(two: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    succeed(begin(2, run_dir, config="streams_run.py"))
    lines = [{key: value for key, value in line.items() if not key.startswith("stream/")} for line in metrics(run_dir)]
    assert lines == metrics(two)
    whole, recorded = {(step, group % 5, sample): ids for (step, group, sample), ids in sampled(run_dir).items()}, sampled(two)
    assert len(whole) == 5 * 5 * 3 and {key: whole[key] for key in recorded} == recorded  # a stream numbers all groups of a run


@pytest.mark.slow
def test_a_stream_of_two_processes_that_is_killed_goes_on_in_one_and_uses_every_task_once(tmp_path: Path):
    run_dir = tmp_path / "run"
    processes = begin(2, run_dir, config="streams_run.py:2")
    wait_for(5, run_dir, processes)
    processes[1].send_signal(signal.SIGKILL)
    finish(processes, 120)
    succeed(begin(1, run_dir, config="streams_run.py:2"))
    lines = [line for line in metrics(run_dir) if line["phase"] == "rl"]
    assert [line["step"] for line in lines] == list(range(5)) and all(0 <= line["stream/oldest"] <= 2 for line in lines)
    used = sorted((group, sample) for _, group, sample in sampled(run_dir))
    assert used == [(group, sample) for group in range(5 * 5) for sample in range(3)]
