"""Filters of groups: what stays, in its order, and what is counted."""

import statistics
from collections import Counter

import pytest
from hand_made import batch_shapes, grown_groups, make_call, make_trajectory, make_turn
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.filters import (
    AccuracyBand,
    BalancedCrop,
    DiscountedReturn,
    InTurn,
    MinimumValid,
    NLLBand,
    Quality,
    StdAbove,
    TopStd,
    VersionWindow,
    total_reward,
)
from agentrl_jax.algorithms.masks import Quantiles
from agentrl_jax.algorithms.quality import overlong
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory


def member(*rewards: float, version: int = 0, logp: float = -1.0, **fields: object) -> Trajectory:
    turns = (make_turn([make_call([1], [2], logp=[logp], version=[version])], reward) for reward in rewards)
    return make_trajectory(*turns).replace(**fields)


def solved(*outcomes: bool, task: str = "t", version: int = 0) -> Group:
    return Group(task, tuple(member(float(x), success=x, version=version, sample=i) for i, x in enumerate(outcomes)))


def returning(*returns: float) -> Group:
    return Group("t", tuple(member(r) for r in returns))


def test_groups_that_hardly_differ_go():
    groups = [returning(0, 1), returning(0.1, 0.1, 0.1), returning(5), returning(0, 0.0005), Group("t", ())]
    assert StdAbove(1e-3)(groups) == groups[:1]
    assert StdAbove(1e-3, keep_alone=True)(groups) == [groups[0], groups[2]]
    assert StdAbove(0.0)(groups) == [groups[0], groups[3]]


def test_the_released_filter_of_ui_s1_takes_the_population_and_the_return_at_step_0():
    group = Group("t", (member(0.0, 1.0), member(0.0, 0.0)))  # returns at step 0: .5 and 0
    assert DiscountedReturn(0.5)(group.trajectories[0]) == 0.5
    assert StdAbove(0.24, DiscountedReturn(0.5), ddof=0)([group]) == [group]
    assert StdAbove(0.25, DiscountedReturn(0.5), ddof=0)([group]) == []
    assert StdAbove(0.3, DiscountedReturn(0.5))([group]) == [group]  # .5 / sqrt 2


@given(shapes=batch_shapes, share=st.sampled_from([0.25, 0.5, 0.75, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_groups_of_largest_deviation_stay_in_order(shapes: list, share: float):
    groups = grown_groups(shapes)
    kept = TopStd(share)(groups)
    assert kept == [g for g in groups if g in kept]
    assert len(kept) == (max(1, int(share * len(groups))) if groups else 0)

    def std(group: Group) -> float:
        returns = [t.total_reward for t in group.trajectories if t.turns]
        return statistics.stdev(returns) if len(returns) > 1 else 0.0

    dropped = [std(g) for g in groups if g not in kept]
    assert not dropped or min(map(std, kept)) >= max(dropped) - 1e-12


def test_a_quarter_of_eight_groups_is_two():
    groups = [returning(0, i) for i in (3, 1, 7, 2, 6, 0, 4, 5)]
    assert TopStd(0.25)(groups) == [groups[2], groups[4]]
    assert TopStd(0.25)(groups[:3]) == [groups[2]]


@pytest.mark.parametrize(
    ("band", "kept"),
    [
        (AccuracyBand(0.0, 1.0, False, False), [1, 2, 3]),  # DAPO
        (AccuracyBand(0.1, 0.9), [1, 2, 3]),  # SimpleTIR
        (AccuracyBand(0.0, 1.0, include_high=False), [0, 1, 2, 3]),  # DART
        (AccuracyBand(0.25, 0.5), [1, 2]),
        (AccuracyBand(0.25, 0.5, include_low=False), [2]),
        (AccuracyBand(0.0, 1.0, include_low=False), [1, 2, 3, 4]),  # solved at least once
    ],
)
def test_accuracy_bands(band: AccuracyBand, kept: list[int]):
    groups = [solved(*([True] * n + [False] * (4 - n))) for n in range(5)]
    assert band([*groups, Group("t", ())]) == [groups[i] for i in kept]
    with pytest.raises(UserError, match="does not say whether it was solved"):
        band([returning(1)])
    sure, unsure = returning(1, 1), returning(0, 1)
    assert AccuracyBand(0.9, 2.0, score=total_reward)([sure, unsure]) == [sure]


@given(
    outcomes=st.lists(st.booleans(), min_size=1, max_size=20), size=st.integers(2, 8), seed=st.integers(0, 99), version=st.integers(0, 3)
)
@settings(max_examples=100, deadline=None)
def test_a_crop_keeps_both_outcomes(outcomes: list[bool], size: int, seed: int, version: int):
    group = solved(*outcomes, version=version)
    (cropped,) = BalancedCrop(size, seed)([group])
    assert len(cropped.trajectories) == min(size, len(outcomes))
    samples = [t.sample for t in cropped.trajectories]
    assert samples == sorted(set(samples)) and set(cropped.trajectories) <= set(group.trajectories)
    assert {t.success for t in cropped.trajectories} == set(outcomes)
    assert BalancedCrop(size, seed)([group])[0].trajectories == cropped.trajectories


def test_a_crop_is_drawn_anew_for_every_task_seed_and_version_and_leaves_no_one_out():
    draws = [
        tuple(t.sample for t in BalancedCrop(3, seed)([solved(*[True, False] * 6, task=task, version=version)])[0].trajectories)
        for seed in range(10) for task in "abcd" for version in range(5)
    ]  # fmt: skip
    assert len(set(draws)) > 50
    counts = Counter(sample for draw in draws for sample in draw)
    assert all(25 < counts[i] < 75 for i in range(12))  # 50 expected of each, 3 of 12 in 200 draws


def test_faults_leave_out_members_or_groups():
    good, cut = member(1.0), member(1.0, stop_reason="tokens")
    groups = [Group("a", (good, cut, good)), Group("b", (cut, cut)), Group("c", (good,))]
    assert [len(g.trajectories) for g in Quality((overlong,))(groups)] == [2, 1]
    assert MinimumValid(2, (overlong,))(groups) == groups[:1]
    assert MinimumValid(1, (overlong,))(groups) == [groups[0], groups[2]]
    assert [len(g.trajectories) for g in InTurn((MinimumValid(2, (overlong,)), Quality((overlong,))))(groups)] == [2]
    assert InTurn(())(groups) == groups


def test_only_the_newest_weights_count():
    groups = [Group("a", (member(1.0, version=3), member(1.0, version=5))), Group("b", (member(1.0, version=7),)), Group("c", ())]
    assert [[t.calls[0].version.tolist() for t in g.trajectories] for g in VersionWindow(2)(groups)] == [[[5]], [[7]]]
    assert len(VersionWindow(3)(groups)[0].trajectories) == 2
    mixed = make_trajectory(*(make_turn([make_call([1], [2], version=[v])]) for v in (7, 3)))
    assert (
        VersionWindow(1)([*groups, Group("d", (mixed,))]) == VersionWindow(1)(groups) or len(VersionWindow(1)([Group("d", (mixed,))])) == 1
    )


def test_the_likely_and_the_odd_are_left_out():
    groups = [Group("a", tuple(member(1.0, logp=-x) for x in range(6))), Group("b", tuple(member(1.0, logp=-x) for x in range(6, 11)))]
    kept = NLLBand(Quantiles(0.2, 0.8))(groups)
    assert [[-t.calls[0].sampler_logp[0] for t in g.trajectories] for g in kept] == [[2, 3, 4, 5], [6, 7, 8]]
    assert NLLBand(Quantiles(0.0, 1.0))([]) == []


@pytest.mark.parametrize("each", [StdAbove(0.1), TopStd(0.5)])
def test_a_score_that_is_no_number_is_refused(each: StdAbove):
    with pytest.raises(ValueError, match="not finite"):
        each([returning(0.0, float("nan"))])


def test_groups_are_never_changed():
    groups = [solved(True, False, True, version=2), solved(False, version=1)]
    before = [g.trajectories for g in groups]
    for each in (BalancedCrop(2, 0), VersionWindow(1), Quality((overlong,)), TopStd(0.5)):
        each(groups)
    assert [g.trajectories for g in groups] == before
