"""The mean return of each side of ArCHer's claim after so many environment turns, over the seeds
that are compared, and how far the others' mean return over the budget is above PPO's.

    python benchmarks/studies/claim_curves.py B21
"""

import argparse
from pathlib import Path

import numpy as np

from agentrl_jax.configs.archer_claim import TASKS
from agentrl_jax.launch.benchmarks.archer.cells import ClaimCell, tuned_setting
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES
from agentrl_jax.reporting.statistics import difference_interval

FOLDER = Path(__file__).parents[1] / "results" / "archer_claim"
POINTS = 8  # of a curve, after its start


def curves(task: str, side: str) -> np.ndarray | None:
    """Returns by seed at equal distances of turns; None: a cell is missing."""
    setting = tuned_setting(task, SIDES[side], FOLDER)
    if setting is None:
        return None
    turns, rows = np.linspace(0, TASKS[task].turns, 1 + 6 * POINTS), []
    for seed in SEEDS:
        cell = ClaimCell(task, SIDES[side], setting, seed).load(FOLDER)
        if cell is None:
            return None
        rows.append(np.interp(turns, cell["turns"], cell["returns"]))
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    task = parser.parse_args().task
    turns = np.linspace(0, TASKS[task].turns, 1 + POINTS)
    print(f"| side | {' | '.join(f'{t:,.0f}' for t in turns)} | mean return above PPO's |")
    print("|---" * (3 + POINTS) + "|")
    base = curves(task, "ppo")
    for name, side in SIDES.items():
        values = curves(task, name)
        if values is None or base is None:
            continue
        means = " | ".join(f"{value:.2f}" for value in values[:, ::6].mean(0))
        differences = values.mean(1) - base.mean(1)
        mean, half = difference_interval(values.mean(1), base.mean(1))
        ahead = f"{mean:+.2f} ± {half:.2f}, ahead on {(differences > 0).sum()} of {len(base)}"
        print(f"| {side.label} | {means} | {'-' if name == 'ppo' else ahead} |")


if __name__ == "__main__":
    main()
