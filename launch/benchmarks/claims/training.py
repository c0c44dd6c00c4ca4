"""What lies behind a verdict: how each side trained, early and late."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.launch.benchmarks.claims.comparison import SIDES, Comparison
from agentrl_jax.launch.benchmarks.claims.measures import QUANTITIES


def training_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A row per side of each comparison whose cells have `training_means`: their means over seeds,
    early -> late.
    """
    lines = [f"| comparison | side | {' | '.join(QUANTITIES)} |", "|---" * 7 + "|"]
    for comparison in comparisons:
        results = comparison.load_results(folder)
        for side in SIDES:
            cells = [x["training"] for x in results[side] if x is not None and "training" in x]
            if cells:
                columns = [_format(cells, metric) for metric in QUANTITIES.values()]
                lines.append(f"| {' | '.join((comparison.name, side, *columns))} |")
    return "\n".join(lines) if len(lines) > 2 else "No cached cell has kept how it was trained."


def _format(cells: Sequence[dict[str, Any]], metric: str) -> str:
    pairs = [cell[metric] for cell in cells if metric in cell]
    return " -> ".join(f"{x:.3g}" for x in np.mean(pairs, axis=0)) if pairs else ""
