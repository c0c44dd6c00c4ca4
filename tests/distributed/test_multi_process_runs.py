"""Runs of several processes: equal to one process, stopped, killed and resumed together."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.forked import ForkedProcess
from support.processes import (
    SUPPORT,
    assert_success,
    evaluation_table,
    read_metrics,
    sampled_tokens,
    start_processes,
    start_training,
    wait_for_processes,
)

pytestmark = pytest.mark.slow

STEPS = 8  # lines of metrics.jsonl: three of SFT, five of GRPO


def assert_like(run_dir: Path, expected_dir: Path) -> None:
    """Equal metrics to 1e-5, and the same episodes."""
    metrics, expected = read_metrics(run_dir), read_metrics(expected_dir)
    assert len(metrics) == len(expected) == STEPS
    for a, b in zip(metrics, expected):
        assert a.keys() == b.keys()
        for key, value in b.items():
            close = value if isinstance(value, str) else pytest.approx(value, abs=1e-5)
            assert a[key] == close, key
    tokens = sampled_tokens(expected_dir)
    assert sampled_tokens(run_dir) == tokens
    assert len(tokens) == 5 * 4 * 3  # steps, recorded groups, samples
    assert evaluation_table(run_dir) == evaluation_table(expected_dir)


def wait_for_steps(steps: int, run_dir: Path, processes: list[ForkedProcess]) -> None:
    path, deadline = run_dir / "metrics.jsonl", time.monotonic() + 200
    while not (path.exists() and path.read_text().count("\n") >= steps):
        is_running = all(process.poll() is None for process in processes)
        assert is_running and time.monotonic() < deadline, wait_for_processes(processes, 1)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    assert_success(start_training(1, run_dir))
    return run_dir


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("two") / "run"
    assert_success(start_training(2, run_dir))
    return run_dir


def test_a_run_of_two_processes_equals_one(alone: Path, two: Path):
    assert_like(two, alone)
    assert (two / "trajectories" / "1-000000.jsonl").exists() and not list(
        two.glob("evaluations/*unfinished")
    )


def test_a_mixture_by_success_of_two_processes_equals_one(tmp_path: Path):
    for count in (1, 2):
        assert_success(start_training(count, tmp_path / str(count), "mixture_config.py"))
    assert_like(tmp_path / "2", tmp_path / "1")
    line = read_metrics(tmp_path / "2")[-1]
    assert line["tasks/letters/fraction"] + line["tasks/varied/fraction"] == pytest.approx(1)
    rows = evaluation_table(tmp_path / "2")
    assert {row["environment"] for row in rows} == {"letters", "held-out"}
    assert "evaluation/letters/return" in line and "evaluation/held-out/return" in line
    best = [
        json.loads((tmp_path / count / "summary.json").read_text())["best_checkpoints"]
        for count in ("1", "2")
    ]
    assert best[0] == best[1] and best[0]["rl"]["evaluations"] == 3


@pytest.mark.parametrize(
    ("count", "devices", "meshes"),
    [
        (4, 1, {"replica groups": {"mesh.data": 2, "mesh.tensor": 2}}),
        (
            2,
            2,
            {
                "weights sharded within two networks, and two engine devices": {
                    "mesh.fsdp": 2,
                    "mesh.dcn_data": 2,
                    "engine.mesh.data": 2,
                },
                # as hosts of a v5e:8x8 and of a v5p:4x4x4 follow each other
                "interleaved hosts": {"mesh.data": 1, "mesh.fsdp": 4, "order": [0, 2, 1, 3]},
                "learner and engine on disjoint devices": {
                    "mesh.devices_per_process": 1,
                    "engine.first_device": 1,
                },
            },
        ),
    ],
)
def test_meshes_over_processes_equal_one_process(
    alone: Path, tmp_path: Path, count: int, devices: int, meshes: dict[str, dict[str, Any]]
):
    runs = {str(tmp_path / name): overrides for name, overrides in meshes.items()}
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    command = [SUPPORT / "train_process.py", tmp_path / "runs.json"]
    assert_success(start_processes(count, command, devices))
    for run_dir in runs:
        assert_like(Path(run_dir), alone)


def kill(processes: list[ForkedProcess], victim: int) -> None:
    """Kill one of two processes; the other one ends soon and names it."""
    processes[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    (status, _, errors), _ = sorted(
        wait_for_processes(processes, 120), key=lambda result: result[0] == -signal.SIGKILL
    )
    assert time.monotonic() - killed < 60  # the heartbeat's timeout is 10 s
    assert status == os.EX_TEMPFAIL, errors
    message = errors.strip().splitlines()[-1]
    assert message.startswith("error: ") and "start all processes again" in message
    assert f"process {victim} (pid {processes[victim].pid}" in message


def test_the_coordinators_death_ends_the_others_and_the_restart_resumes_exactly(
    two: Path, tmp_path: Path
):
    run_dir = tmp_path / "run"
    processes = start_training(2, run_dir)
    wait_for_steps(5, run_dir, processes)
    kill(processes, 0)
    assert 5 <= len(read_metrics(run_dir)) < STEPS
    assert_success(start_training(2, run_dir))
    assert read_metrics(run_dir) == read_metrics(two)
    assert sampled_tokens(run_dir) == sampled_tokens(two)
    assert evaluation_table(run_dir) == evaluation_table(two)


def test_sigterm_at_one_process_stops_all_at_one_step_and_another_number_resumes(
    alone: Path, tmp_path: Path
):
    run_dir = tmp_path / "run"
    processes = start_training(2, run_dir)
    wait_for_steps(4, run_dir, processes)
    processes[1].send_signal(signal.SIGTERM)
    results = wait_for_processes(processes)
    assert [status for status, _, _ in results] == [130, 130], results
    assert "the same command goes on from here" in results[0][1]
    steps = len(read_metrics(run_dir))
    checkpoints = [
        int(path.name) for path in (run_dir / "checkpoints" / "rl").iterdir() if path.name.isdigit()
    ]
    assert steps < STEPS and max(checkpoints) == steps - 3  # SFT has three steps
    assert_success(start_training(1, run_dir))
    assert_like(run_dir, alone)


def test_an_error_of_one_process_ends_all_with_its_message(tmp_path: Path):
    processes = start_training(2, tmp_path / "run", process_flags=[[], ["--config.seed=1"]])
    for status, _, errors in wait_for_processes(processes):
        assert status == 2
        assert f"error: process 1 (pid {processes[1].pid}" in errors
        assert "belongs to another config (config.seed was 0 and is 1)" in errors


def test_two_processes_stream_without_staleness_what_they_sample_synchronously(
    two: Path, tmp_path: Path
):
    run_dir = tmp_path / "run"
    assert_success(start_training(2, run_dir, "streaming_config.py"))
    lines = [
        {key: value for key, value in line.items() if not key.startswith("stream/")}
        for line in read_metrics(run_dir)
    ]
    assert lines == read_metrics(two)
    # Asynchronous rollouts number the groups of the whole run.
    streamed = {
        (step, group % 5, sample): tokens
        for (step, group, sample), tokens in sampled_tokens(run_dir).items()
    }
    recorded = sampled_tokens(two)
    assert len(streamed) == 5 * 5 * 3
    assert {key: streamed[key] for key in recorded} == recorded


def test_a_killed_streaming_run_resumes_in_one_process_and_uses_every_task_once(tmp_path: Path):
    run_dir = tmp_path / "run"
    processes = start_training(2, run_dir, "streaming_config.py:2")
    wait_for_steps(5, run_dir, processes)
    kill(processes, 1)
    assert len(read_metrics(run_dir)) < STEPS
    assert_success(start_training(1, run_dir, "streaming_config.py:2"))
    lines = [line for line in read_metrics(run_dir) if line["phase"] == "rl"]
    assert [line["step"] for line in lines] == list(range(5))
    assert all(0 <= line["stream/oldest"] <= 2 for line in lines)
    used = sorted((group, sample) for _, group, sample in sampled_tokens(run_dir))
    assert used == [(group, sample) for group in range(5 * 5) for sample in range(3)]
