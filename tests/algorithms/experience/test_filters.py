"""Filters of groups: which groups remain, in which order, and the counts of dropped ones."""

import statistics
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import batch_shapes, make_call, make_trajectory, make_turn, random_groups

from agentrl_jax.algorithms.advantages.trajectory_checks import is_overlong
from agentrl_jax.algorithms.experience.filters import (
    AccuracyBand,
    BalancedSubsample,
    DropFaultyTrajectories,
    FilterChain,
    MinScoreStd,
    MinValidTrajectories,
    TopScoreStd,
    VersionWindow,
)
from agentrl_jax.algorithms.experience.trajectory_scores import DiscountedReturn, total_reward
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory


def member(*rewards: float, version: int = 0, logp: float = -1.0, **fields: object) -> Trajectory:
    turns = (
        make_turn([make_call([1], [2], logp=[logp], version=[version])], reward)
        for reward in rewards
    )
    return make_trajectory(*turns).replace(**fields)


def solved(*outcomes: bool, task: str = "t", version: int = 0) -> Group:
    return Group(
        task,
        tuple(
            member(float(x), success=x, version=version, sample=i) for i, x in enumerate(outcomes)
        ),
    )


def returning(*returns: float) -> Group:
    return Group("t", tuple(member(r) for r in returns))


def test_groups_with_nearly_equal_returns_are_dropped():
    groups = [
        returning(0, 1),
        returning(0.1, 0.1, 0.1),
        returning(5),
        returning(0, 0.0005),
        Group("t", ()),
    ]
    assert MinScoreStd(1e-3)(groups) == groups[:1]
    assert MinScoreStd(1e-3, keep_singletons=True)(groups) == [groups[0], groups[2]]
    assert MinScoreStd(0.0)(groups) == [groups[0], groups[3]]


def test_the_released_filter_of_ui_s1_uses_the_population_std_of_the_return_at_step_0():
    group = Group("t", (member(0.0, 1.0), member(0.0, 0.0)))  # returns at step 0: .5 and 0
    assert DiscountedReturn(0.5)(group.trajectories[0]) == 0.5
    assert MinScoreStd(0.24, DiscountedReturn(0.5), ddof=0)([group]) == [group]
    assert MinScoreStd(0.25, DiscountedReturn(0.5), ddof=0)([group]) == []
    assert MinScoreStd(0.3, DiscountedReturn(0.5))([group]) == [group]  # .5 / sqrt 2


@given(shapes=batch_shapes, share=st.sampled_from([0.25, 0.5, 0.75, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_groups_of_largest_deviation_remain_in_order(shapes: list, share: float):
    groups = random_groups(shapes)
    selected = TopScoreStd(share)(groups)
    assert selected == [g for g in groups if g in selected]
    assert len(selected) == (max(1, int(share * len(groups))) if groups else 0)

    def std(group: Group) -> float:
        returns = [t.total_reward for t in group.trajectories if t.turns]
        return statistics.stdev(returns) if len(returns) > 1 else 0.0

    dropped = [std(g) for g in groups if g not in selected]
    assert not dropped or min(map(std, selected)) >= max(dropped) - 1e-12


def test_a_quarter_of_eight_groups_is_two():
    groups = [returning(0, i) for i in (3, 1, 7, 2, 6, 0, 4, 5)]
    assert TopScoreStd(0.25)(groups) == [groups[2], groups[4]]
    assert TopScoreStd(0.25)(groups[:3]) == [groups[2]]


@pytest.mark.parametrize(
    ("band", "selected"),
    [
        (AccuracyBand(0.0, 1.0, False, False), [1, 2, 3]),  # DAPO
        (AccuracyBand(0.1, 0.9), [1, 2, 3]),  # SimpleTIR
        (AccuracyBand(0.0, 1.0, include_high=False), [0, 1, 2, 3]),  # DART
        (AccuracyBand(0.25, 0.5), [1, 2]),
        (AccuracyBand(0.25, 0.5, include_low=False), [2]),
        (AccuracyBand(0.0, 1.0, include_low=False), [1, 2, 3, 4]),  # solved at least once
    ],
)
def test_accuracy_bands(band: AccuracyBand, selected: list[int]):
    groups = [solved(*([True] * n + [False] * (4 - n))) for n in range(5)]
    assert band([*groups, Group("t", ())]) == [groups[i] for i in selected]
    with pytest.raises(UserError, match="does not say whether it was solved"):
        band([returning(1)])
    sure, unsure = returning(1, 1), returning(0, 1)
    assert AccuracyBand(0.9, 2.0, score=total_reward)([sure, unsure]) == [sure]


@given(
    outcomes=st.lists(st.booleans(), min_size=1, max_size=20),
    size=st.integers(2, 8),
    seed=st.integers(0, 99),
    version=st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_a_subsample_contains_both_outcomes(
    outcomes: list[bool], size: int, seed: int, version: int
):
    group = solved(*outcomes, version=version)
    (cropped,) = BalancedSubsample(size, seed)([group])
    assert len(cropped.trajectories) == min(size, len(outcomes))
    samples = [t.sample for t in cropped.trajectories]
    assert samples == sorted(set(samples)) and set(cropped.trajectories) <= set(group.trajectories)
    assert {t.success for t in cropped.trajectories} == set(outcomes)
    assert BalancedSubsample(size, seed)([group])[0].trajectories == cropped.trajectories


def test_a_subsample_differs_by_task_seed_and_version_and_can_contain_any_member():
    draws = [
        tuple(
            t.sample
            for t in BalancedSubsample(3, seed)(
                [solved(*[True, False] * 6, task=task, version=version)]
            )[0].trajectories
        )
        for seed in range(10)
        for task in "abcd"
        for version in range(5)
    ]
    assert len(set(draws)) > 50
    counts = Counter(sample for draw in draws for sample in draw)
    assert all(25 < counts[i] < 75 for i in range(12))  # 50 expected of each, 3 of 12 in 200 draws


def test_faults_drop_trajectories_or_groups():
    good, cut = member(1.0), member(1.0, stop_reason="tokens")
    groups = [Group("a", (good, cut, good)), Group("b", (cut, cut)), Group("c", (good,))]
    assert [len(g.trajectories) for g in DropFaultyTrajectories((is_overlong,))(groups)] == [2, 1]
    assert MinValidTrajectories(2, (is_overlong,))(groups) == groups[:1]
    assert MinValidTrajectories(1, (is_overlong,))(groups) == [groups[0], groups[2]]
    assert [
        len(g.trajectories)
        for g in FilterChain(
            (MinValidTrajectories(2, (is_overlong,)), DropFaultyTrajectories((is_overlong,)))
        )(groups)
    ] == [2]
    assert FilterChain(())(groups) == groups


def test_only_trajectories_of_the_newest_weights_remain():
    groups = [
        Group("a", (member(1.0, version=3), member(1.0, version=5))),
        Group("b", (member(1.0, version=7),)),
        Group("c", ()),
    ]
    assert [
        [t.calls[0].version.tolist() for t in g.trajectories] for g in VersionWindow(2)(groups)
    ] == [[[5]], [[7]]]
    assert len(VersionWindow(3)(groups)[0].trajectories) == 2
    mixed = make_trajectory(*(make_turn([make_call([1], [2], version=[v])]) for v in (7, 3)))
    assert (
        VersionWindow(1)([*groups, Group("d", (mixed,))]) == VersionWindow(1)(groups)
        or len(VersionWindow(1)([Group("d", (mixed,))])) == 1
    )


@pytest.mark.parametrize("each", [MinScoreStd(0.1), TopScoreStd(0.5)])
def test_a_score_that_is_not_finite_is_refused(each: MinScoreStd):
    with pytest.raises(ValueError, match="not finite"):
        each([returning(0.0, float("nan"))])


def test_filtered_groups_are_unchanged():
    groups = [solved(True, False, True, version=2), solved(False, version=1)]
    before = [g.trajectories for g in groups]
    for each in (
        BalancedSubsample(2, 0),
        VersionWindow(1),
        DropFaultyTrajectories((is_overlong,)),
        TopScoreStd(0.5),
    ):
        each(groups)
    assert [g.trajectories for g in groups] == before
