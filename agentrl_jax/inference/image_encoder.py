"""`ImageEncoder`: runs a policy's vision tower, once for each image and each version of weights."""

import weakref
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agentrl_jax.errors import UserError
from agentrl_jax.image_format import ImageLayout
from agentrl_jax.images.cache import ModelImage
from agentrl_jax.images.features import FEATURE_BYTES, FeatureCache
from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.learner.image_rows import check_processor
from agentrl_jax.policy import Params, Policy, VisionPolicy, image_format


class ImageEncoder:
    """The features of images, those of equal images computed once.

    Only the engine's thread may ask for features.
    """

    def __init__(
        self,
        policy: Policy,
        mesh: Mesh,
        buckets: Sequence[int],
        longest_chunk: int,
        max_bytes: int = FEATURE_BYTES,
    ) -> None:
        """Of a policy that sees.

        Args:
            policy: the model.
            mesh: of its weights.
            buckets: the numbers of patches for which a program is compiled.
            longest_chunk: tokens of the longest prefill program.
            max_bytes: of features that are kept.

        Raises:
            UserError: the policy sees nothing, or a bucket is not a number of whole tokens.
        """
        f = image_format(policy)
        if f is None or not isinstance(policy, VisionPolicy):
            raise UserError(
                "config.engine.image_patches is set, but the policy sees no images: leave it ()"
            )
        for bucket in buckets:
            if bucket < 1 or bucket % f.patches_per_token:
                raise UserError(
                    f"config.engine.image_patches are multiples of {f.patches_per_token}, not "
                    f"{bucket}"
                )
        self.format, self._longest_chunk = f, longest_chunk
        replicated = NamedSharding(mesh, PartitionSpec())
        encode = jax.jit(policy.encode_images, out_shardings=replicated)
        self._features = FeatureCache(encode, f, buckets, max_bytes)
        self._weights: weakref.ref[jax.Array] | None = None  # one of those that encoded

    @property
    def num_encoded(self) -> int:
        """Images since the start."""
        return self._features.num_encoded

    def features(self, params: Params, image: ModelImage) -> np.ndarray:
        """The features of an image's tokens, [tokens, feature_width].

        Args:
            params: the weights; features of other weights are forgotten.
            image: to be encoded.
        """
        first, *_ = jax.tree.leaves(params)
        if self._weights is None or self._weights() is not first:
            self._features.clear()
            self._weights = weakref.ref(first)
        return self._features.get(params, image)

    def warm_up(self, params: Params) -> None:
        """Compile the program of every bucket."""
        self._features.warm_up(params)

    def check(self, images: Sequence[PromptImage], length: int) -> None:
        """Check the images of a prompt of so many tokens.

        Raises:
            UserError: an image is of another model.
            ValueError: it has too many patches, overlaps another one, or
                ends with the prompt, of which the last token is text.
        """
        position = 0
        for image in images:
            f = self.format
            check_processor(image.image.processor, f)
            most = self._features.buckets[-1]
            num_patches = image.image.num_patches // image.image.grid[0]  # of a temporal patch
            if num_patches > most:
                raise ValueError(
                    f"an image has {num_patches} patches and the engine takes at most "
                    f"{most}: lower max_pixels, or raise config.engine.image_patches"
                )
            if f.bidirectional and image.image.num_tokens > self._longest_chunk:
                raise ValueError(
                    f"an image's {image.image.num_tokens} tokens attend to each other and must be "
                    f"prefilled at once, which the engine does with {self._longest_chunk}: raise "
                    "config.engine.prefill_chunk"
                )
            if image.start < position or image.end >= length:
                raise ValueError(
                    f"an image at {image.start} to {image.end} overlaps another one, or does not "
                    f"end before the last of {length} tokens"
                )
            position = image.end


def prompt_layout(
    encoder: ImageEncoder | None, images: Sequence[PromptImage], length: int
) -> ImageLayout | None:
    """The positions of a prompt of so many tokens; None: those of a text."""
    if encoder is None or not images:
        return None
    return encoder.format.layout(length, [image.image.span(image.start) for image in images])
