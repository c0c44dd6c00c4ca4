"""ArCHer and REFUEL on several processes."""

from pathlib import Path

import pytest
from support.processes import (
    assert_success,
    evaluation_table,
    read_metrics,
    sampled_tokens,
    start_training,
)

pytestmark = pytest.mark.slow


def train(run_dir: Path, count: int, variant: str) -> Path:
    assert_success(start_training(count, run_dir, f"hierarchical_config.py:{variant}"))
    return run_dir


def test_refuel_on_two_processes_equals_one(tmp_path: Path):
    alone, two = train(tmp_path / "one", 1, "refuel"), train(tmp_path / "two", 2, "refuel")
    for expected, line in zip(read_metrics(alone), read_metrics(two), strict=True):
        assert line == {
            key: value if isinstance(value, str) else pytest.approx(value, abs=1e-5, rel=1e-5)
            for key, value in expected.items()
        }
    assert sampled_tokens(alone) == sampled_tokens(two)
    assert evaluation_table(alone) == evaluation_table(two)


def test_archer_replays_turns_per_process_and_weighs_them_globally(tmp_path: Path):
    run_dir = train(tmp_path / "run", 2, "archer")
    steps = [line for line in read_metrics(run_dir) if line["phase"] == "rl"]
    # A step has 15 episodes of three turns, nine of them at process 0; each process keeps its last
    # 40 turns.
    assert [step["replay/turns"] for step in steps] == [45, 76, 80, 80, 80]
    assert [step["advantage/std"] > 0 for step in steps[2:]] == [True] * 3
