"""`Batch`: training sequences packed into device arrays of one shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from agentrl_jax.errors import UserError
from agentrl_jax.image_format import EncodedImages, PackedImages
from agentrl_jax.learner.image_rows import ImagePacker, refuse_images
from agentrl_jax.learner.sequences import TrainingSequence
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.pytree import AnyArray, pytree_dataclass, static_field

T = TypeVar("T")


@pytree_dataclass
class Batch:
    """Packed sequences; a row is a bin.

    Everything per token is aligned to the token itself, not to the previous one, which predicts it.
    """

    tokens: Int[AnyArray, "B T"]
    positions: Int[AnyArray, "B T"]
    segment_ids: Int[AnyArray, "B T"]  # 0: padding
    turns: Int[AnyArray, "B T"]  # turn within the trajectory, -1 where the policy did not write
    action_mask: Bool[AnyArray, "B T"]
    sampler_logp: Float[AnyArray, "B T"]
    version: Int[AnyArray, "B T"]
    temperature: Float[AnyArray, "B T"]
    weight: Float[AnyArray, "B T"]  # the device computes sum(weight x loss)
    # Of images: see `PolicyInputs`. Rows come first in every array, so these are [B, 3, T].
    images: PackedImages | EncodedImages | None = None
    image_index: Int[AnyArray, "B T"] | None = None
    rope_positions: Int[AnyArray, "B 3 T"] | None = None
    visible_until: Int[AnyArray, "B T"] | None = None
    # Columns of a bin that its branches share, and of each branch: see `PolicyInputs`.
    prefix_length: int = static_field(default=0)
    branch_length: int = static_field(default=0)

    @property
    def inputs(self) -> PolicyInputs:
        rope = self.rope_positions
        return PolicyInputs(
            tokens=self.tokens,
            positions=self.positions,
            segment_ids=self.segment_ids,
            images=self.images,
            image_index=self.image_index,
            rope_positions=None if rope is None else jnp.moveaxis(jnp.asarray(rope), 1, 0),
            visible_until=self.visible_until,
            prefix_length=self.prefix_length,
            branch_length=self.branch_length,
        )


@dataclass(frozen=True, eq=False)
class PackedLayout:
    """The bin of each sequence and the offset in it.

    With branches the first `shared_prefix_length` tokens of a sequence are in the prefix of its
    bin; the offset is that of the others, less this length.
    """

    sequences: Sequence[TrainingSequence]
    bin_length: int
    num_bins: int
    bin_index: np.ndarray  # int [sequences]
    bin_offset: np.ndarray  # int [sequences]
    shared_prefix_length: np.ndarray  # int [sequences]
    prefix_length: int = 0
    branch_length: int = 0
    images: ImagePacker | None = None  # None: there are none

    def packed_coordinates(
        self, token_sequence: np.ndarray, token_position: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The (bin, column) of tokens outside shared prefixes."""
        return self.bin_index[token_sequence], self.bin_offset[token_sequence] + token_position

    def scatter(
        self, values: np.ndarray, token_sequence: np.ndarray, token_position: np.ndarray
    ) -> np.ndarray:
        """Token values [N] as a packed array [bins, length], zero elsewhere."""
        packed = np.zeros((self.num_bins, self.bin_length), np.float32)
        packed[self.packed_coordinates(token_sequence, token_position)] = values
        return packed

    def to_batch(self, weight: np.ndarray) -> Batch:
        """The packed batch with packed loss weights [bins, length].

        Raises:
            UserError: a token was sampled greedily.
        """
        shape = (self.num_bins, self.bin_length)
        images: dict[str, Any] = {}
        if self.images is not None:
            columns = self.images.columns(self.sequences, self.bin_index, self.bin_offset, shape)
            images = columns._asdict()
        batch = Batch(
            tokens=np.zeros(shape, np.int32),
            positions=np.zeros(shape, np.int32),
            segment_ids=np.zeros(shape, np.int32),
            turns=np.full(shape, -1, np.int32),
            action_mask=np.zeros(shape, bool),
            sampler_logp=np.zeros(shape, np.float32),
            version=np.full(shape, -1, np.int32),
            temperature=np.ones(shape, np.float32),
            weight=weight,
            **images,
            prefix_length=self.prefix_length,
            branch_length=self.branch_length,
        )
        segments = np.zeros(self.num_bins, np.int32)
        for x, b, offset, shared in zip(
            self.sequences, self.bin_index, self.bin_offset, self.shared_prefix_length
        ):
            segments[b] = 1 if self.branch_length else segments[b] + 1
            if shared:
                prefix = b, slice(self.prefix_length - shared, self.prefix_length)
                batch.tokens[prefix] = x.tokens[:shared]
                batch.positions[prefix] = np.arange(shared)
                batch.segment_ids[prefix] = 1
            source, target = slice(shared, None), (b, slice(offset + shared, offset + len(x)))
            batch.tokens[target] = x.tokens[source]
            batch.positions[target] = np.arange(shared, len(x))
            batch.segment_ids[target] = segments[b]
            batch.turns[target] = x.turn[source]
            batch.action_mask[target] = x.action_mask[source]
            batch.sampler_logp[target] = x.sampler_logp[source]
            batch.version[target] = x.version[source]
            batch.temperature[target] = x.temperature[source]
        if not (np.asarray(batch.temperature) > 0).all():
            raise UserError(
                "greedy samples (temperature 0) cannot be trained on: "
                "sample with a temperature above 0"
            )
        return batch


def pack(
    sequences: Sequence[TrainingSequence],
    bin_length: int,
    multiple: int,
    images: ImagePacker | None = None,
) -> PackedLayout:
    """First-fit-decreasing packing; a bin with one free token takes no more sequences.

    Args:
        sequences: what to pack; a sequence is never split.
        bin_length: tokens per bin.
        multiple: the number of bins is rounded up to a multiple of it.
        images: packs the images of sequences; None: these are refused.

    Raises:
        UserError: a sequence is longer than a bin, or has images that cannot be packed.
    """
    if images is None:
        refuse_images(sequences, "which this algorithm does not train: set its `images`, if any")
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    if sequences and len(sequences[order[0]]) > bin_length:
        raise UserError(
            f"a training sequence has {len(sequences[order[0]])} tokens "
            f"but bins hold {bin_length}: raise bin_length"
        )
    free: list[int] = []  # tokens left in each bin
    free_patches: list[int] = []
    bin_index, bin_offset = np.empty((2, len(sequences)), np.int64)
    first_open = 0
    for i in order:
        size, patches = len(sequences[i]), images.num_patches(sequences[i]) if images else 0
        bins = range(first_open, len(free))
        fitting = (b for b in bins if free[b] >= size and free_patches[b] >= patches)
        b = next(fitting, len(free))
        if b == len(free):
            free.append(bin_length)
            free_patches.append(images.row_patches if images else 0)
        bin_index[i], bin_offset[i] = b, bin_length - free[b]
        free[b] -= size
        free_patches[b] -= patches
        while first_open < len(free) and free[first_open] < 2:
            first_open += 1
    num_bins = max(multiple, -(-len(free) // multiple) * multiple)
    no_prefix = np.zeros(len(sequences), np.int64)
    return PackedLayout(
        sequences, bin_length, num_bins, bin_index, bin_offset, no_prefix, images=images
    )


def pack_branches(
    sequences: Sequence[TrainingSequence],
    prefix_length: int,
    branch_length: int,
    branches_per_bin: int,
    multiple: int,
) -> PackedLayout:
    """Bins of a shared prompt prefix and the sequences that branch from it.

    At least one prompt token is in the branch: the one that predicts the first action.

    Args:
        sequences: those with the same first prompt tokens share a prefix.
        prefix_length: the maximal number of shared tokens.
        branch_length: tokens per branch.
        branches_per_bin: the maximal number of branches of a bin.
        multiple: the number of bins is rounded up to a multiple of it.

    Raises:
        UserError: a sequence has more than `branch_length` tokens after its shared prefix, or
            images.
    """
    refuse_images(sequences, "which cannot share a prompt: leave prompt_sharing off")
    first_actions = [int(np.argmax(x.action_mask)) for x in sequences]
    shared_lengths = np.array(
        [max(0, min(prefix_length, first - 1)) for first in first_actions], np.int64
    )
    bin_index, bin_offset = np.empty((2, len(sequences)), np.int64)
    num_bins = 0
    last_bin: dict[bytes, tuple[int, int]] = {}  # of each prefix: its last bin, and branches there
    for i, (x, shared) in enumerate(zip(sequences, shared_lengths)):
        if len(x) - shared > branch_length:
            raise UserError(
                f"a training sequence has {len(x) - shared} tokens of its own "
                f"but a branch holds {branch_length}: raise bin_length"
            )
        prefix = x.tokens[:shared].tobytes()
        b, branches = last_bin.get(prefix, (num_bins, branches_per_bin))
        if branches == branches_per_bin:
            b, branches, num_bins = num_bins, 0, num_bins + 1
        last_bin[prefix] = b, branches + 1
        bin_index[i], bin_offset[i] = b, prefix_length + branches * branch_length - shared
    return PackedLayout(
        sequences=sequences,
        bin_length=prefix_length + branches_per_bin * branch_length,
        num_bins=max(multiple, -(-num_bins // multiple) * multiple),
        bin_index=bin_index,
        bin_offset=bin_offset,
        shared_prefix_length=shared_lengths,
        prefix_length=prefix_length,
        branch_length=branch_length,
    )


def split_bins(packed: T, bins_per_piece: int) -> list[T]:
    """A pytree of packed arrays [bins, ...] in pieces of `bins_per_piece` bins."""
    first, *_ = jax.tree.leaves(packed)
    return [
        jax.tree.map(lambda x, i=i: x[i : i + bins_per_piece], packed)
        for i in range(0, len(first), bins_per_piece)
    ]
