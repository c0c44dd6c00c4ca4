"""The tables of docs/lmrl.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.launch.lmrl.entries import BC, METHODS, SEEDS, Entry, found, imitated
from agentrl_jax.launch.sweeps.table import MISSING
from agentrl_jax.statistics import mean_interval

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


def scores_table(folder: Path) -> str:
    """Two lines a task: normalised scores (mean returns) of the kept cells, and the published scores."""
    lines = _head("task", *COLUMNS)
    for task, published in PUBLISHED.items():
        lines += [_line(task, *map(_entry, _of(task, folder))), _line(f"{task}, published", *map(str, published))]
    return "\n".join(lines)


def speed_table(folder: Path) -> str:
    """Written tokens that a second of an update trains on, the median over steps and seeds."""
    lines = _head("task", *COLUMNS[1:])
    for task in SEEDS:
        lines.append(_line(task, *(_speed(found(Entry(task, method), folder)) for method in METHODS)))
    return "\n".join(lines)


def _of(task: str, folder: Path) -> list[list[dict[str, Any] | None]]:
    """The cells of each column."""
    return [imitated(found(Entry(task, BC), folder)), *(found(Entry(task, method), folder) for method in METHODS)]


def _entry(cells: Sequence[dict[str, Any] | None]) -> str:
    """99.9 ± 0.1 (-6.9); where returns have no score, (-6.9 ± 0.1)."""
    known = [cell for cell in cells if cell is not None]
    if not known:
        return MISSING
    scores, returns = ([cell[name] for cell in known] for name in ("score", "return"))
    lacking = f" ({len(cells) - len(known)} {MISSING})" if len(known) < len(cells) else ""
    if None in scores:
        return f"({_mean(returns, '.2f')}){lacking}"
    return f"{_mean(scores, '.1f')} ({_mean(returns, '.2f', interval=False)}){lacking}"


def _mean(values: Sequence[float], style: str, interval: bool = True) -> str:
    mean, half = mean_interval(values)
    return f"{mean:{style}}" + (f" ± {half:{style}}" if interval and len(values) > 1 else "")


def _speed(cells: Sequence[dict[str, Any] | None]) -> str:
    known = sorted(cell["tokens_per_second"] for cell in cells if cell is not None)
    return f"{known[len(known) // 2]:,}" if known else MISSING


def _head(*names: str) -> list[str]:
    return [_line(*names), "|---" * len(names) + "|"]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
