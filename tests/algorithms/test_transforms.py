"""Transforms of advantages: tables, and what branches share."""

import dataclasses

import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups, make_call, make_trajectory, make_turn
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.keying import group_of_turn
from agentrl_jax.algorithms.transforms import (
    Clip,
    EntropyScaled,
    PrefixMean,
    Scaled,
    UniqueCentred,
    equal_prefixes,
    shared_calls,
    unique_centred,
    whiten,
)
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence
from agentrl_jax.trajectories import Group


def of_tokens(n: int) -> Evidence:
    return evidence_of([Group("a", (make_trajectory(make_turn([make_call([1], range(n))])),))])


def test_whitening_clipping_scaling():
    advantage = np.array([1.0, -2.0, 4.0])
    white = whiten(of_tokens(3), advantage)
    assert white.mean() == pytest.approx(0, abs=1e-12) and white.std(ddof=1) == pytest.approx(1, abs=1e-6)
    assert Clip(1.5)(of_tokens(3), advantage).tolist() == [1.0, -1.5, 1.5]
    assert Scaled(0.5)(of_tokens(3), advantage).tolist() == [0.5, -1.0, 2.0]
    for equal in ([0.1] * 3, [0.1], []):
        assert not whiten(of_tokens(len(equal)), np.array(equal)).any()


def test_unique_values_are_counted_once():
    assert unique_centred(np.array([1.0, 1, 2, 3]), np.zeros(4, int)).tolist() == [-1, -1, 0, 1]
    assert unique_centred(np.array([1.0, 1, 2, 3]), np.array([0, 1, 0, 1])).tolist() == [-0.5, -1, 0.5, 1]
    assert unique_centred(np.array([0.1 + 0.2, 0.3, 1.3]), np.zeros(3, int)) == pytest.approx([-0.5, -0.5, 0.5], abs=1e-9)
    evidence = evidence_of(grown_groups([[[(1, 2, False, 0.0)]], [[(1, 2, False, 0.0)]]]))
    assert UniqueCentred(group_of_turn)(evidence, np.array([1.0, 3, 5, 5])).tolist() == [-1, 1, 0, 0]
    assert UniqueCentred()(evidence, np.array([1.0, 3, 5, 5])).tolist() == [-2, 0, 2, 2]


@given(values=st.lists(st.integers(-3, 3), max_size=9), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_unique_centring_is_what_a_loop_gives(values: list[int], seed: int):
    key = np.random.default_rng(seed).integers(0, 2, len(values))
    expected = []
    for value, k in zip(values, key):
        distinct = {v for v, other in zip(values, key) if other == k}
        expected.append(value - sum(distinct) / len(distinct))
    assert unique_centred(np.array(values, float), key) == pytest.approx(expected, abs=1e-12)


def test_entropy_scales_what_is_uncertain():
    evidence = dataclasses.replace(of_tokens(3), token_entropy=np.array([1.0, 2.0, 3.0]))
    assert EntropyScaled(0.2)(evidence, np.array([1.0, 1.0, -2.0])) == pytest.approx([0.8, 1.0, -2.4], abs=1e-6)
    constant = dataclasses.replace(of_tokens(3), token_entropy=np.full(3, 0.7))
    assert EntropyScaled()(constant, np.array([1.0, 1.0, -2.0])).tolist() == [1.0, 1.0, -2.0]
    with pytest.raises(UserError, match="entropy is not known"):
        EntropyScaled()(of_tokens(3), np.ones(3))


def branched(reward: tuple[float, float, float]) -> list[Group]:
    """Two branches that share their first call, and a member of its own that begins with the same words."""
    root = make_call([1, 2], [3, 4])
    alike = make_call([1, 2], [3, 4])

    def member(first: object, word: int, r: float):
        return make_trajectory(make_turn([first]), make_turn([make_call([1, 2, 3, 4, 9], [word])], r))  # type: ignore[list-item]

    return [Group("a", (member(root, 5, reward[0]), member(root, 6, reward[1]), member(alike, 7, reward[2])))]


def test_branches_share_the_mean_of_their_advantages():
    evidence = evidence_of(branched((1.0, 0.0, 5.0)))
    soft = np.array([1.0, 1, 1, -1, -1, -1, 4, 4, 4])
    assert PrefixMean(shared_calls)(evidence, soft).tolist() == [0, 0, 1, 0, 0, -1, 4, 4, 4]
    assert PrefixMean(equal_prefixes)(evidence, soft) == pytest.approx([4 / 3, 4 / 3, 1, 4 / 3, 4 / 3, -1, 4 / 3, 4 / 3, 4], abs=1e-12)
    two = evidence_of(branched((1.0, 0.0, 5.0)) * 2)
    assert len(set(equal_prefixes(two).tolist())) == 2 * 5  # another group's words are other tokens
    assert PrefixMean()(evidence_of([]), np.zeros(0)).shape == (0,)


def test_a_branch_within_a_call_is_found_by_its_prefix():
    first, second = make_call([1], [3, 4, 5]), make_call([1], [3, 4, 6])
    evidence = evidence_of([Group("a", (make_trajectory(make_turn([first])), make_trajectory(make_turn([second]))))])
    assert equal_prefixes(evidence).tolist() == [0, 1, 2, 0, 1, 3]
    # what is forced is no token of the policy but stands in the prefix
    forced = dataclasses.replace(second, sampling=dataclasses.replace(second.sampling, forced=(3,)))
    evidence = evidence_of([Group("a", (make_trajectory(make_turn([first])), make_trajectory(make_turn([forced]))))])
    assert equal_prefixes(evidence).tolist() == [0, 1, 2, 1, 3]


@given(rewards=st.tuples(*[st.floats(-5, 5)] * 3))
@settings(max_examples=60, deadline=None)
def test_hard_attribution_is_the_mean_of_soft_and_sums_to_the_same(rewards: tuple):
    evidence = evidence_of(branched(rewards))
    soft = group_normalized(evidence)
    hard = PrefixMean()(evidence, soft)
    assert hard.sum() == pytest.approx(soft.sum(), abs=1e-9)
    # At ratio 1 a token's gradient is -A times its own: over branches that share it, the sum of A is all that matters.
    same = shared_calls(evidence)
    assert np.bincount(same, hard) == pytest.approx(np.bincount(same, soft), abs=1e-9)


@given(shapes=batch_shapes)
@settings(max_examples=30, deadline=None)
def test_where_nothing_is_shared_nothing_changes(shapes: list):
    evidence = evidence_of(grown_groups(shapes))
    advantage = np.random.default_rng(0).normal(size=len(evidence.token_row))
    assert PrefixMean()(evidence, advantage).tolist() == advantage.tolist()
