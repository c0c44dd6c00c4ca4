"""Views, boxes, PNG files and splits of the image environments, against arrays and loops."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.grounding import GROUNDING_TASKS
from agentrl_jax.envs.vision.image_operations import TURNS, apply, inverse
from agentrl_jax.envs.vision.images import (
    blank,
    paint,
    resized,
    shape_mask,
    text_mask,
)
from agentrl_jax.envs.vision.pages import PAGE_QUESTIONS
from agentrl_jax.envs.vision.rooms import ROOM_TASKS
from agentrl_jax.envs.vision.scenes import SCENE_QUESTIONS
from agentrl_jax.envs.vision.splits import SPLITS, Generators, split_overlap
from agentrl_jax.envs.vision.transform_tasks import TRANSFORM_QUESTIONS
from agentrl_jax.envs.vision.videos import VIDEO_QUESTIONS
from agentrl_jax.envs.vision.views import View, full_view
from agentrl_jax.errors import UserError

ALL_GENERATORS = (
    SCENE_QUESTIONS, VIDEO_QUESTIONS, PAGE_QUESTIONS, ROOM_TASKS, TRANSFORM_QUESTIONS,
    GROUNDING_TASKS,
)  # fmt: skip
NUMPY = {
    "rotate_90": lambda a: np.rot90(a, 1),
    "rotate_180": lambda a: np.rot90(a, 2),
    "rotate_270": lambda a: np.rot90(a, 3),
    "flip_horizontal": np.fliplr,
    "flip_vertical": np.flipud,
}
SOURCE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
turns = st.lists(st.sampled_from(TURNS), max_size=6)


@settings(max_examples=60, deadline=None)
@given(turns)
def test_a_view_is_what_numpy_makes_of_the_image(names):
    view, image = full_view(30, 20), SOURCE
    for name in names:
        view, image = apply(view, name), NUMPY[name](image)
    np.testing.assert_array_equal(view.pixels(SOURCE, 30), image)
    assert view.size == image.shape[1::-1]


@settings(max_examples=60, deadline=None)
@given(turns, st.data())
def test_crops_of_turned_crops_are_cut_from_the_source(names, data):
    view, image = full_view(30, 20), SOURCE
    for name in [*names, "rotate_90"]:
        width, height = (int(side) for side in view.size)
        x1, y1 = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        x2, y2 = data.draw(st.integers(x1 + 1, width)), data.draw(st.integers(y1 + 1, height))
        view, image = view.crop((x1, y1, x2, y2)), image[y1:y2, x1:x2]
        view, image = apply(view, name), NUMPY[name](image)
    np.testing.assert_array_equal(view.pixels(SOURCE, max(image.shape[:2])), image)


@settings(max_examples=60, deadline=None)
@given(turns, st.integers(10, 90))
def test_shown_boxes_and_boxes_of_the_source_are_inverse(names, longest):
    view = View((3.0, 2.0, 27.0, 19.0))
    for name in names:
        view = apply(view, name)
    box = (5.0, 4.0, 16.0, 11.0)
    again = view.source_box(view.from_shown(view.shown_box(box, longest), longest))
    np.testing.assert_allclose(again, box, atol=1e-9)


@pytest.mark.parametrize("name", TURNS)
def test_the_inverse_of_a_turn_rights_the_image(name):
    assert apply(apply(full_view(30, 20), name), inverse(name)).is_upright


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2, 3], "write a box"),
        ("1234", "write a box"),
        (None, "write a box"),
        ({"x1": 1}, "write a box"),
        ([1, 2, "3", 4], "as numbers"),
        ([1, 2, True, 4], "as numbers"),
        ([[1], 2, 3, 4], "as numbers"),
        ([float("nan"), 2, 3, 4], "no coordinate"),
        ([0, 0, float("inf"), 4], "no coordinate"),
        ([0, 0, 10**400, 4], "no coordinate"),
        ([5, 5, 5, 9], "is empty"),
        ([8, 8, 2, 2], "is empty"),
        ([-1, 0, 5, 5], "not within the image of 40x30"),
        ([0, 0, 41, 5], "not within"),
        ([100, 100, 200, 200], "not within"),
        ([0, 0, 40, 0.1], "too thin"),
    ],
)
def test_hostile_boxes_get_a_clear_message(values, message):
    with pytest.raises(ValueError, match=message):
        boxes.checked_box(values, 40, 30)


@pytest.mark.parametrize("values", [[1], [1, 2, 3], ["1", 2], [-1, 2], [41, 2], [float("nan"), 0]])
def test_hostile_points_get_a_clear_message(values):
    with pytest.raises(ValueError, match=r"point|coordinate"):
        boxes.checked_point(values, 40, 30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=8, max_size=8))
def test_overlap_counts_pixels(values):
    pairs = [sorted(pair) for pair in zip(values[::2], values[1::2])]
    (ax, ay, bx, by), grids = pairs, []
    for (x1, x2), (y1, y2) in ((ax, ay), (bx, by)):
        grid = np.zeros((10, 10), bool)
        grid[y1:y2, x1:x2] = True
        grids.append(grid)
    first, second = (ax[0], ay[0], ax[1], ay[1]), (bx[0], by[0], bx[1], by[1])
    union = (grids[0] | grids[1]).sum()
    expected = (grids[0] & grids[1]).sum() / union if union else 0.0
    assert boxes.iou(first, second) == pytest.approx(expected)


def test_points_that_are_near_count_once():
    assert boxes.distinct_points([(0, 0), (9, 0), (10, 0), (10, 9)], 10) == 2
    assert boxes.distinct_points([], 10) == 0


def test_shapes_are_cut_at_the_border():
    image = blank(10, 10)
    for x, y in ((-3, -3), (8, 8), (50, 0), (0, 50), (-50, -50), (3, 3)):
        paint(image, x, y, shape_mask("square", 4), (1, 2, 3))
    expected = np.zeros((10, 10), bool)
    expected[0, 0] = True
    expected[8:, 8:] = True
    expected[3:7, 3:7] = True
    np.testing.assert_array_equal((image == (1, 2, 3)).all(-1), expected)


def test_a_shrunk_image_has_the_means_of_its_pixels():
    means = SOURCE.reshape(10, 2, 15, 2, 3).mean((1, 3))
    assert abs(resized(SOURCE, 15, 10) - means).max() <= 1  # each axis is rounded
    np.testing.assert_array_equal(resized(SOURCE, 60, 40), SOURCE.repeat(2, 0).repeat(2, 1))


def test_codes_differ_in_the_font():
    masks = [text_mask(letter).tobytes() for letter in "ACEFHKLMNPRTUXY3456789"]
    assert len(set(masks)) == len(masks)


@pytest.mark.parametrize("generators", ALL_GENERATORS)
def test_splits_share_no_seed_and_no_phrasing(generators):
    """The test split has the same generators; the held-out one has others."""
    trained = len(generators.names("train"))
    overlap = split_overlap(generators, "test", 3000)
    assert overlap == {"generator": trained, "phrasing": 0, "seed": 0}
    assert set(split_overlap(generators, "held_out", 3000).values()) == {0}
    assert trained >= 3 and len(generators.names("held_out")) >= 2
    assert json.dumps(overlap)


def test_overlap_is_found():
    same = Generators({"a": ("x", "x"), "b": ("", "y")}, held_out=("b",))
    assert split_overlap(same, "train", 100) == {"generator": 1, "phrasing": 1, "seed": 100}
    assert split_overlap(same, "test", 100)["phrasing"] == 1
    with pytest.raises(UserError, match=", ".join(SPLITS)):
        same.names("validation")
