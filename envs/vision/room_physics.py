"""Judges of a layout by rules: collisions, wishes and bounds, and measurable terms of its looks."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
from scipy import ndimage

from agentrl_jax.envs.vision.rooms import HEIGHT, Position, Room, Wish

THIN = 0.05  # meters; things that are no higher collide with nothing
_TOUCH = 0.05  # of things that stand on each other
_CORNER, _WALL = 0.3, 0.15  # distances that count as in a corner and at a wall
_PERSON = 0.6  # width of a walkway
_CELL = 0.1  # of the grid on which walkways are found
Layout = Sequence[Position]
Size = tuple[float, float, float]


def _orientations(size: Size) -> tuple[Size, Size]:
    """The sizes of a thing as it is and turned by 90 degrees."""
    return size, (size[1], size[0], size[2])


def _overlap(p: Position, s: Size, q: Position, t: Size) -> bool:
    """Whether two boxes share a volume."""
    flat = all(abs(p[i] - q[i]) < (s[i] + t[i]) / 2 - 1e-6 for i in range(2))
    return flat and p[2] < q[2] + t[2] - 1e-6 and q[2] < p[2] + s[2] - 1e-6


def colliding_pairs(room: Room, layout: Layout) -> list[tuple[int, int]]:
    """The pairs of things that share a volume however each is turned by 90 degrees.

    An answer gives no angles, so a pair is spared if it fits with its extents swapped (our reading
    of MetaSpatial's code). Thin things, as rugs, collide with nothing.
    """
    return [
        (i, j)
        for i, j in combinations(range(len(layout)), 2)
        if min(room.furniture[i].size[2], room.furniture[j].size[2]) > THIN
        and all(
            _overlap(layout[i], s, layout[j], t)
            for s, t in product(
                _orientations(room.furniture[i].size), _orientations(room.furniture[j].size)
            )
        )
    ]


def collision_ratio(room: Room, layout: Layout) -> float:
    """Colliding pairs over all pairs of things."""
    pairs = len(layout) * (len(layout) - 1) // 2
    return len(colliding_pairs(room, layout)) / pairs if pairs else 0.0


def is_within(room: Room, position: Position, size: Size) -> bool:
    """Whether a thing is within the room, as it is or turned by 90 degrees."""
    sides = (room.width, room.depth)
    return (
        any(
            all(s[i] / 2 - 1e-6 <= position[i] <= sides[i] - s[i] / 2 + 1e-6 for i in range(2))
            for s in _orientations(size)
        )
        and position[2] >= -1e-6
        and position[2] + size[2] <= HEIGHT + 1e-6
    )


def grants(room: Room, layout: Layout, wish: Wish) -> bool:
    """Whether a layout grants a wish.

    left, right: by x; front, behind: by y, where front is smaller; on: the bottom is at the other's
    top, within 5 cm, and the middle is over it; above: anywhere over it; under: likewise the other
    way round, where thin things may be within its feet; corner: within 30 cm of two walls.
    """
    i = room.named(wish.thing)
    p, s = layout[i], room.furniture[i].size
    if wish.relation == "corner":
        gaps = [
            min(p[k] - s[k] / 2, side - p[k] - s[k] / 2)
            for k, side in enumerate((room.width, room.depth))
        ]
        return max(gaps) <= _CORNER
    j = room.named(wish.other)
    q, t = layout[j], room.furniture[j].size
    over = all(abs(p[k] - q[k]) <= max(s[k], t[k]) / 2 for k in range(2))
    match wish.relation:
        case "left":
            return p[0] < q[0]
        case "right":
            return p[0] > q[0]
        case "front":
            return p[1] < q[1]
        case "behind":
            return p[1] > q[1]
        case "on":
            return over and abs(p[2] - q[2] - t[2]) <= _TOUCH
        case "above":
            return over and p[2] >= q[2] + t[2] - _TOUCH
        case _:
            return over and (p[2] + s[2] <= q[2] + _TOUCH or (s[2] <= THIN and p[2] <= q[2]))


def _raised(room: Room) -> set[str]:
    """The things that a wish puts on or above another."""
    return {wish.thing for wish in room.wishes if wish.relation in ("on", "above")}


def _is_in_the_air(room: Room, layout: Layout, index: int) -> bool:
    """Whether a thing is in the air, though no wish puts it above another."""
    return room.furniture[index].id not in _raised(room) and layout[index][2] > _TOUCH


def violations(room: Room, layout: Layout) -> Iterator[tuple[int, bool]]:
    """(thing, whether it is violated) of each bound and each wish."""
    for i, item in enumerate(room.furniture):
        inside = is_within(room, layout[i], item.size)
        yield i, not inside or _is_in_the_air(room, layout, i)
    for wish in room.wishes:
        yield room.named(wish.thing), not grants(room, layout, wish)


def constraint_ratio(room: Room, layout: Layout) -> float:
    """Violated bounds and wishes over all of them."""
    flags = [violated for _, violated in violations(room, layout)]
    return sum(flags) / len(flags)


def physics_factors(room: Room, layout: Layout) -> list[float]:
    """For each thing 1 - (c + v) / 2: c the share of its pairs that collide, v the share of its
    bounds and wishes that are violated.

    The multiplier of 3D-SPO; the paper's is not published.
    """
    others = max(1, len(layout) - 1)
    pairs = colliding_pairs(room, layout)
    checks = list(violations(room, layout))
    factors = []
    for i in range(len(layout)):
        colliding = sum(i in pair for pair in pairs) / others
        checked = [violated for thing, violated in checks if thing == i]
        factors.append(1 - (colliding + sum(checked) / len(checked)) / 2)
    return factors


def looks(room: Room, layout: Layout) -> dict[str, float]:
    """Measurable terms, each in [0, 1], in place of the marks that a model gives to a picture.

    Of the things that belong on the floor, a thing counts where it stands on it, within the room,
    and collides with nothing, so that heaps look bad. walkway: the share of the free floor that a
    person 60 cm wide reaches from the middle of the front wall, times the share of things that
    count; alignment: the share of things that count and have an edge or a middle in line, within 5
    cm, with a wall or another one; wall: the share of things that count and are within 15 cm of a
    wall.
    """
    belonging = [
        i
        for i, item in enumerate(room.furniture)
        if item.size[2] > THIN and item.id not in _raised(room)
    ]
    colliding = {i for pair in colliding_pairs(room, layout) for i in pair}
    counted = [
        i
        for i in belonging
        if layout[i][2] <= _TOUCH
        and i not in colliding
        and is_within(room, layout[i], room.furniture[i].size)
    ]
    lines = {
        i: [
            {layout[i][k] + shift * room.furniture[i].size[k] / 2 for shift in (-1, 0, 1)}
            for k in range(2)
        ]
        for i in counted
    }
    sides = (room.width, room.depth)
    at_wall, aligned = 0, 0
    for i in counted:
        gaps = [min(min(lines[i][k]), sides[k] - max(lines[i][k])) for k in range(2)]
        at_wall += min(gaps) <= _WALL
        aligned += min(gaps) <= _TOUCH or any(
            abs(a - b) <= _TOUCH for j in counted if j != i for k in range(2)
            for a in lines[i][k] for b in lines[j][k]
        )  # fmt: skip
    count = max(1, len(belonging))
    return {
        "walkway": _walkway(room, layout, counted) * len(counted) / count,
        "alignment": aligned / count,
        "wall": at_wall / count,
    }


def _walkway(room: Room, layout: Layout, floor: Sequence[int]) -> float:
    """The share of the free floor that is reached from the middle of the front wall."""
    columns, rows = round(room.width / _CELL), round(room.depth / _CELL)
    x, y = (np.arange(columns) + 0.5) * _CELL, (np.arange(rows)[:, None] + 0.5) * _CELL
    taken, near = np.zeros((rows, columns), bool), np.zeros((rows, columns), bool)
    for i in floor:
        (px, py, _), (w, d, _) = layout[i], room.furniture[i].size
        taken |= (abs(x - px) < w / 2) & (abs(y - py) < d / 2)
        near |= (abs(x - px) < (w + _PERSON) / 2) & (abs(y - py) < (d + _PERSON) / 2)
    if taken.all():
        return 0.0
    labels = np.asarray(ndimage.label(~near)[0])  # type: ignore[index]
    label = labels[0, columns // 2]
    if not label:
        return 0.0
    reach = int(_PERSON / 2 / _CELL)
    reached = ndimage.binary_dilation(labels == label, np.ones((3, 3)), reach) & ~taken
    return float(reached.sum() / (~taken).sum())
