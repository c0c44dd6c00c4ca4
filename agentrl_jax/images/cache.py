"""`ImageCache`: the images of messages as a model is given them, with bounded memory."""

import hashlib
import threading
from dataclasses import dataclass

import numpy as np

from agentrl_jax.image_grid import Grid
from agentrl_jax.images.byte_cache import ByteCache
from agentrl_jax.images.loading import ImageReader
from agentrl_jax.images.processor import ImageProcessor
from agentrl_jax.messages import ImagePart

CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class ModelImage:
    """An image in the size in which a model sees it."""

    part: ImagePart  # of the message
    digest: str  # of the part and the processor: equal digests have equal patches
    pixels: np.ndarray  # uint8 [height, width, 3]
    grid: Grid
    processor: ImageProcessor

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
        return self.processor.patches([self.pixels])


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
        """The image of a part.

        Raises:
            ImageError: it cannot be shown.
        """
        digest = hashlib.sha256(f"{self.processor}\n{part.url}".encode()).hexdigest()
        with self._lock:
            image = self._images.get(digest)
        if image is not None:
            return image
        original = self.reader.pixels(part)
        height, width, _ = original.shape
        grid = self.processor.grid(height, width)
        image = ModelImage(part, digest, self.processor.scale(original), grid, self.processor)
        with self._lock:
            self._images.put(digest, image, image.pixels.nbytes)
        return image
