"""What a finished run folder says, as one number."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax import journal
from agentrl_jax.errors import UserError


@dataclass(frozen=True)
class Measure:
    """A number with a name."""

    name: str
    of: Callable[[Path], float]  # run folder -> number


def last_row(run_dir: Path) -> dict[str, Any]:
    """The line of the summary's table that is about the policy after the last phase. Raises UserError where there is none."""
    rows = _rows(run_dir)
    if not rows:
        raise UserError(f"the run in {run_dir} trained nothing: its config has neither `sft` nor `rl`")
    return rows[-1]


def first_row(run_dir: Path) -> dict[str, Any] | None:
    """The line about the policy that the last phase began with; None where there was but one phase."""
    rows = _rows(run_dir)
    return rows[0] if len(rows) > 1 else None


def _rows(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of the summary's table that are about the policy, a phase each."""
    try:
        fields = json.loads((run_dir / "config.json").read_text())["fields"]
        table = {row["name"]: row for row in json.loads((run_dir / "summary.json").read_text())["table"]}
        return [table[fields[phase]["fields"]["label"]] for phase in ("sft", "rl") if fields[phase]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"the run in {run_dir} is damaged ({type(error).__name__}: {error}): delete it to run it anew") from error


def values_of(run_dir: Path, metric: str) -> list[float]:
    """A metric's values in the last phase that has it, step by step. Raises UserError where no line has it."""
    found: dict[str, list[float]] = {}
    for _, line in journal.lines_of(run_dir / "metrics.jsonl"):
        if line.get(metric) is not None:
            found.setdefault(line["phase"], []).append(float(line[metric]))
    if not found:
        raise UserError(f"{run_dir / 'metrics.jsonl'} has no metric {metric!r}")
    return list(found.values())[-1]


def _success(run_dir: Path) -> float:
    rate = last_row(run_dir)["win_rate"]
    if rate is None:
        raise UserError(f"the environment of {run_dir} knows no success: measure the return")
    return rate


final_return = Measure("final mean return", lambda run_dir: last_row(run_dir)["mean_return"])
final_success = Measure("final success rate", _success)


def mean_of_last(metric: str, steps: int) -> Measure:
    return Measure(f"mean of {metric} over the last {steps} steps", lambda run_dir: float(np.mean(values_of(run_dir, metric)[-steps:])))


def largest(metric: str) -> Measure:
    return Measure(f"maximum of {metric}", lambda run_dir: max(values_of(run_dir, metric)))


def area(metric: str) -> Measure:
    """The area under the curve by the trapezoid rule, divided by its width: it is in the metric's own unit."""

    def of(run_dir: Path) -> float:
        y = values_of(run_dir, metric)
        return y[0] if len(y) == 1 else float(np.trapezoid(y) / (len(y) - 1))

    return Measure(f"mean height of the curve of {metric}", of)
