"""Measures: a number computed from a finished run folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.config_json import read_config_data
from agentrl_jax.storage.run_folder import read_summary


class MeasureFunction(Protocol):
    """A function of a run folder, and of the name of a phase; empty: the last one."""

    def __call__(self, run_dir: Path, phase: str = "") -> float: ...


@dataclass(frozen=True)
class Measure:
    """A number with a name."""

    name: str
    compute: MeasureFunction


def last_row(run_dir: Path, phase: str = "") -> dict[str, Any]:
    """The row of the summary's table for the policy after a phase; empty: the last one.

    Raises:
        UserError: the run had no phase, or none of that name that trained a policy.
    """
    rows = _rows(run_dir)
    if not rows:
        raise UserError(f"the run in {run_dir} trained nothing: its config has no phases")
    if phase and phase not in rows:
        raise UserError(f"the run in {run_dir} trained no policy in a phase {phase!r}")
    return rows[phase or list(rows)[-1]]


def start_row(run_dir: Path, phase: str = "") -> dict[str, Any] | None:
    """The row for the policy with which a phase started: that after the phase that its `start`
    names, else that after the first one; None where there was only one phase.
    """
    rows = _rows(run_dir)
    if len(rows) < 2:
        return None
    start = _phases(run_dir)[phase or list(rows)[-1]].get("start")
    return rows[start if isinstance(start, str) and start in rows else next(iter(rows))]


def _phases(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The fields of each phase of a run's config, by its name."""
    phases = read_config_data(run_dir)["fields"]["phases"]["dict"]
    return {name: phase["fields"] for name, phase in phases.items()}


def _rows(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The rows of the summary's table for the policy after each phase, by the phases' names."""
    try:
        table = read_summary(run_dir)["table"]
        rows = {}
        for name, phase in _phases(run_dir).items():
            of_phase = [row for row in table if row["name"] == phase["label"]]
            if of_phase:  # a reward model has no row
                # In the environment that has the phase's name, else in the first one.
                with_its_name = (row for row in of_phase if row.get("environment") == name)
                rows[name] = next(with_its_name, of_phase[0])
        return rows
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"the run in {run_dir} is damaged ({type(error).__name__}: {error}): delete it to "
            "run it again"
        ) from error


def metric_values(run_dir: Path, metric: str, phase: str = "") -> list[float]:
    """A metric's values in a phase, one per step; empty: the last phase that logged it.

    Raises:
        UserError: it was never logged there.
    """
    values: dict[str, list[float]] = {}
    for _, line in jsonl.read_lines(run_dir / "metrics.jsonl"):
        if line.get(metric) is not None:
            values.setdefault(line["phase"], []).append(float(line[metric]))
    if not values or (phase and phase not in values):
        where = f" of phase {phase!r}" if phase else ""
        raise UserError(f"{run_dir / 'metrics.jsonl'} has no metric {metric!r}{where}")
    return values[phase or list(values)[-1]]


def _return(run_dir: Path, phase: str = "") -> float:
    return last_row(run_dir, phase)["mean_return"]


def _success(run_dir: Path, phase: str = "") -> float:
    rate = last_row(run_dir, phase)["win_rate"]
    if rate is None:
        raise UserError(f"the environment of {run_dir} reports no success: measure the return")
    return rate


final_return = Measure("final mean return", _return)
final_success = Measure("final success rate", _success)


def of_metric(name: str, metric: str, reduce: Callable[[list[float]], float]) -> Measure:
    """A number computed from the values of one metric."""

    def compute(run_dir: Path, phase: str = "") -> float:
        return float(reduce(metric_values(run_dir, metric, phase)))

    return Measure(name, compute)


def mean_of_last(metric: str, steps: int) -> Measure:
    name = f"mean of {metric} over the last {steps} steps"
    return of_metric(name, metric, lambda values: float(np.mean(values[-steps:])))


def maximum(metric: str) -> Measure:
    return of_metric(f"maximum of {metric}", metric, max)


def mean_log_of_last(metric: str, steps: int) -> Measure:
    """The mean natural logarithm over the last steps, whose tail over seeds is light."""
    name = f"mean log of {metric} over the last {steps} steps"
    return of_metric(name, metric, lambda values: float(np.mean(np.log(values[-steps:]))))


def std_of_changes(metric: str) -> Measure:
    """The standard deviation of the differences between successive steps."""
    name = f"standard deviation of {metric}'s changes from step to step"
    return of_metric(name, metric, lambda values: float(np.std(np.diff(values))))


def area_under_curve(metric: str) -> Measure:
    """The area under the curve by the trapezoid rule over its width, in the metric's unit."""
    return of_metric(
        f"mean height of the curve of {metric}",
        metric,
        lambda y: y[0] if len(y) == 1 else float(np.trapezoid(y) / (len(y) - 1)),
    )
