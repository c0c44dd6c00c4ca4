"""The tables of docs/lmrl.md."""

from pathlib import Path
from statistics import median
from typing import Any

from agentrl_jax.launch.benchmarks.tables.entries import (
    CellResults,
    TableEntry,
    configs_note,
    imitation_results,
    measure_run,
)
from agentrl_jax.launch.benchmarks.tables.markdown import format_mean, table_header, table_row
from agentrl_jax.launch.sweeps.measures import metric_values
from agentrl_jax.launch.sweeps.table import MISSING

METHODS = ("filtered", "mc", "ilql", "ppo", "online_filtered")
IMITATION_SOURCE = "mc"  # its runs begin with plain behavior cloning
THREE_SEEDS = (0, 1, 2)
TASK_SEEDS: dict[str, tuple[int, ...]] = {
    "maze_fo": THREE_SEEDS,
    "maze_po": THREE_SEEDS,
    "nav_fo": (0,),
    "nav_po": (0,),
    "wordle": THREE_SEEDS,
    "chess": (0,),
    "endgames": THREE_SEEDS,
    "questions": THREE_SEEDS,
    "city": (0,),
    "dealer": (0,),
}
COLUMNS = ("BC", "filtered BC", "MC", "ILQL", "PPO", "online filtered BC")
# Normalized scores of arXiv 2311.18232, table 2, a single run each.
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


def measure_with_speed(run_dir: Path) -> dict[str, Any]:
    """`measure_run`, and trained tokens per second of the last phase's updates."""
    speed = [
        n / t
        for n, t in zip(metric_values(run_dir, "tokens"), metric_values(run_dir, "time/update"))
        if t > 0
    ]
    return {**measure_run(run_dir), "tokens_per_second": round(median(speed))}


ENTRIES = {
    (task, method): TableEntry(
        task, method, f"configs/lmrl.py:{task}-{method}", seeds, measure_with_speed
    )
    for task, seeds in TASK_SEEDS.items()
    for method in METHODS
}


def scores_table(folder: Path) -> str:
    """Two rows per task: normalized scores (mean returns) of the cached cells, published scores."""
    lines = table_header("task", *COLUMNS)
    for task, published in PUBLISHED.items():
        plain = imitation_results(ENTRIES[task, IMITATION_SOURCE].load_results(folder))
        cells = [plain, *(ENTRIES[task, method].load_results(folder) for method in METHODS)]
        lines += [
            table_row(task, *map(_format_scores, cells)),
            table_row(f"{task}, published", *map(str, published)),
        ]
    return "\n".join(lines)


def speed_table(folder: Path) -> str:
    """Generated tokens that an update trains on per second: the median over steps and seeds."""
    lines = table_header("task", *COLUMNS[1:])
    for task in TASK_SEEDS:
        lines.append(
            table_row(
                task,
                *(_format_speed(ENTRIES[task, method].load_results(folder)) for method in METHODS),
            )
        )
    return "\n".join(lines)


def scores_note(folder: Path) -> str:
    """Which cells of the tables were measured with an earlier config."""
    return configs_note(ENTRIES.values(), folder)


def _format_scores(cells: CellResults) -> str:
    """99.9 ± 0.1 (-6.9), or (-6.9 ± 0.1) for a task without a score."""
    if any(cell is not None and cell["score"] is None for cell in cells):
        return f"({format_mean(cells, 'return', '.2f')})"
    returns = [cell["return"] for cell in cells if cell is not None]
    return format_mean(
        cells, "score", ".1f", f" ({sum(returns) / len(returns):.2f})" if returns else ""
    )


def _format_speed(cells: CellResults) -> str:
    known = sorted(cell["tokens_per_second"] for cell in cells if cell is not None)
    return f"{known[len(known) // 2]:,}" if known else MISSING
