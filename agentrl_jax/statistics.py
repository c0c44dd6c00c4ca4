"""Means with 95 % intervals, and `Summary`: what an evaluation says about one player."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from agentrl_jax.environment import normalized_score
from agentrl_jax.trajectories import Trajectory

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # 1.96


def mean_interval(values: Sequence[float | int] | np.ndarray) -> tuple[float, float]:
    """The mean and the half-width of its 95 % interval, t(n - 1) s / sqrt(n) with Student's t.

    One value says nothing about its spread: the half-width is inf. No value: (nan, inf).
    """
    x = np.asarray(values, np.float64)
    n = x.size
    if n == 0:
        return math.nan, math.inf
    if n == 1:
        return float(x[0]), math.inf
    t = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return float(x.mean()), t * float(x.std(ddof=1)) / math.sqrt(n)


def difference_interval(a: Sequence[float | int] | np.ndarray, b: Sequence[float | int] | np.ndarray) -> tuple[float, float]:
    """The mean of a - b and the half-width of its 95 % interval, for values paired by seed.

    Pairing removes what the seeds have in common, so the interval is narrower than that of two separate means. Raises
    ValueError where the lengths differ.
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.shape != y.shape:
        raise ValueError(f"paired values come in equal numbers, not {x.size} and {y.size}")
    return mean_interval(x - y)


def wilson_interval(wins: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, (low, high), after Wilson (1927): right near 0 and 1 and for small n. No trial: (0, 1)."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = wins / n, Z * Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Summary:
    """One player's evaluation. Intervals are at 95 %."""

    name: str
    episodes: int
    mean_return: float
    interval: float  # half-width of the mean return's
    win_rate: float | None  # None where the environment knows no success
    win_interval: tuple[float, float] | None  # low and high
    mean_turns: float
    score: float | None  # LMRL-Gym's, 0 to 100; None without anchors


def summarize(name: str, trajectories: Sequence[Trajectory], anchors: tuple[float, float, float] | None) -> Summary:
    """What the trajectories say about a player; those that ended in an error do not count.

    An episode that was cut before its world told of success counts as not won. `anchors` are the mean returns that score
    0, 50 and 100.
    """
    played = [t for t in trajectories if t.stop_reason != "error"]
    mean, interval = mean_interval([t.total_reward for t in played])
    wins = sum(t.success is True for t in played)
    judged = any(t.success is not None for t in played)
    return Summary(
        name=name,
        episodes=len(played),
        mean_return=mean,
        interval=interval,
        win_rate=wins / len(played) if judged else None,
        win_interval=wilson_interval(wins, len(played)) if judged else None,
        mean_turns=float(np.mean([len(t.turns) for t in played])) if played else math.nan,
        score=None if anchors is None or not played else normalized_score(mean, anchors),
    )
