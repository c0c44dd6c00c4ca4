"""`mint`: MINT's measures (arXiv 2309.10691) of finished runs of configs/code_mint.py."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option

BUDGETS = (1, 2, 3, 4, 5)
NAMES = (*(f"k{k}" for k in BUDGETS), "k5-feedback")
RESAMPLES = 2000


def slope_weights(budgets: Sequence[int]) -> np.ndarray:
    """w with sum_k w_k SR_k the slope of the least-squares line through the success rates:
    (k - mean) / sum (k - mean)^2.
    """
    deviations = np.asarray(budgets, np.float64) - np.mean(budgets)
    return deviations / (deviations**2).sum()


def bootstrap_interval(runs: Sequence[np.ndarray], seed: int = 0) -> tuple[float, float, float]:
    """The mean of the runs' means, and the 2.5 and 97.5 percentiles of those resampled.

    Args:
        runs: of each run the values of its episodes. Runs are resampled, then their episodes.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    draws = [
        values[rng.integers(len(values), size=(RESAMPLES * len(runs), len(values)))].mean(axis=1)
        for values in runs
    ]
    chosen = rng.integers(len(runs), size=(RESAMPLES, len(runs)))
    means = np.stack(draws)[chosen, np.arange(chosen.size).reshape(chosen.shape)].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(np.mean([values.mean() for values in runs])), float(low), float(high)


def successes(run_dir: Path, environment: str, player: str) -> dict[int, float]:
    """Whether each evaluation episode of a player succeeded, by its environment's seed.

    Raises:
        UserError: the run has no such evaluation.
    """
    path = run_dir / "evaluations" / environment / f"{player}.jsonl"
    try:
        records = [json.loads(line) for line in path.read_text().splitlines()]
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: --run_dir must be a finished run of configs/code_mint.py"
        ) from error
    # None: a limit of the agent ended the episode, which then was not solved.
    return {record["seed"]: float(record["success"] or False) for record in records}


def outcomes(run_dir: Path, player: str) -> np.ndarray:
    """Whether episodes of a run succeeded, [problems, budgets and feedback].

    Raises:
        UserError: no problem was played under all budgets.
    """
    by_seed = [successes(run_dir, name, player) for name in NAMES]
    seeds = sorted(set.intersection(*(set(values) for values in by_seed)))
    if not seeds:
        raise UserError(f"the evaluations of {player} in {run_dir} have no episode in common")
    return np.array([[values[seed] for values in by_seed] for seed in seeds])


def measures(run_dirs: Sequence[Path], player: str) -> dict[str, Any]:
    """Success rates by budget, their slope and the gain by feedback, both with intervals.

    Episodes of the same seed have the same problem under all budgets, and are resampled together.
    """
    tables = [outcomes(run_dir, player) for run_dir in run_dirs]
    rates = np.mean([table.mean(axis=0) for table in tables], axis=0)
    return {
        "rates": dict(zip(NAMES, rates.tolist())),
        "slope": bootstrap_interval([table[:, :5] @ slope_weights(BUDGETS) for table in tables]),
        "feedback": bootstrap_interval([table[:, 5] - table[:, 4] for table in tables]),
    }


@dataclass
class Mint:
    """Success within k turns, its slope against k, and the gain by feedback at k = 5."""

    run_dir: tuple[str, ...] = option(
        ("runs/code-mint-method",), "The finished run; may be repeated, for runs of several seeds."
    )
    player: tuple[str, ...] = option(("SFT", "RL"), "Labels of players; may be repeated.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Print the table and report. Raises UserError where the run has no such evaluations."""
        results = {name: measures([*map(Path, self.run_dir)], name) for name in self.player}
        heads = ["", *(f"k = {k}" for k in BUDGETS), "slope", "with feedback, gain"]
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
        for name, result in results.items():
            rates = [f"{result['rates'][f'k{k}']:.3f}" for k in BUDGETS]
            ends = [_with_interval(result[key]) for key in ("slope", "feedback")]
            print(f"| {' | '.join([name, *rates, *ends])} |")
        return {"bench": "mint", "players": results}


def _with_interval(values: tuple[float, float, float]) -> str:
    mean, low, high = values
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
