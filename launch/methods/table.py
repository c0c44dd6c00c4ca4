"""The table of docs/methods.md."""

from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch.methods.comparison import SIDES, Comparison
from agentrl_jax.launch.sweeps.table import MISSING, with_interval
from agentrl_jax.statistics import mean_interval

HEADS = ("comparison", "claim", "measure", "base", "method", "difference", "verdict")


def methods_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A line a comparison, from the cells kept in the folder."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    return "\n".join(lines + [_line(comparison, folder) for comparison in comparisons])


def _line(comparison: Comparison, folder: Path) -> str:
    values = comparison.found(folder)
    judged = comparison.verdict(values)
    difference, verdict = (with_interval(judged[0], "+.3g"), judged[1]) if judged else (MISSING, MISSING)
    name = f"{comparison.name} ({comparison.paper})"
    direction = "" if comparison.higher_is_better else ", lower is better"
    sides = [_side(values[side]) for side in SIDES]
    return f"| {' | '.join([name, comparison.claim, comparison.measure.name + direction, *sides, difference, verdict])} |"


def _side(values: Sequence[float | None]) -> str:
    known = [x for x in values if x is not None]
    of = f" ({len(values) - len(known)} {MISSING})" if 0 < len(known) < len(values) else ""
    return with_interval(mean_interval(known) if known else None, ".3g") + of
