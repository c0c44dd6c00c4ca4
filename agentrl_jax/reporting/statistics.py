"""Means with 95 % intervals, and `EvaluationSummary`, the evaluation of one player."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from agentrl_jax.environment import normalized_score
from agentrl_jax.reporting.dependencies import require_package
from agentrl_jax.trajectories import Trajectory

REWARD_PART = "rollout/reward/"  # the prefix of the metric of a named part of the reward
CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # 1.96


def mean_interval(values: Sequence[float | int] | np.ndarray) -> tuple[float, float]:
    """The mean and the half-width of its 95 % interval, t(n - 1) s / sqrt(n) with Student's t.

    The half-width of a single value is inf; without values the result is (nan, inf).
    """
    require_package("scipy")
    from scipy.special import stdtrit

    x = np.asarray(values, np.float64)
    n = x.size
    if n == 0:
        return math.nan, math.inf
    if n == 1:
        return float(x[0]), math.inf
    t = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return float(x.mean()), t * float(x.std(ddof=1)) / math.sqrt(n)


def difference_interval(
    a: Sequence[float | int] | np.ndarray, b: Sequence[float | int] | np.ndarray
) -> tuple[float, float]:
    """The mean of a - b and the half-width of its 95 % interval, for values paired by seed.

    Pairing removes the variance that the seeds have in common, so the interval is narrower than
    that of two separate means.

    Raises:
        ValueError: the lengths differ.
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.shape != y.shape:
        raise ValueError(f"paired values come in equal numbers, not {x.size} and {y.size}")
    return mean_interval(x - y)


def paired_p_value(
    a: Sequence[float | int] | np.ndarray, b: Sequence[float | int] | np.ndarray
) -> float:
    """The two-sided p-value of the paired t test, 2 P(T > |mean| sqrt(n) / s) for n differences.

    1 for fewer than two pairs and where the mean of the differences a - b is zero; else 0 where
    all of them are equal.

    Raises:
        ValueError: the lengths differ.
    """
    mean, half = difference_interval(a, b)
    n = len(a)
    if n < 2 or mean == 0:
        return 1.0
    if half == 0:
        return 0.0
    from scipy.special import stdtr, stdtrit

    t = abs(mean) / half * float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return 2 * float(stdtr(n - 1, -t))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, adjusted by Holm (1979), in the order given.

    max over the j <= i smallest of min(1, (m - j + 1) p_(j)): tests whose adjusted value is at most
    .05 contain a false rejection with probability .05 at most.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def wilson_interval(wins: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion, (low, high), after Wilson (1927).

    Accurate near 0 and 1 and for small n; without trials it is (0, 1).
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = wins / n, Z * Z
    center = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True)
class EvaluationSummary:
    """One player's evaluation. Intervals are at 95 %."""

    name: str
    episodes: int
    mean_return: float
    interval: float  # half-width of the interval of the mean return
    win_rate: float | None  # None where the environment does not report success
    win_interval: tuple[float, float] | None  # low and high
    mean_turns: float
    score: float | None  # LMRL-Gym's, 0 to 100; None without anchors
    truncated: float = 0.0  # the fraction of episodes that a horizon or a limit cut
    environment: str = ""  # its label; empty: the experiment's own


def summarize(
    name: str,
    trajectories: Sequence[Trajectory],
    anchors: tuple[float, float, float] | None,
    environment: str = "",
) -> EvaluationSummary:
    """The summary of a player's trajectories, without those that ended in an error.

    An episode that was cut before its environment reported success counts as not won, and as
    truncated.

    Args:
        name: of the player.
        trajectories: one per episode.
        anchors: the mean returns that score 0, 50 and 100; None: no score.
        environment: the label of where they were played.
    """
    episodes = [t for t in trajectories if t.stop_reason != "error"]
    mean, interval = mean_interval([t.total_reward for t in episodes])
    outcomes = [t.succeeded for t in episodes]
    wins, reports_success = outcomes.count(True), bool(episodes) and None not in outcomes
    return EvaluationSummary(
        name=name,
        episodes=len(episodes),
        mean_return=mean,
        interval=interval,
        win_rate=wins / len(episodes) if reports_success else None,
        win_interval=wilson_interval(wins, len(episodes)) if reports_success else None,
        mean_turns=float(np.mean([len(t.turns) for t in episodes])) if episodes else math.nan,
        score=None if anchors is None or not episodes else normalized_score(mean, anchors),
        truncated=sum(t.truncated for t in episodes) / max(len(episodes), 1),
        environment=environment,
    )
