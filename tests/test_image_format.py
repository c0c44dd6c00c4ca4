"""Patches in rows, tokens and positions of images, against loops over every patch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.errors import UserError
from agentrl_jax.image_format import (
    ImageFormat,
    ImagePatches,
    ImageSpan,
    choose_bucket,
)

FORM = ImageFormat(patch_size=1, merge_size=2, feature_width=8, window=4, position_side=5)
MROPE = ImageFormat(
    patch_size=1, merge_size=2, feature_width=8, multi_axis_rope=True, positions_per_second=2.0
)
even = st.integers(1, 6).map(lambda n: 2 * n)
grids = st.lists(st.tuples(st.integers(1, 3), even, even), min_size=1, max_size=4)


def numbered_image(grid) -> ImagePatches:
    """An image whose patches hold their own number, from 1."""
    numbers = np.arange(1, int(np.prod(grid)) + 1, dtype=np.float32)
    return ImagePatches(np.repeat(numbers[:, None], 3, axis=1), grid)


def places(grid, merge: int) -> list[tuple[int, int, int]]:
    """(frame, row, column) of the patches in Hugging Face's order."""
    frames, rows, columns = grid
    return [
        (t, i * merge + k, j * merge + m)
        for t in range(frames)
        for i, j in itertools.product(range(rows // merge), range(columns // merge))
        for k, m in itertools.product(range(merge), range(merge))
    ]


@settings(deadline=None, max_examples=40)
@given(grids)
def test_each_patch_keeps_its_place_frame_and_window(sizes):
    total = sum(int(np.prod(grid)) for grid in sizes)
    packed = FORM.pack([[], [numbered_image(grid) for grid in sizes]], total + 4)
    patches, segments, windows = (
        np.asarray(x)[1] for x in (packed.patches, packed.segment_ids, packed.window_ids)
    )
    column, expected = 0, []
    for image, grid in enumerate(sizes):
        where = places(grid, 2)
        for _ in range(len(where)):
            t, i, j = where[int(patches[column, 0]) - 1]
            assert tuple(packed.coordinates[1, column]) == (i, j)
            expected.append(((image, t), (image, t, i // 4, j // 4)))
            column += 1
    for ids, which in ((segments, 0), (windows, 1)):
        expected_ids = [x[which] for x in expected]
        for a, b in itertools.pairwise(range(total)):
            assert (ids[a] == ids[b]) == (expected_ids[a] == expected_ids[b])
        assert len(set(ids[:total])) == len(set(expected_ids)) and (ids[:total] > 0).all()
    assert not segments[total:].any() and not windows[total:].any()
    assert not packed.patches[0].any() and not packed.segment_ids[0].any()


@settings(deadline=None, max_examples=40)
@given(grids)
def test_tokens_come_in_the_order_of_prompts(sizes):
    total = sum(int(np.prod(grid)) for grid in sizes)
    packed = FORM.pack([[numbered_image(grid) for grid in sizes]], total)
    tokens = packed.patches[0].reshape(total // 4, 4, -1)[packed.token_order[0]]
    want = np.concatenate([numbered_image(grid).patches for grid in sizes])
    np.testing.assert_array_equal(tokens.reshape(total, -1), want)


@settings(deadline=None, max_examples=30)
@given(even, even)
def test_the_table_of_positions_is_interpolated_between_the_corners(rows, columns):
    packed = FORM.pack([[numbered_image((1, rows, columns))]], rows * columns)
    table = np.add.outer(10.0 * np.arange(5), np.arange(5)).reshape(-1)  # linear in both axes
    assert packed.position_indices is not None and packed.position_weights is not None
    got = (table[packed.position_indices[0]] * packed.position_weights[0]).sum(-1)
    i, j = packed.coordinates[0].T
    want = 10 * i * 4 / (rows - 1) + j * 4 / (columns - 1)
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_positions_of_a_worked_example():
    spans = [ImageSpan(2, (1, 4, 6)), ImageSpan(10, (2, 2, 4), 0.75)]
    layout = MROPE.layout(16, spans)
    #  text  image of 2 x 3 tokens   text   video of 2 frames of 1 x 2   text
    t = [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 7, 8, 8, 9, 10]
    i = [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 7, 7, 7, 9, 10]
    j = [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10]
    np.testing.assert_array_equal(layout.rope_positions, [t, i, j])
    assert layout.rope_delta == 11 - 16 and layout.visible_until is None


def test_a_longer_sequence_continues_at_the_delta():
    spans = [ImageSpan(1, (1, 6, 2)), ImageSpan(5, (1, 2, 8))]
    short, long = (MROPE.layout(length, spans) for length in (10, 14))
    assert short.rope_positions is not None and long.rope_positions is not None
    np.testing.assert_array_equal(long.rope_positions[:, :10], short.rope_positions)
    assert (long.rope_positions[:, 10:] == np.arange(10, 14) + short.rope_delta).all()
    assert long.rope_delta == short.rope_delta


def test_tokens_of_an_image_see_to_its_end():
    form = ImageFormat(patch_size=1, merge_size=2, feature_width=8, bidirectional=True)
    layout = form.layout(8, [ImageSpan(1, (1, 2, 4)), ImageSpan(4, (1, 4, 2))])
    np.testing.assert_array_equal(layout.visible_until, [0, 2, 2, 3, 5, 5, 6, 7])
    assert layout.rope_positions is None and layout.rope_delta == 0


def test_what_does_not_fit_is_refused():
    image, fixed = numbered_image((1, 4, 4)), ImageFormat(1, 2, 8, fixed_side=4)
    with pytest.raises(UserError, match="a row of 16 patches has no room for 32"):
        FORM.pack([[image, image]], 16)
    with pytest.raises(UserError, match="a frame of 4 x 4 patches is larger than the 15"):
        FORM.pack([[image]], 16, max_frame=15)
    with pytest.raises(UserError, match="a multiple of 4, not 18"):
        FORM.pack([[image]], 18)
    with pytest.raises(UserError, match=r"3 x 4 patches .* resize it to a multiple of 2 pixels"):
        FORM.count_tokens((1, 3, 4))
    with pytest.raises(UserError, match="0 x 4 patches"):
        FORM.count_tokens((1, 0, 4))
    with pytest.raises(UserError, match="takes images of 4 x 4 patches, not 4 x 6"):
        fixed.count_tokens((1, 4, 6))
    with pytest.raises(UserError, match=r"has patches of shape \(16, 3\), not \(15, 3\)"):
        FORM.check(ImagePatches(image.patches[:15], image.grid))
    with pytest.raises(UserError, match="NaN or infinite"):
        FORM.check(ImagePatches(image.patches * np.float32("nan"), image.grid))
    for spans in ([ImageSpan(0, (1, 4, 4)), ImageSpan(3, (1, 2, 2))], [ImageSpan(8, (1, 4, 4))]):
        with pytest.raises(UserError, match="overlaps another one or leaves the 10 tokens"):
            MROPE.layout(10, spans)
    assert [choose_bucket(n, (64, 16)) for n in (0, 16, 17)] == [16, 16, 64]
    with pytest.raises(UserError, match="65 patches do not fit the longest row of 64"):
        choose_bucket(65, (64, 16))
