"""Means, intervals and summaries against hand-worked and published numbers."""

import math

import numpy as np
import pytest

from agentrl_jax.messages import assistant, user
from agentrl_jax.reporting.statistics import (
    difference_interval,
    holm_adjusted,
    mean_interval,
    paired_p_value,
    summarize,
    wilson_interval,
)
from agentrl_jax.trajectories import Trajectory, Turn


def trajectory(
    *rewards: float, success: bool | None = None, stop_reason: str = "terminated"
) -> Trajectory:
    turns = tuple(Turn((), assistant("a"), (), float(reward)) for reward in rewards)
    return Trajectory((user("go"),), turns, success=success, stop_reason=stop_reason)  # type: ignore[arg-type]


def test_the_interval_of_a_mean_is_students_t():
    mean, half = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # t(4) at 97.5 % is 2.776 in every table; s = sqrt(2.5)
    assert mean == 3.0
    assert half == pytest.approx(2.7764 * math.sqrt(2.5 / 5), rel=1e-4)


def test_the_interval_of_many_values_is_normal():
    x = np.tile([-1.0, 1.0], 50_000)
    assert mean_interval(x)[1] == pytest.approx(1.95996 / math.sqrt(len(x)), rel=1e-4)


def test_without_two_values_the_interval_is_infinite():
    assert mean_interval([7.0]) == (7.0, math.inf)
    mean, half = mean_interval([])
    assert math.isnan(mean) and half == math.inf


def test_the_interval_of_a_mean_covers_it_19_times_in_20():
    x = np.random.default_rng(0).normal(size=(4000, 6))
    covered = [abs(mean) <= half for mean, half in map(mean_interval, x)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)


def test_pairing_removes_what_the_seeds_have_in_common():
    seeds = np.random.default_rng(0).normal(scale=100, size=50)
    noise = np.random.default_rng(1).normal(scale=0.1, size=50)
    mean, half = difference_interval(seeds + 1 + noise, seeds)
    assert mean == pytest.approx(1, abs=0.1) and half < 0.1
    with pytest.raises(ValueError, match="3 and 2"):
        difference_interval([1.0, 2.0, 3.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("wins", "n", "low", "high"),
    # Newcombe (1998), table I, method 3 (score, no continuity correction)
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0, 1),
    ],
)
def test_wilsons_interval_is_the_published_one(wins: int, n: int, low: float, high: float):
    assert wilson_interval(wins, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(n - wins, n) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_a_summary_counts_episodes_turns_and_wins():
    episodes = [
        trajectory(-1, -1, 0, success=True),
        trajectory(-1, success=False),
        trajectory(-1, -1, stop_reason="context"),
    ]
    summary = summarize("SFT", [*episodes, trajectory(stop_reason="error")], (-5.0, -3.0, -1.0))
    assert (summary.name, summary.episodes, summary.mean_turns) == ("SFT", 3, 2.0)
    assert summary.mean_return == pytest.approx(-5 / 3)
    assert summary.interval == pytest.approx(4.3027 * math.sqrt(1 / 3) / math.sqrt(3), rel=1e-4)
    assert summary.win_rate == pytest.approx(1 / 3)
    assert summary.win_interval == wilson_interval(1, 3)
    assert summary.score == pytest.approx(50 + 50 * (3 - 5 / 3) / 2)
    assert summary.truncated == pytest.approx(1 / 3)


def test_episodes_that_were_all_cut_are_not_won():
    summary = summarize(
        "SFT", [trajectory(stop_reason="tokens"), trajectory(-1, stop_reason="turns")], None
    )
    assert (summary.win_rate, summary.win_interval) == (0.0, wilson_interval(0, 2))
    assert summary.truncated == 1.0 and summary.mean_return == -0.5


def test_success_that_the_environment_does_not_report_is_none():
    summary = summarize("policy", [trajectory(1.0), trajectory(2.0)], None)
    assert summary.win_rate is None and summary.win_interval is None and summary.score is None
    empty = summarize("policy", [], (0.0, 1.0, 2.0))
    assert empty.episodes == 0 and math.isnan(empty.mean_return) and empty.score is None


def test_the_paired_p_value_is_that_of_the_t_test():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    for n in (2, 5, 12):
        a, b = rng.normal(0.5, 1, n), rng.normal(0, 1, n)
        assert paired_p_value(a, b) == pytest.approx(ttest_rel(a, b).pvalue, rel=1e-9)


def test_p_values_without_a_spread_or_a_second_pair():
    assert paired_p_value([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert paired_p_value([2.0, 3.0], [1.0, 2.0]) == 0.0
    assert paired_p_value([2.0], [1.0]) == 1.0
    with pytest.raises(ValueError, match="equal numbers"):
        paired_p_value([1.0, 2.0], [1.0])


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_keeps_the_order():
    # .01 x 4, then max(.04, .02 x 3), max(.06, .03 x 2), max(.06, .5 x 1)
    assert holm_adjusted([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm_adjusted([0.9, 0.6]) == [1.0, 1.0]
    assert holm_adjusted([]) == []


def test_holm_rejects_what_stepping_down_rejects():
    rng = np.random.default_rng(1)
    for _ in range(50):
        p_values = rng.uniform(0, 0.1, 6)
        rejected = set[int]()
        for rank, i in enumerate(np.argsort(p_values)):
            if p_values[i] > 0.05 / (6 - rank):
                break
            rejected.add(int(i))
        assert {i for i, p in enumerate(holm_adjusted(p_values.tolist())) if p <= 0.05} == rejected
