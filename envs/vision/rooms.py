"""`Room`: furniture with sizes and wishes about where it stands, and drawings of a layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.vision.images import (
    BLACK,
    COLORS,
    GRAY,
    WHITE,
    Image,
    blank,
    paint_box,
    write,
)
from agentrl_jax.envs.vision.splits import Generators, TaskKey

Position = tuple[float, float, float]  # the middle of the footprint, and the height of the bottom
FLOOR = {
    "sofa": (1.8, 0.8, 0.8),
    "bed": (2.0, 1.4, 0.5),
    "table": (1.2, 0.8, 0.75),
    "desk": (1.4, 0.6, 0.75),
    "wardrobe": (1.2, 0.6, 2.0),
    "shelf": (0.8, 0.4, 1.8),
    "chair": (0.5, 0.5, 0.9),
    "plant": (0.4, 0.4, 1.0),
}
SMALL = {"lamp": (0.3, 0.3, 0.4), "vase": (0.2, 0.2, 0.3), "radio": (0.4, 0.2, 0.2)}
SUPPORTS = ("table", "desk")
RUG, CEILING_LAMP = (2.0, 1.4, 0.02), (0.4, 0.4, 0.3)
HEIGHT = 2.6  # of a room, in meters
_STEP = 0.1  # of positions
_TRIES = 200
ROOM_TASKS = Generators(
    {
        "free": ("Furnish the room.", "Place all the furniture.", "Arrange the room."),
        "sides": (
            "Furnish the room: {wishes}.",
            "Place all the furniture so that {wishes}.",
            "Arrange the room; {wishes}.",
        ),
        "stacked": (
            "Furnish the room; {wishes}.",
            "Place all the furniture such that {wishes}.",
            "Arrange the room, where {wishes}.",
        ),
        "corner": ("", "Arrange all the furniture so that {wishes}."),
        "layers": ("", "Arrange all the furniture such that {wishes}."),
    },
    held_out=("corner", "layers"),
)


@dataclass(frozen=True)
class Furniture:
    """A thing with its width (along x), depth (along y) and height in meters."""

    id: str
    size: tuple[float, float, float]


@dataclass(frozen=True)
class Wish:
    """A relation of a thing to another; `other` is empty for "corner"."""

    relation: str  # left, right, front, behind, on, under, above, corner
    thing: str
    other: str = ""

    def __str__(self) -> str:
        words = {
            "left": "left of",
            "right": "right of",
            "front": "in front of",
            "corner": "in a corner",
        }
        other = f" the {self.other}" if self.other else ""
        return f"the {self.thing} is {words.get(self.relation, self.relation)}{other}"


@dataclass(frozen=True)
class Room:
    """A room from (0, 0) to (width, depth), its furniture, and a layout that grants the wishes."""

    width: float
    depth: float
    furniture: tuple[Furniture, ...]
    wishes: tuple[Wish, ...]
    solution: tuple[Position, ...]

    def named(self, name: str) -> int:
        """The index of a thing."""
        return next(i for i, item in enumerate(self.furniture) if item.id == name)


def footprints_overlap(
    a: tuple[Position, tuple[float, float, float]], b: tuple[Position, tuple[float, float, float]]
) -> bool:
    """Whether two boxes, each as position and size, overlap seen from above."""
    (p, s), (q, t) = a, b
    return all(abs(p[i] - q[i]) < (s[i] + t[i]) / 2 - 1e-6 for i in range(2))


def _free_position(
    rng: np.random.Generator, room: tuple[float, float], size: tuple[float, float, float],
    placed: list[tuple[Position, tuple[float, float, float]]],
) -> Position | None:  # fmt: skip
    """A uniform position on the floor that overlaps nothing; None: there was none."""
    for _ in range(_TRIES):
        x, y = (
            round(half + _STEP * int(rng.integers(int((side - 2 * half) / _STEP) + 1)), 2)
            for side, half in zip(room, (size[0] / 2, size[1] / 2))
        )
        if not any(footprints_overlap(((x, y, 0.0), size), other) for other in placed):
            return x, y, 0.0
    return None


@lru_cache(1024)
def make_room(task: TaskKey) -> Room:
    """The room of a task."""
    rng = np.random.default_rng(task.seed)
    while True:
        width, depth = (round(float(side), 1) for side in rng.uniform((4.5, 4.0), (6.0, 5.5)))
        names = [str(n) for n in rng.permutation(list(FLOOR))[: int(rng.integers(3, 5))]]
        if task.generator in ("stacked", "layers") and not set(names) & set(SUPPORTS):
            names[0] = SUPPORTS[int(rng.integers(2))]
        placed: list[tuple[Position, tuple[float, float, float]]] = []
        for i, name in enumerate(names):
            size = FLOOR[name]
            if task.generator == "corner" and i == 0:
                placed.append(((size[0] / 2, size[1] / 2, 0.0), size))
                continue
            position = _free_position(rng, (width, depth), size, placed)
            if position is None:
                break
            placed.append((position, size))
        if len(placed) == len(names):
            return _with_wishes(rng, task.generator, (width, depth), names, placed)


def _with_wishes(
    rng: np.random.Generator, kind: str, room: tuple[float, float], names: list[str],
    placed: list[tuple[Position, tuple[float, float, float]]],
) -> Room:  # fmt: skip
    """The room with wishes that the layout grants, and the things on and above others."""
    wishes: list[Wish] = []
    if kind == "sides":
        a, b = (int(i) for i in rng.permutation(len(names))[:2])
        (p, _), (q, _) = placed[a], placed[b]
        if p[0] != q[0]:
            wishes.append(Wish("left" if p[0] < q[0] else "right", names[a], names[b]))
        if p[1] != q[1] or not wishes:
            wishes.append(Wish("front" if p[1] < q[1] else "behind", names[a], names[b]))
    if kind == "corner":
        wishes.append(Wish("corner", names[0]))
    if kind in ("stacked", "layers"):
        support = next(i for i, name in enumerate(names) if name in SUPPORTS)
        (x, y, _), (_, _, height) = placed[support]
        small = list(SMALL)[int(rng.integers(len(SMALL)))]
        if kind == "stacked":
            names.append(small)
            placed.append(((x, y, height), SMALL[small]))
            wishes.append(Wish("on", small, names[support]))
        else:
            names += ["rug", "ceiling lamp"]
            rug = tuple(min(max(v, s / 2), side - s / 2) for v, s, side in zip((x, y), RUG, room))
            placed.append(((round(rug[0], 2), round(rug[1], 2), 0.0), RUG))
            placed.append(((x, y, HEIGHT - CEILING_LAMP[2]), CEILING_LAMP))
            wishes.append(Wish("under", "rug", names[support]))
            wishes.append(Wish("above", "ceiling lamp", names[support]))
    furniture = tuple(Furniture(name, size) for name, (_, size) in zip(names, placed))
    return Room(*room, furniture, tuple(wishes), tuple(position for position, _ in placed))


def render_layout(room: Room, layout: Mapping[int, Position], view: int) -> Image:
    """A layout from above and, below that, from the front, `view` pixels wide.

    The front of the room, y = 0, is at the lower side of the upper drawing.
    """
    margin = 4
    scale = (view - 2 * margin) / room.width
    top, low = round(scale * room.depth), round(scale * HEIGHT)
    image = blank(view, top + low + 3 * margin, GRAY)
    right, bottom = view - margin, top + 2 * margin
    paint_box(image, (margin, margin, right, margin + top), WHITE)
    paint_box(image, (margin, bottom, right, bottom + low), WHITE)
    colors = list(COLORS.values())
    order = sorted(layout, key=lambda i: layout[i][2] + room.furniture[i].size[2])
    for drawing in ("above", "front"):
        for i in order:
            (x, y, z), (w, d, h) = layout[i], room.furniture[i].size
            left = margin + round(scale * (x - w / 2))
            if drawing == "above":
                upper = margin + top - round(scale * (y + d / 2))
                height = round(scale * d)
            else:
                upper = bottom + low - round(scale * (z + h))
                height = round(scale * h)
            width = max(2, round(scale * w))
            box = (left, upper, left + width, upper + max(2, height))
            paint_box(image, box, colors[i % len(colors)])
            write(image, left + 1, upper, str(i + 1), BLACK)
    return image
