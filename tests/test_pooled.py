"""Pooled indices are those of one process with all groups."""

import numpy as np
import pytest
from hand_made import batch_shapes, grown_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.hosts import Hosts
from agentrl_jax.pooled import Pool, _merge, _packed, _unpacked, pooled
from agentrl_jax.rows import Indices, collate
from agentrl_jax.trajectories import Group

FIELDS = ("token_row", "token_position", "token_turn", "turn_trajectory", "turn_reward", "turn_terminated", "trajectory_group")


def assert_equal(a: Indices, b: Indices) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def dealt(groups: list[Group], count: int) -> list[Pool]:
    """The pool as each process sees it, after their indices went over the wire."""
    own = [groups[p::count] for p in range(count)]
    parts = [_unpacked(_packed(collate(share).indices, len(share))) for share in own]
    order = Hosts().merged([[(p, g) for g in range(n)] for p, (_, n) in enumerate(parts)])
    return [_merge([part for part, _ in parts], order, p) for p in range(count)]


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


def test_a_call_costs_a_few_bytes_however_long_it_is():
    short, long = (len(_packed(collate(grown_groups([[[(3, n, False, 1.0)] * 20] * 8])).indices, 1)) for n in (2, 200))
    assert long < short * 1.2


@pytest.mark.parametrize("count", [2, 4])
def test_processes_without_a_group_have_an_empty_share(count: int):
    groups = grown_groups([[[(2, 3, False, 1.0)]]])
    first, *others = dealt(groups, count)
    assert first.mine.all() and first.mine.size == 3
    assert all(pool.mine.size == 3 and not pool.mine.any() and not len(pool.own) for pool in others)
