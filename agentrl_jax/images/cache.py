"""`ImageCache`: images and videos of messages as a model is given them, with bounded memory."""

import dataclasses
import hashlib
import threading
from dataclasses import dataclass

import numpy as np

from agentrl_jax.image_format import ImageSpan
from agentrl_jax.image_grid import Grid
from agentrl_jax.images.byte_cache import ByteCache
from agentrl_jax.images.loading import ImageError, ImageReader
from agentrl_jax.images.processor import ImageProcessor
from agentrl_jax.images.videos import check_video_size, read_video
from agentrl_jax.messages import ImagePart, VideoPart

CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class ModelImage:
    """An image, a video or a temporal patch of one, in the size in which a model sees it."""

    part: ImagePart  # of the message
    digest: str  # of the part and the processor: equal digests have equal patches and times
    frames: np.ndarray  # uint8 [frames, height, width, 3]; an image has one
    grid: Grid
    processor: ImageProcessor
    seconds: tuple[float, ...] = (0.0,)  # of each frame

    @property
    def num_tokens(self) -> int:
        """The placeholder tokens of a prompt that stand for it."""
        return self.processor.num_tokens(self.grid)

    @property
    def num_patches(self) -> int:
        """The patches, of which `processor.merge_size` squared are one token."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def patches(self) -> np.ndarray:
        """See `ImageProcessor.patches`; computed at each call, for they take 24 times the memory of
        the pixels where a patch has two frames.
        """
        return self.processor.patches(self.frames)

    def span(self, start: int) -> ImageSpan:
        """Its place in a sequence in which its tokens begin at `start`.

        The seconds of a temporal patch are those between a video's frames, on average, times its
        frames.
        """
        if len(self.seconds) == 1:
            return ImageSpan(start, self.grid)
        distance = (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)
        return ImageSpan(start, self.grid, distance * self.processor.frames_per_patch)

    def temporal_patch(self, index: int) -> "ModelImage":
        """One of a video's temporal patches.

        Raises:
            ImageError: it has no such patch.
        """
        is_whole = isinstance(self.part, VideoPart) and self.part.temporal_patch is None
        if not is_whole or index not in range(self.grid[0]):
            raise ImageError(
                f"a video of {self.grid[0]} temporal patches has none at {index!r:.40}"
            )
        n = self.processor.frames_per_patch
        frames = slice(index * n, (index + 1) * n)
        return dataclasses.replace(
            self,
            part=dataclasses.replace(self.part, temporal_patch=index),
            digest=f"{self.digest} {index}",
            frames=self.frames[frames],
            grid=(1, *self.grid[1:]),
            seconds=self.seconds[frames],
        )


class ImageCache:
    """Reads, scales and keeps images, of which the longest unused are forgotten."""

    def __init__(
        self,
        processor: ImageProcessor,
        reader: ImageReader = ImageReader(),  # noqa: B008  it is frozen
        max_bytes: int = CACHE_BYTES,
    ) -> None:
        """An empty cache.

        Args:
            processor: of the model.
            reader: of the messages' images.
            max_bytes: of the scaled pixels that are kept.
        """
        self.processor, self.reader = processor, reader
        self._images = ByteCache[ModelImage](max_bytes)
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Bytes of the pixels that are kept."""
        return self._images.num_bytes

    def get(self, part: ImagePart) -> ModelImage:
        """The image of a part, its video, or the temporal patch of a video that it names.

        Raises:
            ImageError: it cannot be shown.
        """
        index = part.temporal_patch if isinstance(part, VideoPart) else None
        if isinstance(part, VideoPart) and index is not None:
            return self.get(dataclasses.replace(part, temporal_patch=None)).temporal_patch(index)
        seconds = part.seconds if isinstance(part, VideoPart) else None
        text = f"{self.processor}\n{seconds}\n{part.url}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            image = self._images.get(digest)
        if image is not None:
            return image
        if isinstance(part, VideoPart):
            image = self._read_video(part, digest)
        else:
            image = self._read_image(part, digest)
        with self._lock:
            self._images.put(digest, image, image.frames.nbytes)
        return image

    def _read_image(self, part: ImagePart, digest: str) -> ModelImage:
        pixels, processor = self.reader.pixels(part), self.processor
        height, width, _ = pixels.shape
        grid = processor.grid(height, width)
        return ModelImage(part, digest, processor.scale(pixels)[None], grid, processor)

    def _read_video(self, part: VideoPart, digest: str) -> ModelImage:
        processor = self.processor.videos
        if processor is None:
            raise ImageError(
                "a video cannot be shown here: send its frames as images, or give the model's "
                "`ImageProcessor` the preprocessing of its family's videos"
            )
        video = read_video(self.reader, part)
        count, (height, width, _) = len(video.frames), video.frames[0].shape
        grid = processor.grid(height, width, count)
        check_video_size(count, grid[1] * processor.patch_size, grid[2] * processor.patch_size)
        frames = np.stack([processor.scale(frame, count) for frame in video.frames])
        return ModelImage(part, digest, frames, grid, processor, video.seconds)
