"""Advantages against tables worked by hand and loops over ragged groups."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups, make_call, make_trajectory, make_turn, told, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import (
    ExternalBaseline,
    Keyed,
    KLInReward,
    ReinforcePlusPlus,
    SumOf,
    group_centred,
    group_normalized,
    leave_one_out,
    reinforce_plus_plus_baseline,
    static_weights,
)
from agentrl_jax.algorithms.centring import group_mean
from agentrl_jax.algorithms.keying import player_of_trajectory
from agentrl_jax.algorithms.returns import token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Indices, collate
from agentrl_jax.trajectories import Group

Advantage = Callable[[Indices], np.ndarray]
BOTH = pytest.mark.parametrize("advantage", [group_centred, group_normalized, leave_one_out])


def one_token_each(*groups: list[float], turns: int = 1) -> Indices:
    """Trajectories by their rewards, which each of their turns of one token earns."""
    group = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    owner = np.repeat(np.arange(len(group)), turns)
    token = np.arange(len(owner))
    reward = np.asarray([r for g in groups for r in g], np.float64)[owner]
    return Indices(owner, token % turns, token, owner, reward, token % turns == turns - 1, group)


def per_trajectory(advantage: np.ndarray, indices: Indices) -> dict[int, float]:
    """The one value that all tokens of a trajectory share."""
    out = {}
    for j in np.unique(indices.token_trajectory).tolist():
        (out[j],) = set(advantage[indices.token_trajectory == j].tolist())
    return out


@pytest.mark.parametrize(
    ("returns", "centred", "normalized"),
    [
        ([1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5], [0.8660239, -0.8660239, -0.8660239, 0.8660239]),  # std sqrt(1/3)
        ([0, 0, 0, 4], [-1, -1, -1, 3], [-0.4999998, -0.4999998, -0.4999998, 1.4999993]),  # std 2
        ([2, -2], [2, -2], [0.7071065, -0.7071065]),  # std sqrt(8)
        ([-1, -2, -6], [2, 1, -3], [0.7559287, 0.3779643, -1.1338930]),  # std sqrt(7)
        ([5], [5], [4.999995]),  # a group of one: mean 0, std 1
        ([7, 7, 7], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_advantages_are_those_of_the_table(returns: list[float], centred: list[float], normalized: list[float]):
    indices = one_token_each(returns)
    assert group_centred(indices) == pytest.approx(centred, abs=1e-12)
    assert group_normalized(indices) == pytest.approx(normalized, abs=2e-7)


def test_every_token_of_a_trajectory_has_its_advantage():
    indices = collate(grown_groups([[[(1, 2, False, 1), (3, 1, True, 2)], [(1, 3, False, 1)]]])).indices
    assert group_centred(indices).tolist() == [1, 1, 1, -1, -1, -1]


@given(shapes=batch_shapes)
@settings(max_examples=200, deadline=None)
def test_ragged_groups_give_what_loops_give(shapes: list):
    groups = grown_groups(shapes)
    indices = collate(groups).indices
    centred, normalized = [], []
    for group in groups:
        played = whole([group])
        returns = [trajectory.total_reward for trajectory in played]
        for trajectory, value in zip(played, returns):
            mean = statistics.fmean(returns) if len(returns) > 1 else 0.0
            std = statistics.stdev(returns) if len(returns) > 1 else 1.0
            tokens = sum(len(call.action) for call in trajectory.calls)
            centred += [value - mean] * tokens
            normalized += [(value - mean) / (std + 1e-6)] * tokens
    assert group_centred(indices) == pytest.approx(centred, abs=1e-10)
    assert group_normalized(indices) == pytest.approx(normalized, abs=1e-8)


@BOTH
@given(returns=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=16))
@settings(max_examples=200, deadline=None)
def test_a_group_sums_to_nought(advantage: Advantage, returns: list[float]):
    assert abs(advantage(one_token_each(returns)).sum()) < 1e-8


@BOTH
@given(reward=st.floats(-1e6, 1e6), size=st.integers(2, 33), turns=st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_equal_returns_give_exactly_nought(advantage: Advantage, reward: float, size: int, turns: int):
    # A plain mean of three times 0.1 is 0.10000000000000002, and Adam would make a full step of what is left.
    assert not advantage(one_token_each([reward] * size, [reward + 1], [reward] * size, turns=turns))[: size * turns].any()


@given(reward=st.floats(allow_nan=False, allow_infinity=False, width=32), size=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_the_mean_of_equal_values_is_that_value(reward: float, size: int):
    assert group_mean(np.full(size, reward), np.zeros(size, int)).tolist() == [reward] * size


@BOTH
@given(returns=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=12), seed=st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_permuting_a_group_permutes_its_advantages(advantage: Advantage, returns: list[float], seed: int):
    order = np.random.default_rng(seed).permutation(len(returns))
    permuted = advantage(one_token_each([returns[i] for i in order]))
    assert permuted == pytest.approx(advantage(one_token_each(returns))[order], abs=1e-8)


@BOTH
@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_groups_do_not_see_each_other(advantage: Advantage, shapes: list, seed: int):
    groups = grown_groups(shapes)
    together = advantage(collate(groups).indices)
    alone = [advantage(collate([group]).indices) for group in groups]
    assert together == pytest.approx(np.concatenate([np.zeros(0), *alone]), abs=1e-9)


@BOTH
@given(shapes=batch_shapes, more=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_more_observation_tokens_change_no_advantage(advantage: Advantage, shapes: list, more: int):
    longer = [[[(new + more, written, cut, reward) for new, written, cut, reward in turns] for turns in group] for group in shapes]
    before, after = collate(grown_groups(shapes)).indices, collate(grown_groups(longer)).indices
    assert advantage(before).tolist() == advantage(after).tolist()


@BOTH
@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_an_advantage_does_not_depend_on_how_many_tokens_were_written(advantage: Advantage, shapes: list):
    wordy = [[[(new, 2 * written, cut, reward) for new, written, cut, reward in turns] for turns in group] for group in shapes]
    short, long = (collate(grown_groups(x)).indices for x in (shapes, wordy))
    assert per_trajectory(advantage(short), short) == per_trajectory(advantage(long), long)


@BOTH
def test_a_constant_added_to_every_return_of_a_group_changes_nothing(advantage: Advantage):
    returns = np.random.default_rng(0).normal(size=8)
    assert advantage(one_token_each([*(returns + 3)])) == pytest.approx(advantage(one_token_each([*returns])), abs=1e-12)


def test_normalized_advantages_do_not_depend_on_the_scale_of_the_reward():
    returns = np.random.default_rng(0).normal(size=8)
    assert group_normalized(one_token_each([*(1000 * returns)])) == pytest.approx(group_normalized(one_token_each([*returns])), abs=1e-5)


@BOTH
def test_no_experience_has_no_advantage(advantage: Advantage):
    assert advantage(collate([]).indices).shape == (0,)
    assert advantage(collate([Group("a", ())]).indices).shape == (0,)


@BOTH
def test_members_lost_to_failures_are_not_counted(advantage: Advantage):
    group = grown_groups([[[(1, 1, False, 1)], [(1, 1, False, 3)]]])[0]
    kept = advantage(collate([dataclasses.replace(group, dropped=6)]).indices)
    assert kept.tolist() == advantage(collate([group]).indices).tolist()


@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_leave_one_out_is_the_mean_of_the_others_and_a_multiple_of_centring(shapes: list):
    groups = grown_groups(shapes)
    indices = collate(groups).indices
    expected, factor = [], []
    for group in groups:
        played = whole([group])
        for i, trajectory in enumerate(played):
            others = [t.total_reward for j, t in enumerate(played) if j != i]
            tokens = sum(len(call.action) for call in trajectory.calls)
            expected += [trajectory.total_reward - (statistics.fmean(others) if others else 0.0)] * tokens
            factor += [len(played) / max(len(played) - 1, 1)] * tokens
    assert leave_one_out(indices) == pytest.approx(expected, abs=1e-9)
    assert leave_one_out(indices) == pytest.approx(group_centred(indices) * np.asarray(factor), abs=1e-12)


@pytest.mark.parametrize("key", [lambda e: np.zeros(len(e.trajectories), int), player_of_trajectory])
@given(shapes=batch_shapes, std=st.booleans(), keep=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_centring_by_any_key_is_what_a_loop_gives(key: Callable, shapes: list, std: bool, keep: bool, seed: int):
    rng = np.random.default_rng(seed)
    groups = [
        dataclasses.replace(
            g, trajectories=tuple(t.replace(seat=int(rng.integers(2)), task=f"game {rng.integers(2)}#{i}") for t in g.trajectories)
        )
        for i, g in enumerate(grown_groups(shapes))
    ]
    evidence = evidence_of(groups)
    keys = key(evidence).tolist()
    expected = []
    for j, trajectory in enumerate(evidence.trajectories):
        same = [t.total_reward for t, k in zip(evidence.trajectories, keys) if k == keys[j]]
        value = trajectory.total_reward - (0.0 if keep and len(same) == 1 else statistics.fmean(same))
        if std:
            value /= (statistics.stdev(same) if len(same) > 1 else 1.0) + 1e-6
        expected += [value] * sum(len(call.action) for call in trajectory.calls)
    # A loop's mean of equal values is off by a rounding, which a deviation of 0 makes 1e-10.
    assert Keyed(key, std=std, keep_alone=keep)(evidence) == pytest.approx(expected, abs=1e-8)


@given(shapes=batch_shapes, gamma=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_reinforce_plus_plus_whitens_the_reward_to_go(shapes: list, gamma: float):
    groups = grown_groups(shapes)
    returns: list[float] = []
    for trajectory in whole(groups):
        rewards = [r for turn in trajectory.turns for r in [*([0.0] * (len(turn.calls[0].action) - 1)), turn.reward]]
        returns += [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]
    indices = collate(groups).indices
    spread = statistics.variance(returns) if len(returns) > 1 else 0.0
    expected = [(x - statistics.fmean(returns)) / (spread + 1e-8) ** 0.5 for x in returns]
    assert ReinforcePlusPlus(gamma)(indices) == pytest.approx(expected, abs=1e-6)
    baseline = reinforce_plus_plus_baseline(indices)
    if len(baseline) > 1 and np.ptp(baseline) > 0:
        assert baseline.mean() == pytest.approx(0, abs=1e-9)
        assert np.corrcoef(baseline, group_centred(indices))[0, 1] == pytest.approx(1, abs=1e-9)
    else:
        assert not baseline.any()


def test_a_kl_in_the_reward_needs_evidence():
    with pytest.raises(UserError, match="needs the evidence"):
        ReinforcePlusPlus(penalty=KLInReward(0.1))(one_token_each([1.0]))


def test_a_sum_is_a_sum_and_an_outer_baseline_is_what_it_says():
    indices = one_token_each([1.0, 0.0], [4.0])
    both = SumOf(group_centred, group_normalized, 2.0, -1.0)(indices)
    assert both == pytest.approx(2 * group_centred(indices) - group_normalized(indices), abs=1e-15)
    assert ExternalBaseline(0.5, 2.0)(indices).tolist() == [0.25, -0.25, 1.75]


def test_static_weights_are_those_of_the_data():
    groups = told(grown_groups([[[(1, 2, False, 1.0), (1, 1, False, 0.0)]]]), weight=lambda turn, place: 0.5 * place + 0.25)
    assert static_weights(evidence_of(groups)).tolist() == [0.25, 0.25, 0.75]
    with pytest.raises(UserError, match="no 'weight'"):
        static_weights(evidence_of(grown_groups([[[(1, 2, False, 1.0)]]])))


def test_a_wordless_turn_gives_its_reward_to_the_words_before_it_or_else_after():
    wordless, spoken = make_turn([make_call([1], [])], 2.0), make_turn([make_call([1], [5, 6])], 1.0)
    for turns, expected in (
        ([spoken, wordless], [0, 3]),
        ([wordless, spoken], [2, 1]),
        ([wordless, spoken, wordless, wordless, spoken], [2, 5, 0, 1]),
        ([wordless], []),
    ):
        neighbours = make_trajectory(spoken)
        indices = collate([Group("a", (neighbours, make_trajectory(*turns), neighbours))]).indices
        assert token_rewards(indices).tolist() == [0, 1, *expected, 0, 1]
