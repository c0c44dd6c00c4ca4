"""ArCHer and REFUEL on several processes."""

from pathlib import Path

import pytest
from many import succeed
from test_run import begin, metrics, sampled, table

pytestmark = pytest.mark.slow


def run(folder: Path, count: int, variant: str) -> Path:
    succeed(begin(count, folder, config=f"hierarchical_run.py:{variant}"))
    return folder


def test_pairs_of_two_processes_teach_what_those_of_one_do(tmp_path: Path):
    alone, two = run(tmp_path / "one", 1, "refuel"), run(tmp_path / "two", 2, "refuel")
    for a, b in zip(metrics(alone), metrics(two), strict=True):
        assert b == {key: value if isinstance(value, str) else pytest.approx(value, abs=1e-5, rel=1e-5) for key, value in a.items()}
    assert sampled(alone) == sampled(two) and table(alone) == table(two)


def test_archers_processes_replay_their_own_turns_and_weigh_them_together(tmp_path: Path):
    steps = [line for line in metrics(run(tmp_path / "run", 2, "archer")) if line["phase"] == "rl"]
    # A step has 15 episodes of three turns, nine of them at the first process; each keeps its last 40 turns.
    assert [step["replay/turns"] for step in steps] == [45, 76, 80, 80, 80]
    assert [step["advantage/std"] > 0 for step in steps[2:]] == [True] * 3
