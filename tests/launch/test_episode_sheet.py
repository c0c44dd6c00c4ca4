"""Pictures of episodes: the boxes and points that actions name, on the images that they name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import image_part
from agentrl_jax.launch.episode_sheet import (
    COLUMN,
    GAP,
    GREEN,
    MARK,
    ROW,
    SIDE,
    TOP,
    Mark,
    marks_of,
    save_sheet,
    sheet,
)
from agentrl_jax.messages import Message, TextPart, ToolCall, assistant, user
from agentrl_jax.trajectories import Trajectory, Turn


def calling(text: str = "", **arguments: Any) -> Message:
    return Message("assistant", text, (ToolCall("0", "look", json.dumps(arguments)),))


@pytest.mark.parametrize(
    ("action", "marks"),
    [
        (calling(box=[1, 2, 3, 4], image=2), [Mark(2, (1, 2, 3, 4))]),
        (calling("I see (5, 6).", coordinate=[5, 6]), [Mark(0, (5, 6))]),
        (calling(start_point=[1, 2], end_point=[3, 4]), [Mark(0, (1, 2)), Mark(0, (3, 4))]),
        (
            assistant('```json\n[{"bbox_2d": [1, 2.5, 3, 4], "label": "a"}]\n```'),
            [Mark(0, (1, 2.5, 3, 4))],
        ),
        (assistant("<think>(7, 8)</think><bbox>[1, 2, 3, 4]</bbox>"),
         [Mark(-1, (1, 2, 3, 4)), Mark(-1, (7, 8))]),
        (calling(box=[1, 2, 3], point=["a", 1], degrees=90), []),
        (calling(box=[1, 2, float("nan"), 4], point=[None, 2]), []),
        (assistant("<bbox>[1, 2, 3]</bbox> (x, 4)"), []),
        (Message("assistant", "", (ToolCall("0", "look", "[1"),)), []),
        (calling(box=[1, 2, 3, 4], image="first"), [Mark(0, (1, 2, 3, 4))]),
    ],
)  # fmt: skip
def test_what_actions_name(action: Message, marks: list[Mark]):
    assert marks_of(action) == marks


def white(height: int, width: int) -> Message:
    pixels = np.full((height, width, 3), 255, np.uint8)
    return Message("user", (image_part(pixels), TextPart("Where is it?")))


def episode(*actions: Message) -> Trajectory:
    """A success: a first image of 84 x 42 pixels, then one of 21 x 42 after each action."""
    turns = tuple(Turn((), action, (white(21, 42),), 1.0) for action in actions)
    return Trajectory((white(84, 42),), turns, success=True)


def marked(row: np.ndarray) -> set[tuple[int, int]]:
    """The (x, y) of the pixels that are marked, from the first image's corner."""
    ys, xs = np.nonzero((row == MARK).all(axis=-1))
    return {(int(x) - GAP, int(y) - TOP) for x, y in zip(xs, ys)}


def test_a_box_is_drawn_where_it_is_in_the_image_that_is_named():
    row = sheet(episode(calling(box=[5, 10, 15, 30]), calling(box=[4, 2, 8, 6], image=1)), 2)
    assert row.shape == (ROW, 2 * COLUMN, 3)
    pixels = marked(row)
    # 84 pixels are shown as 168, so x 10 to 30 and y 20 to 60; of 42 as 168 in the second column
    first = {(x, y) for x, y in pixels if x < COLUMN - GAP}
    second = {(x - COLUMN, y) for x, y in pixels - first}
    for pixels, (x1, y1, x2, y2) in ((first, (10, 20, 30, 60)), (second, (16, 8, 32, 24))):
        outline = {(x, y) for x in range(x1, x2 + 1) for y in (y1, y2)}
        assert pixels == outline | {(x, y) for x in (x1, x2) for y in range(y1, y2 + 1)}


def test_marks_outside_of_an_image_are_cut():
    wild = calling(box=[-1e9, -5, 1e9, 1e12], point=[-40, 3])
    assert all(0 <= x < SIDE and 0 <= y < SIDE for x, y in marked(sheet(episode(wild), 1)))
    assert marked(sheet(episode(calling(box=[1, 2, 3, 4], image=7)), 1)) == set()


def test_a_sheet_has_a_row_for_each_episode_of_any_kind(tmp_path: Path):
    text = Trajectory((user("Hi\N{GRINNING FACE}"),), (Turn((), assistant("x" * 999), (), 0.0),))
    path = tmp_path / "sheet.png"
    size = save_sheet([episode(calling(point=[5, 5]), calling()), text], path)
    assert size == path.stat().st_size
    with Image.open(path) as picture:
        assert picture.size == (2 * COLUMN, 2 * ROW)
        first_pixel = np.asarray(picture.convert("RGB"))[0, 0]
    assert np.abs(first_pixel.astype(int) - GREEN).max() < 8
    with pytest.raises(UserError, match="cannot be written"):
        save_sheet([text], tmp_path / "missing" / "sheet.png")
