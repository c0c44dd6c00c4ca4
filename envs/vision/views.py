"""`View`: what is seen of an image, a part of it in one of eight orientations."""

from dataclasses import dataclass, replace

import numpy as np

from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.boxes import Box, Point
from agentrl_jax.envs.vision.images import Image, cropped, fitted


@dataclass(frozen=True)
class View:
    """A box of a source image, mirrored left to right or not, then turned counterclockwise.

    Crops of crops and of turned images stay boxes of the source, so that each is cut from its full
    resolution.

    Args:
        box: in pixels of the source.
        turns: quarter turns, 0 to 3.
        mirrored: before the turns.
        contrast: by which differences from gray are multiplied.
    """

    box: Box
    turns: int = 0
    mirrored: bool = False
    contrast: float = 1.0

    @property
    def size(self) -> tuple[float, float]:
        """Width and height as seen, in pixels of the source."""
        width, height = self.box[2] - self.box[0], self.box[3] - self.box[1]
        return (height, width) if self.turns % 2 else (width, height)

    def shown_size(self, longest: int) -> tuple[int, int]:
        """Width and height where the longer side is shown with so many pixels."""
        width, height = self.size
        scale = longest / max(width, height)
        return max(1, round(width * scale)), max(1, round(height * scale))

    def pixels(self, source: Image, longest: int) -> Image:
        """The image that is shown."""
        image = cropped(source, self.box)
        if self.mirrored:
            image = image[:, ::-1]
        image = fitted(np.ascontiguousarray(np.rot90(image, self.turns)), longest)
        if self.contrast != 1.0:
            image = np.clip(128 + self.contrast * (image.astype(np.float64) - 128), 0, 255)
        return image.astype(np.uint8)

    def turned(self, degrees: int) -> "View":
        """The view turned counterclockwise by a multiple of 90 degrees."""
        return replace(self, turns=(self.turns + degrees // 90) % 4)

    def flipped(self, horizontal: bool) -> "View":
        """The view mirrored left to right, or upside down."""
        turns = (-self.turns if horizontal else 2 - self.turns) % 4
        return replace(self, turns=turns, mirrored=not self.mirrored)

    @property
    def is_upright(self) -> bool:
        return self.turns == 0 and not self.mirrored

    def to_source(self, point: Point) -> Point:
        """A point of the view, in pixels of the source from its upper left corner as seen, in the
        source.
        """
        x, y = point
        height = self.size[1]
        width = self.size[0]
        for _ in range(self.turns):
            x, y, width, height = height - y, x, height, width
        if self.mirrored:
            x = width - x
        return self.box[0] + x, self.box[1] + y

    def source_box(self, box: Box) -> Box:
        """A box of the view, likewise."""
        (x1, y1), (x2, y2) = self.to_source(box[:2]), self.to_source(box[2:])
        return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)

    def crop(self, box: Box) -> "View":
        """What is seen of a part of the view."""
        return replace(self, box=self.source_box(box))

    def from_shown(self, box: Box, longest: int) -> Box:
        """A box in pixels that are shown, in pixels of the source as seen."""
        width, height = self.shown_size(longest)
        return boxes.scaled(box, self.size[0] / width, self.size[1] / height)

    def shown_box(self, box: Box, longest: int) -> Box:
        """A box of the source as it is shown, clipped to the view: the inverse of `from_shown` and
        `source_box`.
        """
        x1, y1, x2, y2 = (value - self.box[i % 2] for i, value in enumerate(box))
        width, height = self.box[2] - self.box[0], self.box[3] - self.box[1]
        if self.mirrored:
            x1, x2 = width - x2, width - x1
        for _ in range(self.turns):
            x1, y1, x2, y2 = y1, width - x2, y2, width - x1
            width, height = height, width
        visible = self.shown_size(longest)
        seen = boxes.scaled((x1, y1, x2, y2), visible[0] / width, visible[1] / height)
        return boxes.clipped(seen, *visible)


def full_view(width: int, height: int) -> View:
    """The view of a whole image."""
    return View((0.0, 0.0, float(width), float(height)))
