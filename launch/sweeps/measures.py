"""Measures: a number computed from a finished run folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.config_json import read_config_data
from agentrl_jax.storage.run_folder import read_summary


@dataclass(frozen=True)
class Measure:
    """A number with a name."""

    name: str
    compute: Callable[[Path], float]  # run folder -> number


def last_row(run_dir: Path) -> dict[str, Any]:
    """The row of the summary's table for the policy after the last phase.

    Raises:
        UserError: the run had no phase.
    """
    rows = _rows(run_dir)
    if not rows:
        raise UserError(f"the run in {run_dir} trained nothing: its config has no phases")
    return rows[-1]


def first_row(run_dir: Path) -> dict[str, Any] | None:
    """The row for the policy after the first phase; None where there was only one phase."""
    rows = _rows(run_dir)
    return rows[0] if len(rows) > 1 else None


def _rows(run_dir: Path) -> list[dict[str, Any]]:
    """The rows of the summary's table for the policy after each phase."""
    try:
        fields = read_config_data(run_dir)["fields"]
        table = {
            row["name"]: row  # of the first environment, where there are several
            for row in reversed(read_summary(run_dir)["table"])
        }
        labels = [phase["fields"]["label"] for phase in fields["phases"]["dict"].values()]
        return [table[label] for label in labels if label in table]  # a reward model has no row
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"the run in {run_dir} is damaged ({type(error).__name__}: {error}): delete it to "
            "run it again"
        ) from error


def metric_values(run_dir: Path, metric: str) -> list[float]:
    """A metric's values in the last phase that logged it, one per step.

    Raises:
        UserError: it was never logged.
    """
    values: dict[str, list[float]] = {}
    for _, line in jsonl.read_lines(run_dir / "metrics.jsonl"):
        if line.get(metric) is not None:
            values.setdefault(line["phase"], []).append(float(line[metric]))
    if not values:
        raise UserError(f"{run_dir / 'metrics.jsonl'} has no metric {metric!r}")
    return list(values.values())[-1]


def _success(run_dir: Path) -> float:
    rate = last_row(run_dir)["win_rate"]
    if rate is None:
        raise UserError(f"the environment of {run_dir} reports no success: measure the return")
    return rate


final_return = Measure("final mean return", lambda run_dir: last_row(run_dir)["mean_return"])
final_success = Measure("final success rate", _success)


def mean_of_last(metric: str, steps: int) -> Measure:
    return Measure(
        f"mean of {metric} over the last {steps} steps",
        lambda run_dir: float(np.mean(metric_values(run_dir, metric)[-steps:])),
    )


def maximum(metric: str) -> Measure:
    return Measure(f"maximum of {metric}", lambda run_dir: max(metric_values(run_dir, metric)))


def area_under_curve(metric: str) -> Measure:
    """The area under the curve by the trapezoid rule over its width, in the metric's unit."""

    def compute(run_dir: Path) -> float:
        y = metric_values(run_dir, metric)
        return y[0] if len(y) == 1 else float(np.trapezoid(y) / (len(y) - 1))

    return Measure(f"mean height of the curve of {metric}", compute)
