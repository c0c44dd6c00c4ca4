"""`FeatureCache`: what a vision tower computes of images, once for each."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from agentrl_jax.image_format import ImageFormat, ImagePatches, PackedImages, choose_bucket
from agentrl_jax.images.byte_cache import ByteCache
from agentrl_jax.images.cache import ModelImage
from agentrl_jax.policy import Params

FEATURE_BYTES = 512 * 2**20


class FeatureCache:
    """The features of images by content; an image, or a temporal patch of a video, runs alone, in
    one of a few programs.
    """

    def __init__(
        self,
        encode: Callable[[Params, PackedImages], jax.Array],
        image_format: ImageFormat,
        buckets: Sequence[int],
        max_bytes: int = FEATURE_BYTES,
    ) -> None:
        """An empty cache.

        Args:
            encode: weights and rows of patches to features [R, M, E]; compiled.
            image_format: of the tower.
            buckets: the numbers of patches for which a program is compiled.
            max_bytes: of features that are kept.
        """
        self.buckets = tuple(sorted(buckets))
        self._encode, self._format = encode, image_format
        self._features = ByteCache[np.ndarray](max_bytes)
        self.num_encoded = 0  # images since the start

    def get(self, params: Params, image: ModelImage) -> np.ndarray:
        """The features of an image's tokens, [tokens, E].

        Args:
            params: the weights; those of other calls since `clear` are equal to them.
            image: to be encoded.
        """
        features = self._features.get(image.digest)
        if features is None:
            # Temporal patches attend to themselves only, so that each runs alone.
            num_frames, rows, columns = image.grid
            bucket = choose_bucket(image.num_patches // num_frames, self.buckets)
            features = np.concatenate(
                [
                    self._run(params, ImagePatches(patches, (1, rows, columns)), bucket)[
                        : image.num_tokens // num_frames
                    ]
                    for patches in np.split(image.patches(), num_frames)
                ]
            )
            self._features.put(image.digest, features, features.nbytes)
            self.num_encoded += 1
        return features

    def clear(self) -> None:
        """Forget all features."""
        self._features.clear()

    def warm_up(self, params: Params) -> None:
        """Compile the program of every bucket."""
        side = self._format.fixed_side or self._format.merge_size
        patches = np.zeros((side**2, self._format.patch_numbers), np.float32)
        for bucket in self.buckets:
            if bucket >= side**2:
                self._run(params, ImagePatches(patches, (1, side, side)), bucket)

    def _run(self, params: Params, patches: ImagePatches, length: int) -> np.ndarray:
        return np.asarray(self._encode(params, self._format.pack([[patches]], length)))[0]
