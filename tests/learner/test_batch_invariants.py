"""Invariants of batches hold for any groups and packing, and for no other number in any field."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    random_trajectory,
)

from agentrl_jax.learner.batch_invariants import packed_rows, trained_replies, trained_tokens
from agentrl_jax.learner.packing import Batch, PackedLayout, pack, pack_branches, split_bins
from agentrl_jax.learner.sequences import CollatedSequences, TrainingSequence, collate
from agentrl_jax.trajectories import Call, Group

FORCED = 2
SHAPE = [(5, 4, False, 1.0), (2, 3, False, 0.0)]


def forced_call() -> Call:
    """A call whose first two tokens were given."""
    call = make_call([5, 6, 7], [1, 2, 3, 4], logp=[0, 0, -1, -2], version=[3] * 4)
    sampling = dataclasses.replace(call.sampling, forced=(1, 2))
    return dataclasses.replace(call, sampling=sampling)


def pieces_of(layout: PackedLayout, bins: int) -> list[Batch]:
    return split_bins(
        layout.to_batch(np.zeros((layout.num_bins, layout.bin_length), np.float32)), bins
    )


@given(shapes=batch_shapes, seed=st.integers(0, 999), bins=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_they_hold_for_any_groups(shapes: list, seed: int, bins: int):
    groups = [
        *random_groups(shapes, seed),
        Group("f", (make_trajectory(make_turn([forced_call()])),)),
    ]
    collated = collate(groups)
    assert trained_tokens(groups, collated).holds
    for layout in (
        pack(collated.sequences, 64, bins),
        pack_branches(collated.sequences, 3, 64, 2, bins),
    ):
        assert packed_rows(layout, pieces_of(layout, bins)).holds


def branches() -> list[TrainingSequence]:
    """Sequences of which two share a prompt."""
    rng = np.random.default_rng(0)
    trajectory = random_trajectory(SHAPE, rng)
    first = trajectory.turns[0].calls[0]
    other = make_call(first.prompt, rng.integers(0, 24, 4), version=[1] * 4)
    return collate(
        [
            Group("a", (trajectory, make_trajectory(make_turn([other])))),
            Group("b", (random_trajectory(SHAPE, rng),)),
        ]
    ).sequences


BRANCHES = branches()
LAYOUTS = {
    "packed": pack(BRANCHES, 40, 2),
    "with a shared prompt": pack_branches(BRANCHES, 3, 20, 2, 2),
}
FIELDS = (
    "tokens", "positions", "segment_ids", "turns", "action_mask", "sampler_logp", "version",
    "temperature",
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@pytest.mark.parametrize("name", FIELDS)
def test_another_number_anywhere_in_the_packed_tokens_breaks_the_invariant(
    layout: PackedLayout, name: str
):
    is_token = [np.asarray(piece.segment_ids) > 0 for piece in pieces_of(layout, 1)]
    # Of the shared prompt only the ids are compared: the other fields are those of no action.
    start = layout.prefix_length if name not in ("tokens", "segment_ids") else 0
    for i, mask in enumerate(is_token):
        for row, column in np.argwhere(mask[:, start:]):
            pieces = pieces_of(layout, 1)
            values = getattr(pieces[i], name)
            at = row, column + start
            values[at] = (
                (0 if name == "segment_ids" else not values[at])
                if (name in ("segment_ids", "action_mask"))
                else values[at] + 1
            )
            assert not packed_rows(layout, pieces).holds


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_a_row_in_the_place_of_an_empty_one_breaks_the_invariant(layout: PackedLayout):
    layout = dataclasses.replace(layout, num_bins=layout.num_bins + 1)
    *pieces, _ = pieces_of(layout, 1)
    assert packed_rows(layout, pieces_of(layout, 1)).holds
    assert not packed_rows(layout, [*pieces, pieces[0]]).holds


def replaced(collated: CollatedSequences, name: str, values: np.ndarray) -> CollatedSequences:
    """With another field in the first sequence."""
    first, *others = collated.sequences
    return dataclasses.replace(
        collated, sequences=[dataclasses.replace(first, **{name: values}), *others]
    )


@pytest.mark.parametrize("name", ["tokens", "sampler_logp", "version", "temperature"])
def test_another_number_of_any_trained_token_breaks_the_invariant(name: str):
    groups = [Group("f", (make_trajectory(make_turn([forced_call()])),)), *random_groups([[SHAPE]])]
    collated = collate(groups)
    (forced, *_), first = collated.sequences, 3 + FORCED
    for position in range(first, len(forced)):
        values = getattr(forced, name).copy()
        values[position] += 1
        assert not trained_tokens(groups, replaced(collated, name, values)).holds
    values = getattr(forced, name).copy()
    values[: first - 1] += 1  # of tokens that are not trained
    assert trained_tokens(groups, replaced(collated, name, values)).holds


def test_the_sentence_has_the_numbers():
    groups = random_groups([[SHAPE]])
    collated = collate(groups)
    x = collated.sequences[0]
    check = trained_tokens(groups, replaced(collated, "action_mask", np.roll(x.action_mask, 1)))
    assert check.detail == "of 7 recorded tokens a fraction of 0 is trained in its place"
    check = trained_tokens(groups, replaced(collated, "version", x.version - 1))
    assert check.detail.endswith("and the sequences' version are not the recorded ones")


def test_replies_are_trained_token_by_token():
    first, second = make_call([1, 2], [3, 4]), make_call([1, 2], [5])
    sequences = collate(
        [Group("", tuple(make_trajectory(make_turn([call])) for call in (first, second)))]
    ).sequences
    replies: Sequence[Sequence[Call]] = ([first], [second])
    assert trained_replies(replies, sequences).holds
    assert not trained_replies(replies, sequences[::-1]).holds
