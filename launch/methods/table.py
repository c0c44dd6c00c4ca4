"""The table of docs/methods.md."""

from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch.methods.comparison import SIDES, Comparison
from agentrl_jax.launch.sweeps.table import MISSING, with_interval
from agentrl_jax.statistics import difference_interval, mean_interval

HEADS = ("comparison", "claim", "measure", "base", "method", "difference", "verdict")


def methods_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A line a comparison, from the cells kept in the folder."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    return "\n".join(lines + [_line(comparison, folder) for comparison in comparisons])


def learning_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A line a config: success before and after the method, the difference paired by seed."""
    lines = ["| config | before | after | difference |", "|---|---|---|---|"]
    for comparison in {one.method.slug: one for one in comparisons}.values():
        learnt = comparison.learnt(folder)
        columns = [MISSING] * 3
        if learnt:
            before, after = ([pair[i] for pair in learnt] for i in (0, 1))
            columns = [_side(before), _side(after), with_interval(difference_interval(after, before), "+.3g")]
        lines.append(f"| {' | '.join([comparison.method.slug, *columns])} |")
    return "\n".join(lines)


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
