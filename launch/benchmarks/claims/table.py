"""The tables of docs/methods.md."""

from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch.benchmarks.claims.comparison import SIDES, Comparison
from agentrl_jax.launch.benchmarks.claims.verdicts import Verdict, load_verdicts
from agentrl_jax.launch.sweeps.cached_cells import earlier_configs_note
from agentrl_jax.launch.sweeps.table import MISSING, format_mean_interval
from agentrl_jax.reporting.statistics import difference_interval, mean_interval

COLUMNS = (
    "comparison",
    "claim",
    "measure",
    "seeds",
    "base",
    "method",
    "difference",
    "p",
    "verdict",
)


def methods_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A row per comparison, from the cells cached in the folder."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    verdicts = load_verdicts(comparisons, folder)
    return "\n".join(lines + [_row(x, folder, verdicts.get(x.name)) for x in comparisons])


def configs_note(comparisons: Sequence[Comparison], folder: Path) -> str:
    """Which comparisons were measured with an earlier config."""
    results = {row.name: row.load_results(folder) for row in comparisons}
    return earlier_configs_note({name: [*x["base"], *x["method"]] for name, x in results.items()})


def learning_table(comparisons: Sequence[Comparison], folder: Path) -> str:
    """A row per config: success before and after the method, the difference paired by seed."""
    lines = ["| config | before | after | difference |", "|---|---|---|---|"]
    for comparison in {row.method.slug: row for row in comparisons}.values():
        pairs = comparison.success_before_after(folder)
        columns = [MISSING] * 3
        if pairs:
            before, after = ([pair[i] for pair in pairs] for i in (0, 1))
            columns = [
                _format_side(before),
                _format_side(after),
                format_mean_interval(difference_interval(after, before), "+.3g"),
            ]
        lines.append(f"| {' | '.join([comparison.method.slug, *columns])} |")
    return "\n".join(lines)


def _row(comparison: Comparison, folder: Path, verdict: Verdict | None) -> str:
    values = comparison.load_values(folder)
    results = [MISSING] * 3
    if verdict:
        difference = format_mean_interval((verdict.mean, verdict.half_width), "+.3g")
        p_value = "" if verdict.p_value is None else f"{verdict.p_value:.2g}"
        results = [difference, p_value, verdict.text]
    columns = [
        f"{comparison.name} ({comparison.paper})",
        comparison.claim,
        comparison.measure.name + ("" if comparison.higher_is_better else ", lower is better"),
        str(len(comparison.seeds)),
        *(_format_side(values[side]) for side in SIDES),
        *results,
    ]
    return f"| {' | '.join(columns)} |"


def _format_side(values: Sequence[float | None]) -> str:
    known = [x for x in values if x is not None]
    missing = f" ({len(values) - len(known)} {MISSING})" if 0 < len(known) < len(values) else ""
    return format_mean_interval(mean_interval(known) if known else None, ".3g") + missing
