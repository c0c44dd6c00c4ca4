"""Advantages against tables worked by hand and loops over ragged groups."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
    trajectories_with_turns,
    with_info,
)

from agentrl_jax.algorithms.advantages.group import (
    ExternalBaseline,
    GroupedBy,
    KLPenaltyReward,
    ReinforcePlusPlus,
    WeightedSum,
    group_centered,
    group_normalized,
    leave_one_out,
    reinforce_plus_plus_baseline,
    static_weights,
)
from agentrl_jax.algorithms.advantages.grouping import (
    environment_of_trajectory,
    group_mean,
    player_of_trajectory,
)
from agentrl_jax.algorithms.advantages.returns import token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import TokenIndex, collate
from agentrl_jax.trajectories import Group, Trajectory

Advantage = Callable[[TokenIndex], np.ndarray]
BOTH = pytest.mark.parametrize("advantage", [group_centered, group_normalized, leave_one_out])


def one_token_each(*groups: list[float], turns: int = 1) -> TokenIndex:
    """Trajectories with these rewards, one per turn of one token."""
    group = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    owner = np.repeat(np.arange(len(group)), turns)
    token = np.arange(len(owner))
    reward = np.asarray([r for g in groups for r in g], np.float64)[owner]
    return TokenIndex(owner, token % turns, token, owner, reward, token % turns == turns - 1, group)


def per_trajectory(advantage: np.ndarray, indices: TokenIndex) -> dict[int, float]:
    """The one value that all tokens of each trajectory share."""
    out = {}
    for j in np.unique(indices.token_trajectory).tolist():
        (out[j],) = set(advantage[indices.token_trajectory == j].tolist())
    return out


@pytest.mark.parametrize(
    ("returns", "centred", "normalized"),
    [
        (
            [1, 0, 0, 1],
            [0.5, -0.5, -0.5, 0.5],
            [0.8660239, -0.8660239, -0.8660239, 0.8660239],
        ),  # std sqrt(1/3)
        ([0, 0, 0, 4], [-1, -1, -1, 3], [-0.4999998, -0.4999998, -0.4999998, 1.4999993]),  # std 2
        ([2, -2], [2, -2], [0.7071065, -0.7071065]),  # std sqrt(8)
        ([-1, -2, -6], [2, 1, -3], [0.7559287, 0.3779643, -1.1338930]),  # std sqrt(7)
        ([5], [5], [4.999995]),  # a group of one: mean 0, std 1
        ([7, 7, 7], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_advantages_are_those_of_the_table(
    returns: list[float], centred: list[float], normalized: list[float]
):
    indices = one_token_each(returns)
    assert group_centered(indices) == pytest.approx(centred, abs=1e-12)
    assert group_normalized(indices) == pytest.approx(normalized, abs=2e-7)


def test_every_token_of_a_trajectory_has_the_same_advantage():
    indices = collate(
        random_groups([[[(1, 2, False, 1), (3, 1, True, 2)], [(1, 3, False, 1)]]])
    ).token_index
    assert group_centered(indices).tolist() == [1, 1, 1, -1, -1, -1]


@given(shapes=batch_shapes)
@settings(max_examples=200, deadline=None)
def test_ragged_groups_match_loops(shapes: list):
    groups = random_groups(shapes)
    indices = collate(groups).token_index
    centred, normalized = [], []
    for group in groups:
        members = trajectories_with_turns([group])
        returns = [trajectory.total_reward for trajectory in members]
        for trajectory, value in zip(members, returns):
            mean = statistics.fmean(returns) if len(returns) > 1 else 0.0
            std = statistics.stdev(returns) if len(returns) > 1 else 1.0
            tokens = sum(len(call.action) for call in trajectory.calls)
            centred += [value - mean] * tokens
            normalized += [(value - mean) / (std + 1e-6)] * tokens
    assert group_centered(indices) == pytest.approx(centred, abs=1e-10)
    assert group_normalized(indices) == pytest.approx(normalized, abs=1e-8)


@BOTH
@given(returns=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=16))
@settings(max_examples=200, deadline=None)
def test_a_groups_advantages_sum_to_zero(advantage: Advantage, returns: list[float]):
    assert abs(advantage(one_token_each(returns)).sum()) < 1e-8


@BOTH
@given(reward=st.floats(-1e6, 1e6), size=st.integers(2, 33), turns=st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_equal_returns_give_exactly_zero(
    advantage: Advantage, reward: float, size: int, turns: int
):
    # A plain mean of three times 0.1 is 0.10000000000000002, and Adam would normalize the remainder
    # to a full step.
    assert not advantage(
        one_token_each([reward] * size, [reward + 1], [reward] * size, turns=turns)
    )[: size * turns].any()


@given(reward=st.floats(allow_nan=False, allow_infinity=False, width=32), size=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_the_mean_of_equal_values_is_that_value(reward: float, size: int):
    assert group_mean(np.full(size, reward), np.zeros(size, int)).tolist() == [reward] * size


@BOTH
@given(
    returns=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=12),
    seed=st.integers(0, 999),
)
@settings(max_examples=200, deadline=None)
def test_permuting_a_group_permutes_its_advantages(
    advantage: Advantage, returns: list[float], seed: int
):
    order = np.random.default_rng(seed).permutation(len(returns))
    permuted = advantage(one_token_each([returns[i] for i in order]))
    assert permuted == pytest.approx(advantage(one_token_each(returns))[order], abs=1e-8)


@BOTH
@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_groups_do_not_affect_each_other(advantage: Advantage, shapes: list, seed: int):
    groups = random_groups(shapes)
    together = advantage(collate(groups).token_index)
    alone = [advantage(collate([group]).token_index) for group in groups]
    assert together == pytest.approx(np.concatenate([np.zeros(0), *alone]), abs=1e-9)


@BOTH
@given(shapes=batch_shapes, more=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_more_observation_tokens_change_no_advantage(advantage: Advantage, shapes: list, more: int):
    longer = [
        [
            [(new + more, written, cut, reward) for new, written, cut, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    before, after = (
        collate(random_groups(shapes)).token_index,
        collate(random_groups(longer)).token_index,
    )
    assert advantage(before).tolist() == advantage(after).tolist()


@BOTH
@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_an_advantage_does_not_depend_on_the_number_of_sampled_tokens(
    advantage: Advantage, shapes: list
):
    wordy = [
        [
            [(new, 2 * written, cut, reward) for new, written, cut, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    short, long = (collate(random_groups(x)).token_index for x in (shapes, wordy))
    assert per_trajectory(advantage(short), short) == per_trajectory(advantage(long), long)


@BOTH
def test_a_constant_added_to_every_return_of_a_group_changes_nothing(advantage: Advantage):
    returns = np.random.default_rng(0).normal(size=8)
    assert advantage(one_token_each([*(returns + 3)])) == pytest.approx(
        advantage(one_token_each([*returns])), abs=1e-12
    )


def test_normalized_advantages_do_not_depend_on_the_scale_of_the_reward():
    returns = np.random.default_rng(0).normal(size=8)
    assert group_normalized(one_token_each([*(1000 * returns)])) == pytest.approx(
        group_normalized(one_token_each([*returns])), abs=1e-5
    )


@BOTH
def test_without_experience_there_is_no_advantage(advantage: Advantage):
    assert advantage(collate([]).token_index).shape == (0,)
    assert advantage(collate([Group("a", ())]).token_index).shape == (0,)


@BOTH
def test_trajectories_dropped_by_failures_are_not_counted(advantage: Advantage):
    group = random_groups([[[(1, 1, False, 1)], [(1, 1, False, 3)]]])[0]
    advantages = advantage(collate([dataclasses.replace(group, num_dropped=6)]).token_index)
    assert advantages.tolist() == advantage(collate([group]).token_index).tolist()


@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_leave_one_out_subtracts_the_mean_of_the_others_and_is_a_multiple_of_centering(
    shapes: list,
):
    groups = random_groups(shapes)
    indices = collate(groups).token_index
    expected, factor = [], []
    for group in groups:
        members = trajectories_with_turns([group])
        for i, trajectory in enumerate(members):
            other_returns = [t.total_reward for j, t in enumerate(members) if j != i]
            tokens = sum(len(call.action) for call in trajectory.calls)
            expected += [
                trajectory.total_reward
                - (statistics.fmean(other_returns) if other_returns else 0.0)
            ] * tokens
            factor += [len(members) / max(len(members) - 1, 1)] * tokens
    assert leave_one_out(indices) == pytest.approx(expected, abs=1e-9)
    assert leave_one_out(indices) == pytest.approx(
        group_centered(indices) * np.asarray(factor), abs=1e-12
    )


@pytest.mark.parametrize(
    "key",
    [
        lambda e: np.zeros(len(e.trajectories), int),
        player_of_trajectory,
        environment_of_trajectory,
    ],
)
@given(shapes=batch_shapes, std=st.booleans(), keep=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_centering_by_any_key_matches_a_loop(
    key: Callable, shapes: list, std: bool, keep: bool, seed: int
):
    rng = np.random.default_rng(seed)
    groups = [
        dataclasses.replace(
            g,
            trajectories=tuple(
                t.replace(agent_index=int(rng.integers(2)), task=f"game {rng.integers(2)}#{i}")
                for t in g.trajectories
            ),
        )
        for i, g in enumerate(random_groups(shapes))
    ]
    inputs = make_credit_inputs(groups)
    keys = key(inputs).tolist()
    expected = []
    for j, trajectory in enumerate(inputs.trajectories):
        same = [t.total_reward for t, k in zip(inputs.trajectories, keys) if k == keys[j]]
        value = trajectory.total_reward - (
            0.0 if keep and len(same) == 1 else statistics.fmean(same)
        )
        if std:
            value /= (statistics.stdev(same) if len(same) > 1 else 1.0) + 1e-6
        expected += [value] * sum(len(call.action) for call in trajectory.calls)
    # A loop's mean of equal values has a rounding error, which a deviation of 0 scales to 1e-10.
    assert GroupedBy(key, std=std, keep_singletons=keep)(inputs) == pytest.approx(
        expected, abs=1e-8
    )


def test_statistics_are_kept_by_environment_and_player():
    """Two games in one batch, the rewards of one a hundred times those of the other."""

    def member(task: str, agent_index: int, reward: float) -> Trajectory:
        trajectory = make_trajectory(make_turn([make_call([1], [2])], reward))
        return trajectory.replace(task=task, agent_index=agent_index)

    groups = [
        Group("kuhn#1", (member("kuhn#1", 0, 2.0), member("kuhn#1", 1, -2.0))),
        Group("ttt#1", (member("ttt#1", 0, 100.0), member("ttt#1", 1, -100.0))),
        Group("kuhn#2", (member("kuhn#2", 0, 0.0), member("kuhn#2", 1, 1.0))),
        Group("ttt#2", (member("ttt#2", 0, 300.0), member("ttt#2", 1, 0.0))),
    ]
    inputs = make_credit_inputs(groups)
    assert environment_of_trajectory(inputs).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert player_of_trajectory(inputs).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    # Means: kuhn 1/4, its players 1 and -1/2; ttt 75, its players 200 and -50.
    by_environment = [1.75, -2.25, 25.0, -175.0, -0.25, 0.75, 225.0, -75.0]
    by_player = [1.0, -1.5, -100.0, -50.0, -1.0, 1.5, 100.0, 50.0]
    for key, expected in (
        (environment_of_trajectory, by_environment),
        (player_of_trajectory, by_player),
    ):
        assert GroupedBy(key, std=False)(inputs).tolist() == pytest.approx(expected)


@given(shapes=batch_shapes, gamma=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_reinforce_plus_plus_whitens_the_reward_to_go(shapes: list, gamma: float):
    groups = random_groups(shapes)
    returns: list[float] = []
    for trajectory in trajectories_with_turns(groups):
        rewards = [
            r
            for turn in trajectory.turns
            for r in [*([0.0] * (len(turn.calls[0].action) - 1)), turn.reward]
        ]
        returns += [
            sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards)))
            for t in range(len(rewards))
        ]
    indices = collate(groups).token_index
    spread = statistics.variance(returns) if len(returns) > 1 else 0.0
    expected = [(x - statistics.fmean(returns)) / (spread + 1e-8) ** 0.5 for x in returns]
    assert ReinforcePlusPlus(gamma)(indices) == pytest.approx(expected, abs=1e-6)
    baseline = reinforce_plus_plus_baseline(indices)
    if len(baseline) > 1 and np.ptp(baseline) > 0:
        assert baseline.mean() == pytest.approx(0, abs=1e-9)
        assert np.corrcoef(baseline, group_centered(indices))[0, 1] == pytest.approx(1, abs=1e-9)
    else:
        assert not baseline.any()


def test_a_kl_in_the_reward_needs_credit_inputs():
    with pytest.raises(UserError, match="needs the credit inputs"):
        ReinforcePlusPlus(penalty=KLPenaltyReward(0.1))(one_token_each([1.0]))


def test_weighted_sums_and_external_baselines():
    indices = one_token_each([1.0, 0.0], [4.0])
    both = WeightedSum(group_centered, group_normalized, 2.0, -1.0)(indices)
    assert both == pytest.approx(2 * group_centered(indices) - group_normalized(indices), abs=1e-15)
    assert ExternalBaseline(0.5)(indices).tolist() == [0.5, -0.5, 3.5]
    assert ExternalBaseline(0.5, 2.0)(indices).tolist() == [0.25, -0.25, 1.75]


def test_static_weights_are_those_of_the_data():
    groups = with_info(
        random_groups([[[(1, 2, False, 1.0), (1, 1, False, 0.0)]]]),
        weight=lambda turn, place: 0.5 * place + 0.25,
    )
    assert static_weights(make_credit_inputs(groups)).tolist() == [0.25, 0.25, 0.75]
    with pytest.raises(UserError, match="no 'weight'"):
        static_weights(make_credit_inputs(random_groups([[[(1, 2, False, 1.0)]]])))


def test_the_reward_of_a_turn_without_tokens_goes_to_the_tokens_before_it_or_else_after():
    empty, written = (
        make_turn([make_call([1], [])], 2.0),
        make_turn([make_call([1], [5, 6])], 1.0),
    )
    for turns, expected in (
        ([written, empty], [0, 3]),
        ([empty, written], [2, 1]),
        ([empty, written, empty, empty, written], [2, 5, 0, 1]),
        ([empty], []),
    ):
        neighbours = make_trajectory(written)
        indices = collate(
            [Group("a", (neighbours, make_trajectory(*turns), neighbours))]
        ).token_index
        assert token_rewards(indices).tolist() == [0, 1, *expected, 0, 1]


def test_the_reward_of_a_trajectory_without_tokens_goes_nowhere():
    written = make_trajectory(make_turn([make_call([1], [5, 6])], 1.0))
    empty = make_trajectory(make_turn([make_call([1], [])], 2.0))
    indices = collate([Group("a", (written, empty))]).token_index
    assert token_rewards(indices).tolist() == [0.0, 1.0]
