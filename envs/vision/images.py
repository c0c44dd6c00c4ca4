"""Images as arrays: shapes, text and resizing."""

from functools import lru_cache

import numpy as np

from agentrl_jax.images.loading import pillow

Image = np.ndarray  # uint8 [height, width, 3]
Color = tuple[int, int, int]
COLORS: dict[str, Color] = {
    "red": (214, 39, 40),
    "blue": (31, 119, 180),
    "green": (44, 160, 44),
    "orange": (255, 127, 14),
    "purple": (148, 103, 189),
    "brown": (120, 72, 60),
}
SHAPES = ("circle", "square", "triangle", "diamond")
WHITE, BLACK, GRAY = (255, 255, 255), (0, 0, 0), (200, 200, 200)
GLYPH_WIDTH, GLYPH_HEIGHT = 6, 11  # of a character of the bitmap font, in pixels


def blank(width: int, height: int, color: Color = WHITE) -> Image:
    """An image of one color."""
    return np.full((height, width, 3), color, np.uint8)


@lru_cache(256)
def shape_mask(shape: str, size: int) -> np.ndarray:
    """Which pixels of a square of `size` belong to a shape, bool [size, size]."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    half = size / 2
    if shape == "circle":
        return x**2 + y**2 <= half**2
    if shape == "diamond":
        return abs(x) + abs(y) <= half
    if shape == "triangle":
        return abs(x) <= (y + half) / 2
    return np.ones((size, size), bool)


@lru_cache(4096)
def text_mask(text: str, scale: int = 1) -> np.ndarray:
    """Which pixels a line of text blackens, bool [11 scale, 6 scale len(text)]."""
    canvas = pillow().new("L", (GLYPH_WIDTH * max(1, len(text)), GLYPH_HEIGHT))
    from PIL import ImageDraw, ImageFont

    ImageDraw.Draw(canvas).text((0, 0), text, 255, ImageFont.load_default_imagefont())
    mask = np.asarray(canvas) > 0
    return np.repeat(np.repeat(mask, scale, 0), scale, 1)


def paint(image: Image, x: int, y: int, mask: np.ndarray, color: Color) -> None:
    """Color the pixels of a mask whose upper left corner is (x, y); what lies outside is cut."""
    height, width = image.shape[:2]
    left, top = max(0, -x), max(0, -y)
    part = mask[top : max(0, height - y), left : max(0, width - x)]
    if part.size:
        image[y + top : y + top + part.shape[0], x + left : x + left + part.shape[1]][part] = color


def paint_box(image: Image, box: tuple[int, int, int, int], color: Color) -> None:
    """Color a rectangle of x1, y1, x2, y2."""
    x1, y1, x2, y2 = box
    image[max(0, y1) : max(0, y2), max(0, x1) : max(0, x2)] = color


def write(image: Image, x: int, y: int, text: str, color: Color = BLACK, scale: int = 1) -> None:
    """Write a line of text whose upper left corner is (x, y)."""
    paint(image, x, y, text_mask(text, scale), color)


def resized(image: Image, width: int, height: int) -> Image:
    """The image at another size; pixels are averaged where it shrinks and repeated where it
    grows.
    """
    if image.shape[:2] == (height, width):
        return image
    module = pillow()
    scaled = module.fromarray(image).resize((width, height), module.Resampling.BOX)
    return np.asarray(scaled)


def fitted(image: Image, longest: int) -> Image:
    """The image at the size at which its longer side has `longest` pixels."""
    height, width = image.shape[:2]
    scale = longest / max(height, width)
    return resized(image, max(1, round(width * scale)), max(1, round(height * scale)))


def cropped(image: Image, box: tuple[float, float, float, float]) -> Image:
    """The pixels that a box touches, at least one."""
    height, width = image.shape[:2]
    x1, y1 = min(int(box[0]), width - 1), min(int(box[1]), height - 1)
    x2, y2 = max(x1 + 1, int(np.ceil(box[2]))), max(y1 + 1, int(np.ceil(box[3])))
    return image[y1:y2, x1:x2]
