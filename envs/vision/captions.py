"""Captions of scenes: a line for each object, with its place as it is shown."""

import re
from dataclasses import dataclass

from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.scenes import SceneObject
from agentrl_jax.envs.vision.views import View

TOLERANCE = 3.0  # pixels, of a coordinate
_LINE = re.compile(r"(\w+ \w+) \((\d+), (\d+)\)(?:, (\d) dots)?")


@dataclass(frozen=True)
class CaptionLine:
    """An object: its name, the middle as it is shown and, where they are told, its dots or code."""

    name: str
    x: int
    y: int
    dots: int = 0  # 0: not told
    code: str = ""

    def __str__(self) -> str:
        dots = f", {self.dots} dots" if self.dots else ""
        code = f", code {self.code}" if self.code else ""
        return f"{self.name} ({self.x}, {self.y}){dots}{code}"

    def matches(self, other: "CaptionLine") -> bool:
        """Whether they are the same object, at places that are close enough."""
        same = (self.name, self.dots) == (other.name, other.dots)
        return same and max(abs(self.x - other.x), abs(self.y - other.y)) <= TOLERANCE


def caption_line(
    item: SceneObject, view: View, longest: int, detail: str = "", top: int = 0
) -> CaptionLine:
    """The line of an object.

    Args:
        item: the object.
        view: in which it is shown.
        longest: pixels of the longer side of the image that is shown.
        detail: what is told beside the place: "dots", "code" or nothing.
        top: pixels of the view's source above the scene.
    """
    x1, y1, x2, y2 = item.box
    x, y = boxes.center(view.shown_box((x1, y1 + top, x2, y2 + top), longest))
    dots = item.dots if detail == "dots" else 0
    return CaptionLine(item.name, round(x), round(y), dots, item.code if detail == "code" else "")


def read_caption(text: str) -> list[CaptionLine]:
    """The lines of a caption that have its form, at most 40."""
    matches = (_LINE.fullmatch(line.strip()) for line in text[:4000].splitlines()[:40])
    return [CaptionLine(m[1], int(m[2]), int(m[3]), int(m[4] or 0)) for m in matches if m]


def caption_score(lines: list[CaptionLine], right: list[CaptionLine]) -> float:
    """The right ones among the lines, over the longer of both captions: a line counts once."""
    left = list(right)
    for line in lines:
        match = next((item for item in left if line.matches(item)), None)
        if match is not None:
            left.remove(match)
    return (len(right) - len(left)) / max(len(lines), len(right), 1)
