"""Verdicts on comparisons: paired t tests, corrected for the number of comparisons in a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.launch.benchmarks.claims.comparison import SIDES, Comparison
from agentrl_jax.reporting.statistics import (
    CONFIDENCE,
    difference_interval,
    holm_adjusted,
    paired_p_value,
)

Values = Mapping[str, Sequence[float | None]]  # of each side's seeds; None: missing


@dataclass(frozen=True)
class Verdict:
    """The difference method - base, paired by seed, with its 95 % interval.

    `p_value` is adjusted by Holm over the table's tested comparisons; None: not tested.
    """

    mean: float
    half_width: float
    p_value: float | None
    text: str


def judge(comparisons: Sequence[Comparison], values: Mapping[str, Values]) -> dict[str, Verdict]:
    """The verdicts by the comparisons' names, without those that miss cells.

    "shown" where the method is better and "opposite" where it is worse with an adjusted p-value of
    at most .05, else "not shown"; "by construction" where that was declared.
    """
    pairs = {}  # (method's values, base's values)
    for row in comparisons:
        base, method = ([x for x in values[row.name][side] if x is not None] for side in SIDES)
        if len(base) == len(method) == len(row.seeds):
            pairs[row.name] = method, base
    complete = [row for row in comparisons if row.name in pairs]
    tested = [row.name for row in complete if not row.by_construction]
    adjusted = holm_adjusted([paired_p_value(*pairs[name]) for name in tested])
    p_values, verdicts = dict(zip(tested, adjusted)), {}
    for row in complete:
        mean, half = difference_interval(*pairs[row.name])
        p_value = p_values.get(row.name)
        text = _verdict_text(mean if row.higher_is_better else -mean, p_value)
        verdicts[row.name] = Verdict(mean, half, p_value, text)
    return verdicts


def load_verdicts(comparisons: Sequence[Comparison], folder: Path) -> dict[str, Verdict]:
    """The verdicts on the cells cached in the folder."""
    return judge(comparisons, {row.name: row.load_values(folder) for row in comparisons})


def _verdict_text(better_by: float, p_value: float | None) -> str:
    if p_value is None:
        return "by construction"
    if p_value > 1 - CONFIDENCE:
        return "not shown"
    return "shown" if better_by > 0 else "opposite"
