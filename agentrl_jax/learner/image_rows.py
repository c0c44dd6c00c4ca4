"""Images of training sequences: those of each batch row, packed beside its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import (
    EncodedImages,
    ImageFormat,
    ImagePatches,
    ImageSpan,
    PackedImages,
)
from agentrl_jax.images.cache import CACHE_BYTES, ImageCache, ModelImage
from agentrl_jax.images.features import FEATURE_BYTES
from agentrl_jax.images.loading import ImageReader
from agentrl_jax.images.processor import ImageProcessor
from agentrl_jax.learner.frozen_images import FrozenImages
from agentrl_jax.learner.sequences import TrainingSequence
from agentrl_jax.policy import Params, Policy, VisionPolicy, image_format
from agentrl_jax.pytree import AnyArray


@dataclass(frozen=True)
class ImageRows:
    """A config's images in training: how they are preprocessed, and how many fit a batch row."""

    processor: ImageProcessor  # that of the agent's `ChatImages`
    patches: int  # of all images of a batch row
    reader: ImageReader = field(default_factory=ImageReader)
    cache_bytes: int = CACHE_BYTES  # of scaled pixels
    # Of what a frozen tower computed of images, once for each; 0: it runs in each microbatch.
    feature_bytes: int = field(default=FEATURE_BYTES, metadata=OMITTED_AT_DEFAULT)


class ImageColumns(NamedTuple):
    """What a batch holds of images; see `PolicyInputs`."""

    images: PackedImages | EncodedImages
    image_index: AnyArray  # int32 [B, T]
    rope_positions: AnyArray | None  # int32 [B, 3, T]
    visible_until: AnyArray | None  # int32 [B, T]


class ImagePacker:
    """Packs the images of training sequences into batch rows."""

    def __init__(self, config: ImageRows, policy: Policy, only_policy: bool = True) -> None:
        """Of a policy.

        Args:
            config: the images.
            policy: that is trained.
            only_policy: no other model with a tower of its own takes the batches.

        Raises:
            UserError: the policy sees nothing, takes other patches than the config's processor
                makes, or a row's patches are no whole tokens.
        """
        f = image_format(policy)
        if f is None:
            raise UserError("the algorithm's `images` are set, but the policy sees no images")
        check_processor(config.processor, f)
        if config.processor.videos is not None:
            check_processor(config.processor.videos, f)
        if config.patches < 1 or config.patches % f.patches_per_token:
            raise UserError(
                f"the patches of a batch row are a multiple of {f.patches_per_token}, not "
                f"{config.patches}"
            )
        self._format, self.row_patches = f, config.patches
        self._cache = ImageCache(config.processor, config.reader, config.cache_bytes)
        tower = policy.frozen_tower() if isinstance(policy, VisionPolicy) else None
        self._frozen: FrozenImages | None = None  # None: batches hold patches
        if tower is not None and config.feature_bytes and only_policy:
            self._frozen = FrozenImages(tower, f, config.patches, config.feature_bytes)

    @property
    def num_encoded(self) -> int:
        """Images that a frozen tower has encoded."""
        return self._frozen.num_encoded if self._frozen else 0

    def load(self, params: Params) -> None:
        """Give it the policy's parameters, before the first batch with images: frozen ones are used
        from then on.
        """
        if self._frozen is not None:
            self._frozen.load(params)

    def num_patches(self, sequence: TrainingSequence) -> int:
        """The patches of a sequence's images.

        Raises:
            UserError: they are more than a row holds, or an image has another number of tokens than
                the sequence.
        """
        images = self._images(sequence)
        for image, span in zip(images, sequence.images):
            if image.num_tokens != span.stop - span.start:
                raise UserError(
                    f"an image has {image.num_tokens} tokens here and {span.stop - span.start} in "
                    "its prompt: give the algorithm's `images` the processor of the agent's"
                )
        total = sum(image.num_patches for image in images)
        if total > self.row_patches:
            raise UserError(
                f"the images of a training sequence have {total} patches but a batch row holds "
                f"{self.row_patches}: raise the patches of the algorithm's `images`"
            )
        return total

    def columns(
        self,
        sequences: Sequence[TrainingSequence],
        rows: np.ndarray,
        offsets: np.ndarray,
        shape: tuple[int, int],
    ) -> ImageColumns:
        """The images of sequences that are packed into rows.

        Args:
            sequences: what is packed.
            rows: of each sequence.
            offsets: of each sequence in its row.
            shape: of the batch.
        """
        f, (num_rows, length) = self._format, shape
        index = np.full(shape, -1, np.int32)
        # Padding has the positions that text has, 0.
        rope = np.zeros((num_rows, 3, length), np.int32) if f.multi_axis_rope else None
        last = np.zeros(shape, np.int32) if f.bidirectional else None
        images_of_row: list[list[ModelImage]] = [[] for _ in range(num_rows)]
        num_tokens = [0] * num_rows
        for sequence, row, offset in zip(sequences, rows, offsets):
            images, spans = self._images(sequence), list[ImageSpan]()
            for image, span in zip(images, sequence.images):
                start = offset + span.start
                tokens = num_tokens[row] + np.arange(image.num_tokens)
                index[row, start : start + image.num_tokens] = tokens
                num_tokens[row] += image.num_tokens
                images_of_row[row].append(image)
                spans.append(image.span(span.start))
            layout = f.layout(len(sequence), spans)
            columns = slice(offset, offset + len(sequence))
            if rope is not None and layout.rope_positions is not None:
                rope[row, :, columns] = layout.rope_positions
            if last is not None and layout.visible_until is not None:
                last[row, columns] = layout.visible_until
        return ImageColumns(self._pack(images_of_row), index, rope, last)

    def _pack(self, rows: Sequence[Sequence[ModelImage]]) -> PackedImages | EncodedImages:
        if self._frozen is not None:
            return self._frozen.pack(rows)
        patches = [[ImagePatches(x.patches(), x.grid) for x in images] for images in rows]
        return self._format.pack(patches, self.row_patches)

    def _images(self, sequence: TrainingSequence) -> list[ModelImage]:
        return [self._cache.get(image.part) for image in sequence.images]


def make_image_packer(
    config: ImageRows | None, policy: Policy, only_policy: bool = True
) -> ImagePacker | None:
    """The packer of a config; None: sequences with images are refused."""
    return None if config is None else ImagePacker(config, policy, only_policy)


def check_processor(processor: ImageProcessor, format: ImageFormat) -> None:
    """Raises UserError where a processor makes other patches than a tower takes."""
    actual = processor.patch_size, processor.merge_size, processor.frames_per_patch
    expected = format.patch_size, format.merge_size, format.temporal_patch_size
    if actual != expected:
        raise UserError(
            f"images with (patch size, merge size, frames per patch) {actual} are not those of the "
            f"policy, {expected}: give its agent and its algorithm the processor of its family"
        )


def refuse_images(sequences: Sequence[TrainingSequence], reason: str) -> None:
    """Raises UserError where a sequence has images."""
    if any(sequence.images for sequence in sequences):
        raise UserError(f"a training sequence has images, {reason}")
