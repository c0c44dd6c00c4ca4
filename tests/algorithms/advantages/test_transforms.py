"""Transforms of advantages: tables, and means over what branches share."""

import dataclasses

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
)

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.transforms import (
    ClipAdvantages,
    PrefixMean,
    ScaleByEntropy,
    WhitenBy,
    shared_call_key,
    shared_prefix_key,
    subtract_distinct_mean,
    whiten,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.trajectories import Group


def of_tokens(n: int) -> CreditInputs:
    return make_credit_inputs(
        [Group("a", (make_trajectory(make_turn([make_call([1], range(n))])),))]
    )


def test_whitening_and_clipping():
    advantage = np.array([1.0, -2.0, 4.0])
    white = whiten(of_tokens(3), advantage)
    assert white.mean() == pytest.approx(0, abs=1e-12) and white.std(ddof=1) == pytest.approx(
        1, abs=1e-6
    )
    assert ClipAdvantages(1.5)(of_tokens(3), advantage).tolist() == [1.0, -1.5, 1.5]
    for equal in ([0.1] * 3, [0.1], []):
        assert not whiten(of_tokens(len(equal)), np.array(equal)).any()


@given(
    labels=st.lists(st.sampled_from(["kuhn", "ttt", "nim"]), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_whitening_by_environment_is_whitening_each_alone(labels: list[str], seed: int):
    rng = np.random.default_rng(seed)
    groups = []
    for i, label in enumerate(labels):
        call = make_call([1], range(int(rng.integers(1, 5))))
        trajectory = make_trajectory(make_turn([call])).replace(task=f"{label}#{i}")
        groups.append(Group(f"{label}#{i}", (trajectory,)))
    inputs = make_credit_inputs(groups)
    advantage = rng.normal(size=len(inputs.token_turn)) * 10.0 ** rng.integers(-2, 3)
    white, owner = WhitenBy()(inputs, advantage), [labels[j] for j in inputs.token_trajectory]
    for label in set(labels):
        mask = np.array([x == label for x in owner])
        np.testing.assert_allclose(white[mask], whiten(inputs, advantage[mask]), atol=1e-12)
    everything = WhitenBy(lambda inputs: np.zeros(len(inputs.token_turn), np.int64))
    np.testing.assert_allclose(everything(inputs, advantage), whiten(inputs, advantage), atol=1e-12)


def test_whitening_by_environment_follows_the_table():
    groups = [
        Group(name, (make_trajectory(make_turn([make_call([1], ids)])).replace(task=f"{name}#0"),))
        for name, ids in (("kuhn", [1, 2]), ("ttt", [3, 4, 5]), ("nim", [6]))
    ]
    white = WhitenBy()(make_credit_inputs(groups), np.array([1.0, 3.0, 100.0, 200.0, 300.0, 9.0]))
    # (x - 2) / sqrt(2), (x - 200) / 100, and one alone.
    assert white == pytest.approx([-(0.5**0.5), 0.5**0.5, -1, 0, 1, 0], abs=1e-7)


def test_unique_values_are_counted_once():
    assert subtract_distinct_mean(np.array([1.0, 1, 2, 3]), np.zeros(4, int)).tolist() == [
        -1,
        -1,
        0,
        1,
    ]
    assert subtract_distinct_mean(np.array([1.0, 1, 2, 3]), np.array([0, 1, 0, 1])).tolist() == [
        -0.5,
        -1,
        0.5,
        1,
    ]
    assert subtract_distinct_mean(
        np.array([0.1 + 0.2, 0.3, 1.3]), np.zeros(3, int)
    ) == pytest.approx([-0.5, -0.5, 0.5], abs=1e-9)
    values = np.array([1.0, 3, 5, 5])
    assert subtract_distinct_mean(values, np.array([0, 0, 1, 1])).tolist() == [-1, 1, 0, 0]
    assert subtract_distinct_mean(values, np.zeros(4, int)).tolist() == [-2, 0, 2, 2]


@given(values=st.lists(st.integers(-3, 3), max_size=9), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_centering_distinct_values_matches_a_loop(values: list[int], seed: int):
    key = np.random.default_rng(seed).integers(0, 2, len(values))
    expected = []
    for value, k in zip(values, key):
        distinct = {v for v, other in zip(values, key) if other == k}
        expected.append(value - sum(distinct) / len(distinct))
    assert subtract_distinct_mean(np.array(values, float), key) == pytest.approx(
        expected, abs=1e-12
    )


def test_entropy_scales_uncertain_tokens():
    inputs = dataclasses.replace(of_tokens(3), token_entropy=np.array([1.0, 2.0, 3.0]))
    assert ScaleByEntropy(0.2)(inputs, np.array([1.0, 1.0, -2.0])) == pytest.approx(
        [0.8, 1.0, -2.4], abs=1e-6
    )
    entropy = np.array([1.0, 2.0, 5.0])
    wide = dataclasses.replace(of_tokens(3), token_entropy=entropy)
    assert ScaleByEntropy(0.5)(wide, np.ones(3)) == pytest.approx(
        1 + 0.5 * (entropy - entropy.mean()) / entropy.std(ddof=1), abs=1e-6
    )
    constant = dataclasses.replace(of_tokens(3), token_entropy=np.full(3, 0.7))
    assert ScaleByEntropy()(constant, np.array([1.0, 1.0, -2.0])).tolist() == [1.0, 1.0, -2.0]
    with pytest.raises(UserError, match="entropy is not known"):
        ScaleByEntropy()(of_tokens(3), np.ones(3))


def branched(reward: tuple[float, float, float]) -> list[Group]:
    """Two branches that share their first call, and an independent member whose first call has the
    same tokens.
    """
    root = make_call([1, 2], [3, 4])
    alike = make_call([1, 2], [3, 4])

    def member(first: object, word: int, r: float):
        return make_trajectory(
            make_turn([first]),  # type: ignore[list-item]
            make_turn([make_call([1, 2, 3, 4, 9], [word])], r),
        )

    return [
        Group(
            "a",
            (member(root, 5, reward[0]), member(root, 6, reward[1]), member(alike, 7, reward[2])),
        )
    ]


def test_branches_share_the_mean_of_their_advantages():
    inputs = make_credit_inputs(branched((1.0, 0.0, 5.0)))
    soft = np.array([1.0, 1, 1, -1, -1, -1, 4, 4, 4])
    assert PrefixMean(shared_call_key)(inputs, soft).tolist() == [0, 0, 1, 0, 0, -1, 4, 4, 4]
    assert PrefixMean(shared_prefix_key)(inputs, soft) == pytest.approx(
        [4 / 3, 4 / 3, 1, 4 / 3, 4 / 3, -1, 4 / 3, 4 / 3, 4], abs=1e-12
    )
    two = make_credit_inputs(branched((1.0, 0.0, 5.0)) * 2)
    assert (
        len(set(shared_prefix_key(two).tolist())) == 2 * 5
    )  # equal tokens of another group are not shared
    assert PrefixMean()(make_credit_inputs([]), np.zeros(0)).shape == (0,)


def test_a_branch_within_a_call_is_found_by_its_prefix():
    first, second = make_call([1], [3, 4, 5]), make_call([1], [3, 4, 6])
    inputs = make_credit_inputs(
        [Group("a", (make_trajectory(make_turn([first])), make_trajectory(make_turn([second]))))]
    )
    assert shared_prefix_key(inputs).tolist() == [0, 1, 2, 0, 1, 3]
    # a forced token is not trained, but it is part of the prefix
    forced = dataclasses.replace(second, sampling=dataclasses.replace(second.sampling, forced=(3,)))
    inputs = make_credit_inputs(
        [Group("a", (make_trajectory(make_turn([first])), make_trajectory(make_turn([forced]))))]
    )
    assert shared_prefix_key(inputs).tolist() == [0, 1, 2, 1, 3]


@given(rewards=st.tuples(*[st.floats(-5, 5)] * 3))
@settings(max_examples=60, deadline=None)
def test_hard_attribution_is_the_mean_of_soft_and_sums_to_the_same(rewards: tuple):
    inputs = make_credit_inputs(branched(rewards))
    soft = group_normalized(inputs)
    hard = PrefixMean()(inputs, soft)
    assert hard.sum() == pytest.approx(soft.sum(), abs=1e-9)
    # At ratio 1 a token's gradient is -A times the gradient of its log-prob, so over branches that
    # share the token only the sum of A matters.
    same = shared_call_key(inputs)
    assert np.bincount(same, hard) == pytest.approx(np.bincount(same, soft), abs=1e-9)


@given(shapes=batch_shapes)
@settings(max_examples=30, deadline=None)
def test_without_shared_tokens_nothing_changes(shapes: list):
    inputs = make_credit_inputs(random_groups(shapes))
    advantage = np.random.default_rng(0).normal(size=len(inputs.token_sequence))
    assert PrefixMean()(inputs, advantage).tolist() == advantage.tolist()
