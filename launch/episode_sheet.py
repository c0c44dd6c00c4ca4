"""A picture of an episode: its images in a row, with the boxes and points that actions name."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.envs.vision.answers import points_in
from agentrl_jax.envs.vision.images import GLYPH_HEIGHT, GLYPH_WIDTH, Image, blank, fitted, write
from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import ImageReader, pillow
from agentrl_jax.images.videos import read_video
from agentrl_jax.messages import Message, VideoPart
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.trajectories import Trajectory

SIDE, LINES, GAP = 168, 7, 6  # pixels of an image, lines of text below it, pixels around it
COLUMN = SIDE + 2 * GAP
TOP = 2 * GAP + GLYPH_HEIGHT  # of the images of a row, below a line of the opening's text
ROW = TOP + SIDE + GAP + LINES * GLYPH_HEIGHT + GAP
GREEN, RED, MARK = (44, 160, 44), (214, 39, 40), (255, 0, 160)
POINT_HALF = 6  # half a side of the mark of a point
_BOX = re.compile(r'(?:"bbox_2d"\s*:|<bbox>)\s*\[([^\[\]]{3,80})\]')


@dataclass(frozen=True)
class Mark:
    """A box (four numbers) or a point (two) that an action names, in pixels of an image as shown.

    Args:
        image: its number in the episode, from 0; -1 is the last.
        numbers: x1, y1, x2, y2, or x, y.
    """

    image: int
    numbers: tuple[float, ...]


def marks_of(action: Message) -> list[Mark]:
    """The boxes and points of an action: arguments of its tool calls that are two or four numbers,
    on the image that they name; `"bbox_2d": [...]` of its text on the first image,
    <bbox>[...]</bbox> and points (x, y) on the last.
    """
    marks = list[Mark]()
    for call in action.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            continue
        if isinstance(arguments, Mapping):
            image = arguments.get("image", arguments.get("image_index", 0))
            index = image if isinstance(image, int) else 0
            values = map(_numbers, arguments.values())
            marks += [Mark(index, numbers) for numbers in values if len(numbers) in (2, 4)]
    for match in _BOX.finditer(action.text):
        numbers = _numbers(match[1].split(","))
        if len(numbers) == 4:
            marks.append(Mark(-1 if match[0].startswith("<") else 0, numbers))
    named = {mark.numbers for mark in marks}
    return marks + [Mark(-1, point) for point in points_in(action.text) if point not in named]


def _numbers(value: Any) -> tuple[float, ...]:
    """Finite numbers of a list; empty where it is none."""
    try:
        numbers = tuple(map(float, value)) if isinstance(value, list) else ()
    except (TypeError, ValueError):
        return ()
    return numbers if np.isfinite(numbers).all() else ()


def draw_mark(image: Image, mark: Mark, scale: float) -> None:
    """Draw the outline of a box, or a square with a center around a point, onto an image that is
    shown at `scale` times its size; what lies outside is cut.
    """
    x1, y1, *corner = (round(value * scale) for value in mark.numbers)
    if corner:
        x2, y2 = corner
    else:
        image[_inside(y1, y1 + 1), _inside(x1, x1 + 1)] = MARK
        x1, y1, x2, y2 = x1 - POINT_HALF, y1 - POINT_HALF, x1 + POINT_HALF, y1 + POINT_HALF
    rows, columns = _inside(y1, y2 + 1), _inside(x1, x2 + 1)
    for y in (y1, y2):
        image[_inside(y, y + 1), columns] = MARK
    for x in (x1, x2):
        image[rows, _inside(x, x + 1)] = MARK


def _inside(start: int, stop: int) -> slice:
    return slice(max(0, start), max(0, stop))


@dataclass(eq=False)
class _Cell:
    """An image of an episode, and the text below it."""

    image: Image
    scale: float
    text: str = ""


def _cells(trajectory: Trajectory) -> list[_Cell]:
    cells, images = list[_Cell](), list[_Cell]()
    messages = trajectory.opening
    for turn in trajectory.turns:
        new = [_cell(part) for part in _images(messages)]
        images += new
        cells += new or [_Cell(blank(1, 1), 1.0)]
        cells[-1].text = turn.action.full_text
        for mark in marks_of(turn.action):
            if -len(images) <= mark.image < len(images):
                cell = images[mark.image]
                draw_mark(cell.image, mark, cell.scale)
        messages = turn.observation
    return cells


def _images(messages: Sequence[Message]) -> Iterator[Image]:
    for message in messages:
        for part in message.images:
            if isinstance(part, VideoPart):
                yield from read_video(ImageReader(), part).frames
            else:
                yield ImageReader().pixels(part)


def _cell(pixels: Image) -> _Cell:
    image = np.array(fitted(pixels, SIDE))
    return _Cell(image, SIDE / max(pixels.shape[:2]))


def sheet(trajectory: Trajectory, columns: int) -> Image:
    """An episode as a row: its images with the marks of actions, and below each last image of a
    turn what was written next; above them the begin of the opening, under a line that is green for
    a success.
    """
    row = blank(columns * COLUMN, ROW)
    row[:3] = GREEN if trajectory.succeeded else RED
    opening = " ".join(message.text for message in trajectory.opening)
    _write_lines(row, GAP, GAP, opening, columns * COLUMN - 2 * GAP, 1)
    for i, cell in enumerate(_cells(trajectory)[:columns]):
        left = i * COLUMN + GAP
        height, width = cell.image.shape[:2]
        row[TOP : TOP + height, left : left + width] = cell.image
        _write_lines(row, left, TOP + SIDE + GAP, cell.text, SIDE, LINES)
    return row


def _write_lines(image: Image, x: int, y: int, text: str, width: int, count: int) -> None:
    """Write the first lines of a text that is wrapped at so many pixels."""
    # the bitmap font has the characters of Latin-1
    text = text.encode("latin-1", "replace").decode("latin-1")
    for i, line in enumerate(textwrap.wrap(text, width // GLYPH_WIDTH)[:count]):
        write(image, x, y + i * GLYPH_HEIGHT, line)


def save_sheet(trajectories: Sequence[Trajectory], path: Path, columns: int = 0) -> int:
    """Write a PNG with a row for each episode, atomically.

    Args:
        trajectories: at least one.
        path: of the file.
        columns: images of a row, of which later ones are left out; 0: those of the longest.

    Returns:
        The bytes of the file.

    Raises:
        UserError: the file cannot be written.
    """
    columns = columns or max(len(_cells(trajectory)) for trajectory in trajectories) or 1
    rows = np.concatenate([sheet(trajectory, columns) for trajectory in trajectories])
    picture = pillow().fromarray(rows).quantize(64)
    try:
        with atomic_write(path) as unfinished:
            picture.save(unfinished, "PNG", optimize=True)
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror})") from error
