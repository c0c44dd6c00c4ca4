"""Images as arrays: shapes, text, resizing, orientation, and `data:` URLs of PNG files."""

import base64
import io
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl_jax.envs.packages import import_package
from agentrl_jax.messages import ImagePart

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
_URL = "data:image/png;base64,"


def pillow(module: str) -> Any:
    """A module of Pillow. Raises UserError where it is not installed."""
    return import_package(f"PIL.{module}", "vision")


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
    font = pillow("ImageFont").load_default_imagefont()
    canvas = pillow("Image").new("L", (GLYPH_WIDTH * max(1, len(text)), GLYPH_HEIGHT))
    pillow("ImageDraw").Draw(canvas).text((0, 0), text, 255, font)
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
    module = pillow("Image")
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


def image_part(image: Image) -> ImagePart:
    """The image as a part of a message: a PNG file in a `data:` URL."""
    buffer = io.BytesIO()
    pillow("Image").fromarray(np.ascontiguousarray(image)).save(buffer, "PNG")
    return ImagePart(_URL + base64.b64encode(buffer.getvalue()).decode())


def png_bytes(part: ImagePart) -> bytes:
    """The PNG file of `image_part`."""
    return base64.b64decode(part.url.removeprefix(_URL), validate=True)


def read_png(data: bytes, max_pixels: int, max_aspect: float) -> Image:
    """The pixels of a PNG file that somebody else wrote.

    Raises:
        ValueError: it is no PNG file, or has too many pixels or too long a side.
    """
    if len(data) < 24 or data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        raise ValueError("this is no PNG file")
    width, height = struct.unpack(">II", data[16:24])
    if not 0 < width * height <= max_pixels:
        raise ValueError(f"an image may have {max_pixels:,} pixels, not {width}x{height}")
    if max(width, height) >= max_aspect * min(width, height):
        raise ValueError(f"an image of {width}x{height} pixels is too long")
    try:
        with pillow("Image").open(io.BytesIO(data), formats=("PNG",)) as file:
            return np.asarray(file.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"this is no readable PNG file: {error!s:.100}") from None
