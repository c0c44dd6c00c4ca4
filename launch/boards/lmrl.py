"""The tables of docs/lmrl.md."""

from pathlib import Path
from statistics import median
from typing import Any

from agentrl_jax.launch.boards.entries import Entry, Found, imitated, measured
from agentrl_jax.launch.boards.markdown import head, line, number
from agentrl_jax.launch.sweeps.measures import values_of
from agentrl_jax.launch.sweeps.table import MISSING

METHODS = ("filtered", "mc", "ilql", "ppo", "online_filtered")
BC = "mc"  # plain cloning is where its runs begin
THREE = (0, 1, 2)
SEEDS: dict[str, tuple[int, ...]] = {
    "maze_fo": THREE, "maze_po": THREE, "nav_fo": (0,), "nav_po": (0,), "wordle": THREE, "chess": (0,), "endgames": THREE,
    "questions": THREE, "city": (0,), "dealer": (0,),
}  # fmt: skip
COLUMNS = ("BC", "filtered BC", "MC", "ILQL", "PPO", "online filtered BC")
# Normalised scores of arXiv 2311.18232, table 2, a single run each.
PUBLISHED = {
    "maze_fo": (58.2, 68.9, 75.0, 99.9, 79.7, 57.4),
    "maze_po": (53.1, 50.1, 52.4, 76.3, 42.4, 53.1),
    "nav_fo": (53.7, 65.1, 71.9, 91.8, 87.1, 74.5),
    "nav_po": (49.7, 60.5, 71.6, 83.7, 85.5, 68.4),
    "wordle": (79.9, 79.1, 94.9, 97.7, 84.2, 95.2),
    "chess": (47.2, 42.9, 46.5, 47.3, 48.0, 47.2),
    "endgames": (35.1, 17.7, 50.2, 45.8, 77.5, 36.2),
    "questions": (57.1, 77.1, 87.1, 82.9, 72.9, 55.2),
    "city": (30.0, 48.0, 88.0, 75.0, 49.9, 31.6),
    "dealer": (44.5, 54.8, 57.2, 46.3, 50.5, 40.4),
}


def with_speed(run_dir: Path) -> dict[str, Any]:
    """And the tokens that a second of the last phase's updates trains."""
    speed = [n / t for n, t in zip(values_of(run_dir, "tokens"), values_of(run_dir, "time/update")) if t > 0]
    return {**measured(run_dir), "tokens_per_second": round(median(speed))}


ENTRIES = {
    (task, method): Entry(task, method, f"configs/lmrl.py:{task}-{method}", seeds, with_speed)
    for task, seeds in SEEDS.items()
    for method in METHODS
}


def scores_table(folder: Path) -> str:
    """Two lines a task: normalised scores (mean returns) of the kept cells, and the published scores."""
    lines = head("task", *COLUMNS)
    for task, published in PUBLISHED.items():
        plain = imitated(ENTRIES[task, BC].found(folder))
        cells = [plain, *(ENTRIES[task, method].found(folder) for method in METHODS)]
        lines += [line(task, *map(_score, cells)), line(f"{task}, published", *map(str, published))]
    return "\n".join(lines)


def speed_table(folder: Path) -> str:
    """Written tokens that a second of an update trains on, the median over steps and seeds."""
    lines = head("task", *COLUMNS[1:])
    for task in SEEDS:
        lines.append(line(task, *(_speed(ENTRIES[task, method].found(folder)) for method in METHODS)))
    return "\n".join(lines)


def _score(cells: Found) -> str:
    """99.9 ± 0.1 (-6.9); where returns have no score, (-6.9 ± 0.1)."""
    if any(cell is not None and cell["score"] is None for cell in cells):
        return f"({number(cells, 'return', '.2f')})"
    returns = [cell["return"] for cell in cells if cell is not None]
    return number(cells, "score", ".1f", f" ({sum(returns) / len(returns):.2f})" if returns else "")


def _speed(cells: Found) -> str:
    known = sorted(cell["tokens_per_second"] for cell in cells if cell is not None)
    return f"{known[len(known) // 2]:,}" if known else MISSING
