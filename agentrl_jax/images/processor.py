"""`ImageProcessor`: images to the patches of a vision tower, as Hugging Face's processors do."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.image_grid import Grid
from agentrl_jax.images.loading import ImageError, pillow

MAX_ASPECT_RATIO = 200


class ImageSize(Protocol):
    """The size to which images are scaled."""

    def of(self, height: int, width: int, factor: int, frames: int = 1) -> tuple[int, int]:
        """(height, width), multiples of `factor` pixels."""
        ...


@dataclass(frozen=True)
class FixedSize:
    """Every image is scaled to the same square."""

    pixels: int  # a side

    def of(self, height: int, width: int, factor: int, frames: int = 1) -> tuple[int, int]:
        return self.pixels, self.pixels


@dataclass(frozen=True)
class PixelBudget:
    """Images keep their aspect ratio, with a number of pixels within a budget.

    Both sides are rounded to multiples of a factor f; where the area is outside of
    [min_pixels, max_pixels], they are first scaled by sqrt(bound / area), and rounded inwards.
    """

    min_pixels: int
    max_pixels: int
    # The budget is that of all frames of a video, of which an even number counts (Qwen3-VL).
    of_whole_video: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ImageError(
                f"a pixel budget needs 0 < min_pixels <= max_pixels, not {self.min_pixels} and "
                f"{self.max_pixels}"
            )

    def of(self, height: int, width: int, factor: int, frames: int = 1) -> tuple[int, int]:
        """See `ImageSize.of`.

        Raises:
            ImageError: one side is more than `MAX_ASPECT_RATIO` times the other.
        """
        if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
            raise ImageError(
                f"an image of {width} x {height} pixels is refused: one side is more than "
                f"{MAX_ASPECT_RATIO} times the other"
            )
        count = rounded_count = 1
        if self.of_whole_video:
            count, rounded_count = frames, round(frames / 2) * 2
            if min(height, width) < factor:
                ratio = max(factor / height, factor / width)
                height, width = int(height * ratio), int(width * ratio)
        scaled = [round(side / factor) * factor for side in (height, width)]
        actual = rounded_count * scaled[0] * scaled[1]
        if actual > self.max_pixels:
            beta = math.sqrt((count * height * width) / self.max_pixels)
            scaled = [
                max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)
            ]
        elif actual < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (count * height * width))
            scaled = [math.ceil(side * beta / factor) * factor for side in (height, width)]
        return scaled[0], scaled[1]


@dataclass(frozen=True)
class ImageProcessor:
    """Scales, normalizes and cuts images into patches.

    A pixel x of channel c becomes (x / 255 - mean[c]) / std[c]. A patch is flattened in the order
    (channel, frame, row, column); patches are ordered by frame, then by squares of `merge_size` x
    `merge_size`, each of which becomes one token of a prompt, and row by row within a square.
    """

    size: ImageSize
    patch_size: int
    merge_size: int
    frames_per_patch: int = 1
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    resample: Literal["bicubic", "bilinear"] = "bicubic"
    # of videos; None: they are refused
    videos: "ImageProcessor | None" = field(default=None, metadata=OMITTED_AT_DEFAULT)

    @property
    def patch_width(self) -> int:
        """The values of a flattened patch."""
        return 3 * self.frames_per_patch * self.patch_size**2

    def grid(self, height: int, width: int, frames: int = 1) -> Grid:
        """The patches of an image, or of a video with so many frames.

        Raises:
            ImageError: the image has a size that the tower cannot be given.
        """
        scaled = self.size.of(height, width, self.patch_size * self.merge_size, frames)
        return (
            -(-frames // self.frames_per_patch),
            scaled[0] // self.patch_size,
            scaled[1] // self.patch_size,
        )

    def num_tokens(self, grid: Grid) -> int:
        """The placeholder tokens of a grid."""
        return grid[0] * (grid[1] // self.merge_size) * (grid[2] // self.merge_size)

    def scale(self, pixels: np.ndarray, frames: int = 1) -> np.ndarray:
        """An image in the size that its patches have, uint8 [height, width, 3].

        Args:
            pixels: uint8 [height, width, 3].
            frames: of the video that it belongs to.
        """
        height, width, _ = pixels.shape
        _, rows, columns = self.grid(height, width, frames)
        image_module = pillow()
        image = image_module.fromarray(pixels).resize(
            (columns * self.patch_size, rows * self.patch_size),
            image_module.Resampling[self.resample.upper()],
        )
        return np.asarray(image)

    def patches(self, frames: Iterable[np.ndarray]) -> np.ndarray:
        """The patches of scaled frames, float32 [patches, patch_width].

        Args:
            frames: of `scale`, in the order of time. One image fills all frames of its patches, and
                a video's last frame those that are missing.
        """
        n, p, b = self.frames_per_patch, self.patch_size, self.merge_size
        video = np.stack([*frames])  # [frames, height, width, 3]
        video = np.concatenate([video, *[video[-1:]] * (-len(video) % n)])
        rows, columns = video.shape[1] // p, video.shape[2] // p
        video = video.reshape(-1, n, rows // b, b, p, columns // b, b, p, 3)
        # (time, square row, square column, row, column, channel, frame, pixel row, pixel column)
        video = video.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
        values = self._values[np.arange(3)[:, None, None, None], video]
        return values.reshape(-1, self.patch_width)

    @functools.cached_property
    def _values(self) -> np.ndarray:
        """The normalized value of each channel's 256 levels, float32 [3, 256].

        Rounded at each step as the processors do, so that equality is exact.
        """
        levels = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
        mean, std = (np.asarray(x, np.float32)[:, None] for x in (self.mean, self.std))
        return (levels - mean) / std


CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


def qwen2_5_vl_images(
    min_pixels: int = 56 * 56,
    max_pixels: int = 28 * 28 * 1280,
    videos: ImageProcessor | None = None,
) -> ImageProcessor:
    """The images of Qwen2-VL and Qwen2.5-VL (arXiv 2502.13923), and videos where they are set."""
    size = PixelBudget(min_pixels, max_pixels)
    return ImageProcessor(size, 14, 2, 2, CLIP_MEAN, CLIP_STD, videos=videos)


def qwen3_vl_images(
    min_pixels: int = 256 * 256,
    max_pixels: int = 4096 * 4096,
    videos: ImageProcessor | None = None,
) -> ImageProcessor:
    """The images of Qwen3-VL (arXiv 2511.21631), and videos where they are set."""
    return ImageProcessor(PixelBudget(min_pixels, max_pixels), 16, 2, 2, videos=videos)


def qwen3_vl_videos(
    min_pixels: int = 128 * 32 * 32, max_pixels: int = 32 * 32 * 768
) -> ImageProcessor:
    """The videos of Qwen3-VL: the budget is that of all frames."""
    return dataclasses.replace(
        qwen3_vl_images(), size=PixelBudget(min_pixels, max_pixels, of_whole_video=True)
    )


def qwen2_5_vl_videos(
    min_pixels: int = 128 * 28 * 28, max_pixels: int = 28 * 28 * 768
) -> ImageProcessor:
    """The videos of Qwen2.5-VL: the budget is that of each frame."""
    return qwen2_5_vl_images(min_pixels, max_pixels)


def gemma3_images(size: int = 896) -> ImageProcessor:
    """The images of Gemma 3 (arXiv 2503.19786), without crops ("pan and scan")."""
    return ImageProcessor(FixedSize(size), 14, 4, resample="bilinear")
