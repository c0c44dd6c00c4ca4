"""What is measured of a curve, declared before any cell was run.

First: log of the environment turns until the return of fresh evaluation games is half way from the
fine-tuned policy's to the expert's, on the straight lines between evaluations; a curve that does
not reach it counts with the whole budget, and is counted as censored. Second: the area under the
return over the budget. Two sides are compared by the geometric mean over paired seeds of the ratio
of turns, with the 95 % interval of its logarithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.reporting.statistics import difference_interval


@dataclass(frozen=True)
class TurnsToLevel:
    """Turns until a level, or the budget where it is not reached; and the mean return until then.

    `area` is the mean height of the curve over the budget.
    """

    turns: float
    censored: bool
    area: float

    @property
    def log_turns(self) -> float:
        return math.log(self.turns)


def turns_to_level(
    turns: Sequence[float], returns: Sequence[float], level: float, budget: float
) -> TurnsToLevel:
    """Measure a curve whose first point is at 0 turns and below the level."""
    x, y = np.asarray(turns, np.float64), np.asarray(returns, np.float64)
    grid = np.linspace(0, budget, 513)
    area = float(np.trapezoid(np.interp(grid, x, y), grid) / budget)
    reached = np.flatnonzero(y >= level)
    if not len(reached):
        return TurnsToLevel(budget, True, area)
    i = int(reached[0])
    if i == 0:
        raise ValueError("the curve begins above the level")
    fraction = (level - y[i - 1]) / (y[i] - y[i - 1])
    crossing = float(x[i - 1] + fraction * (x[i] - x[i - 1]))
    return TurnsToLevel(min(crossing, budget), crossing > budget, area)


@dataclass(frozen=True)
class TurnRatio:
    """The base's turns over a side's: above 1 the side needs fewer. `factor` is the interval's: the
    ratio lies between `ratio` / `factor` and `ratio` * `factor`.
    """

    ratio: float
    factor: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} (×/÷ {self.factor:.2f})"


def turn_ratio(base: Sequence[TurnsToLevel], side: Sequence[TurnsToLevel]) -> TurnRatio:
    """The ratio of turns over paired seeds."""
    mean, half = difference_interval([x.log_turns for x in base], [x.log_turns for x in side])
    return TurnRatio(math.exp(mean), math.exp(half))
