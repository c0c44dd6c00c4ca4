"""Pooled indices are those of one process with all groups."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hand_made import batch_shapes, grown_groups, make_call, make_trajectory, make_turn, told
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.hosts import Hosts
from agentrl_jax.pooled import Pool, _merge, _packed, _unpacked, pooled
from agentrl_jax.rows import Evidence, Indices, collate, evidence_of
from agentrl_jax.trajectories import Group


def assert_equal(a: Indices, b: Indices) -> None:
    for field in dataclasses.fields(Indices):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def over_the_wire(own: list[Any], places: list[list[int]]) -> list[Pool]:
    """The pool as each process sees it, after the parts of all were sent to it."""
    parts = [_unpacked(_packed(x, where)) for x, where in zip(own, places)]
    return [_merge(parts, p, x) for p, x in enumerate(own)]


def dealt(groups: list[Group], count: int) -> list[Pool]:
    own = [collate(groups[p::count]).indices for p in range(count)]
    return over_the_wire(own, [list(range(p, len(groups), count)) for p in range(count)])


@settings(max_examples=100, deadline=None)
@given(batch_shapes, st.data())
def test_evidence_is_pooled_as_one_process_would_have_it(shapes, data):
    groups = told(grown_groups(shapes), answer=lambda turn, place: {"place": place, "reward": turn.reward})
    count = data.draw(st.integers(1, 4))
    owner = data.draw(st.lists(st.integers(0, count - 1), min_size=len(groups), max_size=len(groups)))
    places = [[i for i, p in enumerate(owner) if p == process] for process in range(count)]
    shares = [[groups[i] for i in share] for share in places]
    whole = invented(groups)
    assert whole.token_logp is not None
    group = whole.trajectory_group[whole.token_trajectory]
    own = [invented(share, whole.token_logp[np.isin(group, where)]) for share, where in zip(shares, places)]
    for p, pool in enumerate(over_the_wire(own, places)):
        assert_equal(pool.indices, whole)
        np.testing.assert_array_equal(pool.indices.token_logp, whole.token_logp)
        np.testing.assert_array_equal(pool.indices.token_sampler_logp, whole.token_sampler_logp)
        assert pool.indices.token_ref_logp is None
        assert [turn.info for turn in pool.indices.turns] == [turn.info for turn in whole.turns]
        assert [t.task for t in pool.indices.trajectories] == [t.task for t in whole.trajectories]
        assert [[call.action.tolist() for call in t.calls] for t in pool.indices.trajectories] == [
            [call.action.tolist() for call in t.calls] for t in whole.trajectories
        ]
        np.testing.assert_array_equal(pool.indices.token_logp[pool.mine], own[p].token_logp)
        first, last = sorted(data.draw(st.tuples(st.integers(0, len(groups)), st.integers(0, len(groups)))))
        part, where = pool.part(np.arange(first, last))
        assert_equal(part, invented(groups[first:last]))
        np.testing.assert_array_equal(part.token_logp, whole.token_logp[where])
        assert len(part.turns) == len(part.turn_reward) and len(part.trajectories) == len(part.trajectory_group)


def invented(groups: list[Group], logp: np.ndarray | None = None) -> Evidence:
    found = evidence_of(groups, collate(groups))
    return dataclasses.replace(found, token_logp=np.random.default_rng(0).normal(size=len(found.token_row)) if logp is None else logp)


@settings(max_examples=150, deadline=None)
@given(batch_shapes, st.integers(1, 5))
def test_groups_dealt_to_any_number_of_processes_are_pooled_as_one_would_have_them(shapes, count):
    groups = grown_groups(shapes)
    whole = collate(groups)
    for p, pool in enumerate(dealt(groups, count)):
        assert_equal(pool.indices, whole.indices)
        assert pool.groups == len(groups) and pool.own.tolist() == list(range(p, len(groups), count))
        own = collate(groups[p::count])
        np.testing.assert_array_equal(pool.indices.token_position[pool.mine], own.indices.token_position)
        tokens = whole.tokens("tokens")[pool.mine]
        np.testing.assert_array_equal(tokens, own.tokens("tokens"))


@settings(max_examples=100, deadline=None)
@given(batch_shapes, st.data())
def test_a_part_has_the_indices_of_its_groups_alone(shapes, data):
    groups = grown_groups(shapes)
    first = data.draw(st.integers(0, len(groups)))
    last = data.draw(st.integers(first, len(groups)))
    indices = collate(groups).indices
    part, where = pooled(Hosts(), indices, len(groups)).part(np.arange(first, last))
    assert_equal(part, collate(groups[first:last]).indices)
    np.testing.assert_array_equal(part.token_position, indices.token_position[where])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_rows_of_agents_that_speak_in_turn_are_pooled_too(count: int):
    def told_apart(group: int) -> Group:
        calls = [make_call([group], [1]), make_call([9], [2]), make_call([group, 1, 5], [3]), make_call([9, 2], [4])]
        return Group("a", (make_trajectory(*(make_turn([call]) for call in calls)),) * 2)

    groups = [told_apart(group) for group in range(4)]
    whole = collate(groups).indices
    assert whole.token_row[:8].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    for pool in dealt(groups, count):
        assert_equal(pool.indices, whole)
        assert_equal(pool.part(np.arange(1, 3))[0], collate(groups[1:3]).indices)


def test_a_call_costs_a_few_bytes_however_long_it_is():
    short, long = (len(_packed(collate(grown_groups([[[(3, n, False, 1.0)] * 20] * 8])).indices, [0])) for n in (2, 200))
    assert long < short * 1.2


@pytest.mark.parametrize("count", [2, 4])
def test_processes_without_a_group_have_an_empty_share(count: int):
    groups = grown_groups([[[(2, 3, False, 1.0)]]])
    first, *others = dealt(groups, count)
    assert first.mine.all() and first.mine.size == 3
    assert all(pool.mine.size == 3 and not pool.mine.any() and not len(pool.own) for pool in others)
