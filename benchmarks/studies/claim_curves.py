"""The mean return of each side of ArCHer's claim after so many environment turns, over the seeds
that are compared, and how far the others' mean return over the budget is above PPO's.

    python benchmarks/studies/claim_curves.py B21
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentrl_jax.configs.archer_claim import TASKS
from agentrl_jax.launch.benchmarks.archer.cells import ClaimCell, cell_turns, tuned_setting
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES
from agentrl_jax.reporting.statistics import difference_interval

FOLDER = Path(__file__).parents[1] / "results" / "archer_claim"
POINTS = 8  # of a curve, after its start


def cells(task: str, side: str) -> list[ClaimCell] | None:
    """Of a side at its tuned setting, one a seed; None: it is not tuned, or one is missing."""
    setting = tuned_setting(task, SIDES[side], FOLDER)
    if setting is None:
        return None
    of_seeds = [ClaimCell(task, SIDES[side], setting, seed) for seed in SEEDS]
    return None if any(cell.load(FOLDER) is None for cell in of_seeds) else of_seeds


def mean_curve(of_seeds: Sequence[ClaimCell], turns: np.ndarray) -> np.ndarray:
    """The mean return after so many turns."""
    loaded = [cell.load(FOLDER) or {} for cell in of_seeds]
    return np.mean([np.interp(turns, x["turns"], x["returns"]) for x in loaded], axis=0)


def mean_returns(of_seeds: Sequence[ClaimCell]) -> np.ndarray:
    """Each seed's mean return over the budget."""
    return np.array([x.area for cell in of_seeds if (x := cell_turns(cell, FOLDER)) is not None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    task = parser.parse_args().task
    turns = np.linspace(0, TASKS[task].turns, 1 + POINTS)
    print(f"| side | {' | '.join(f'{t:,.0f}' for t in turns)} | mean return above PPO's |")
    print("|---" * (3 + POINTS) + "|")
    base = cells(task, "ppo")
    for name, side in SIDES.items():
        of_seeds = cells(task, name)
        if of_seeds is None or base is None:
            continue
        means = " | ".join(f"{value:.2f}" for value in mean_curve(of_seeds, turns))
        values, others = mean_returns(of_seeds), mean_returns(base)
        mean, half = difference_interval(values, others)
        ahead = f"{mean:+.2f} ± {half:.2f}, ahead on {(values > others).sum()} of {len(others)}"
        print(f"| {side.label} | {means} | {'-' if name == 'ppo' else ahead} |")


if __name__ == "__main__":
    main()
