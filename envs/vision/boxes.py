"""Boxes and points of an image, as agents write them, and the measures of boxes."""

import json
import math
from collections.abc import Sequence

Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels
Point = tuple[float, float]
MAX_ASPECT = 150.0  # of the sides of a box, MGPO's limit


def _checked_numbers(values: object, count: int, form: str) -> list[float]:
    """So many finite numbers. Raises ValueError where they are something else."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        raise ValueError(f"write {form}, not {str(values)[:60]!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"write {form} as numbers, not {str(value)[:40]!r}")
        if not abs(value) <= 1e6:  # false for NaN, too
            raise ValueError(f"{str(value)[:40]} is no coordinate of an image")
    return [float(value) for value in values]


def numbers_in(text: str) -> object:
    """The JSON value of a text that holds numbers. Raises ValueError where it is none."""
    try:
        return json.loads(text[:1000])
    except (ValueError, RecursionError):
        raise ValueError(f"{text[:40]!r} is no list of numbers") from None


def checked_box(values: object, width: int, height: int) -> Box:
    """A box within an image.

    Raises:
        ValueError: the values are not four finite numbers, the corners are in the wrong order, the
            box is outside of the image, or one side is 150 times the other.
    """
    x1, y1, x2, y2 = _checked_numbers(values, 4, "a box as [x1, y1, x2, y2]")
    text = f"the box [{x1:g}, {y1:g}, {x2:g}, {y2:g}]"
    if not (x1 < x2 and y1 < y2):
        raise ValueError(f"{text} is empty: x1 < x2 and y1 < y2 are needed")
    if min(x1, y1) < 0 or x2 > width or y2 > height:
        raise ValueError(f"{text} is not within the image of {width}x{height} pixels")
    if max(x2 - x1, y2 - y1) >= MAX_ASPECT * min(x2 - x1, y2 - y1):
        raise ValueError(f"{text} is too thin")
    return x1, y1, x2, y2


def checked_point(values: object, width: int, height: int) -> Point:
    """A point within an image.

    Raises:
        ValueError: the values are not two finite numbers, or the point is outside of the image.
    """
    x, y = _checked_numbers(values, 2, "a point as [x, y]")
    if not (0 <= x <= width and 0 <= y <= height):
        raise ValueError(
            f"the point [{x:g}, {y:g}] is not within the image of {width}x{height} pixels"
        )
    return x, y


def scaled(box: Box, x_scale: float, y_scale: float) -> Box:
    """The box in an image whose sides are multiplied by the scales."""
    return box[0] * x_scale, box[1] * y_scale, box[2] * x_scale, box[3] * y_scale


def clipped(box: Box, width: float, height: float) -> Box:
    """The part of a box within an image."""
    x1, x2 = (min(max(x, 0.0), float(width)) for x in box[::2])
    y1, y2 = (min(max(y, 0.0), float(height)) for y in box[1::2])
    return x1, y1, x2, y2


def square_around(point: Point, half: float, width: int, height: int) -> Box:
    """The square of side 2 `half` around a point, clipped to the image."""
    x, y = point
    return clipped((x - half, y - half, x + half, y + half), width, height)


def padded(box: Box, pixels: float, width: int, height: int) -> Box:
    """The box with so many pixels more on each side, clipped to the image."""
    x1, y1, x2, y2 = box
    return clipped((x1 - pixels, y1 - pixels, x2 + pixels, y2 + pixels), width, height)


def area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def intersection(first: Box, second: Box) -> float:
    """The area that two boxes share."""
    x1, y1 = max(first[0], second[0]), max(first[1], second[1])
    x2, y2 = min(first[2], second[2]), min(first[3], second[3])
    return max(0.0, x2 - x1) * max(0.0, y2 - y1)


def iou(first: Box, second: Box) -> float:
    """Area of the intersection over that of the union, 0 where both are empty."""
    shared = intersection(first, second)
    union = area(first) + area(second) - shared
    return shared / union if union else 0.0


def center(box: Box) -> Point:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def contains(box: Box, point: Point) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def distinct_points(points: Sequence[Point], least: float) -> int:
    """How many points are at least so far from every one that was counted before."""
    counted: list[Point] = []
    for point in points:
        if all(math.dist(point, other) >= least for other in counted):
            counted.append(point)
    return len(counted)


def around(several: Sequence[Box]) -> Box:
    """The smallest box that holds several, of which there is one at least."""
    x1, y1, x2, y2 = zip(*several)
    return min(x1), min(y1), max(x2), max(y2)


def rounded(box: Box) -> list[int]:
    """The corners as whole numbers, as agents write them."""
    return [round(value) for value in box]
