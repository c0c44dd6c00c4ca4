"""MINT's measures of a run, by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.mint import (
    BUDGETS,
    Mint,
    bootstrap_interval,
    measures,
    slope_weights,
)


def write_run(folder: Path, table: list[list[bool]]) -> None:
    """Evaluations in which episode i has the outcomes of the table's row i."""
    for column, name in enumerate([*(f"k{k}" for k in BUDGETS), "k5-feedback"]):
        path = folder / "evaluations" / name / "RL.jsonl"
        path.parent.mkdir(parents=True)
        lines = [{"seed": 7 + i, "success": row[column]} for i, row in enumerate(table)]
        lines[-1]["success"] = lines[-1]["success"] or None  # a limit ended it
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_slope_is_that_of_least_squares():
    rates = np.array([0.1, 0.2, 0.2, 0.5, 0.4])
    assert slope_weights(BUDGETS) @ rates == pytest.approx(np.polyfit(BUDGETS, rates, 1)[0])


def test_measures_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    late, never = [False, False, False, False, True, True], [False] * 5 + [True]
    write_run(tmp_path, [late, late, never, never])
    result = measures([tmp_path], "RL")
    assert result["rates"] == {"k1": 0, "k2": 0, "k3": 0, "k4": 0, "k5": 0.5, "k5-feedback": 1}
    assert result["slope"][0] == pytest.approx(0.5 * 0.2)
    assert result["feedback"][0] == 0.5
    assert 0 <= result["feedback"][1] < 0.5 < result["feedback"][2] <= 1
    Mint((str(tmp_path),), ("RL",)).run()
    assert "| RL | 0.000 | 0.000 | 0.000 | 0.000 | 0.500 | +0.100 (" in capsys.readouterr().out


def test_the_interval_covers_the_mean_about_95_times_of_100():
    rng, hits = np.random.default_rng(0), 0
    for seed in range(100):
        _, low, high = bootstrap_interval([rng.normal(size=60)], seed)
        hits += low <= 0 <= high
    assert 86 <= hits <= 100


def test_runs_of_several_seeds_are_resampled_before_their_episodes():
    mean, low, high = bootstrap_interval([np.zeros(50), np.ones(50)])
    assert (mean, low, high) == (0.5, 0.0, 1.0)  # two zeros, or two ones, in a quarter of the draws


def test_another_run_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="code_mint"):
        measures([tmp_path], "RL")
