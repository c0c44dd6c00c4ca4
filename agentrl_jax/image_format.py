"""`ImageFormat`: how a policy that sees takes images: patches in rows, tokens, positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from agentrl_jax.errors import UserError
from agentrl_jax.image_grid import Grid, grid_layout
from agentrl_jax.pytree import AnyArray, pytree_dataclass, static_field


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """An image, or frames of a video, as patches.

    Patches are in Hugging Face's order: frame by frame, and in a frame square by square of
    `merge_size` x `merge_size` patches; a patch is its [channels, temporal_patch_size, patch_size,
    patch_size] numbers, flattened.
    """

    patches: np.ndarray  # float32 [t h w, patch numbers]
    grid: Grid


@dataclass(frozen=True)
class ImageSpan:
    """Where the placeholder tokens of an image stand in a sequence: consecutive, from `start`."""

    start: int
    grid: Grid
    seconds_per_patch: float = 1.0  # of a video: time between temporal patches


@dataclass(frozen=True, eq=False)
class ImageLayout:
    """What the images of a sequence of T tokens change about its positions; see `PolicyInputs`.

    A token at column c >= T, that is, one sampled later, has rotary position c + `rope_delta` on
    all axes.
    """

    rope_positions: np.ndarray | None  # int32 [3, T]; None: columns
    rope_delta: int
    visible_until: np.ndarray | None  # int32 [T]; None: each token's own column


@pytree_dataclass
class PackedImages:
    """Images as rows of N patches, each row with M = N / merge_size^2 tokens; see
    `ImageFormat.pack`.

    Patches of padding are zero and of segment 0.
    """

    patches: Float[AnyArray, "R N P"]
    coordinates: Int[AnyArray, "R N 2"]  # row and column of each patch in its image
    segment_ids: Int[AnyArray, "R N"]  # frames, which attend to themselves
    window_ids: Int[AnyArray, "R N"] | None  # windows of frames; None: no layer is windowed
    # the entries of the learned table that a patch's position interpolates; None: no table
    position_indices: Int[AnyArray, "R N 4"] | None
    position_weights: Float[AnyArray, "R N 4"] | None
    token_order: Int[AnyArray, "R M"]  # the tower's token of each token, in the order of prompts
    max_frame: int = static_field(default=0)  # patches of the largest frame; 0: unknown


@pytree_dataclass
class EncodedImages:
    """What the frozen part of a vision tower computes of rows of images, in the order of prompts;
    see `FrozenTower`.
    """

    states: Float[AnyArray, "R M S"]
    projected: bool = static_field(default=True)  # the projector is frozen too: they are features


@dataclass(frozen=True)
class ImageFormat:
    """The properties of a vision tower that the host must know."""

    patch_size: int  # pixels a side
    merge_size: int  # patches a side of the square that becomes one token
    # numbers of one token: the decoder's width, times 1 + the layers that features are added after
    feature_width: int
    temporal_patch_size: int = 1
    channels: int = 3
    image_token_id: int = -1  # the placeholder; -1: unknown
    video_token_id: int = -1
    window: int = 0  # patches a side of the windows of windowed layers; 0: there are none
    position_side: int = 0  # entries a side of the learned table of positions; 0: there is none
    fixed_side: int = 0  # patches a side of every image; 0: any
    multi_axis_rope: bool = False  # tokens of images have positions of three axes (M-RoPE)
    positions_per_second: float = 1.0  # on the temporal axis
    bidirectional: bool = False  # tokens of an image attend to all of it

    @property
    def patch_numbers(self) -> int:
        """The length of a flattened patch."""
        return self.channels * self.temporal_patch_size * self.patch_size**2

    @property
    def patches_per_token(self) -> int:
        return self.merge_size**2

    def count_tokens(self, grid: Grid) -> int:
        """The tokens of an image.

        Raises:
            UserError: the tower cannot take this grid.
        """
        frames, rows, columns = grid
        if min(grid) < 1 or rows % self.merge_size or columns % self.merge_size:
            raise UserError(
                f"an image of {rows} x {columns} patches ({frames} in time) cannot be split into "
                f"squares of {self.merge_size} x {self.merge_size}: resize it to a multiple of "
                f"{self.merge_size * self.patch_size} pixels"
            )
        if self.fixed_side and (rows, columns) != (self.fixed_side, self.fixed_side):
            raise UserError(
                f"this tower takes images of {self.fixed_side} x {self.fixed_side} patches, "
                f"not {rows} x {columns}"
            )
        return frames * rows * columns // self.patches_per_token

    def check(self, image: ImagePatches) -> None:
        """Raise `UserError` where the patches are not those of the grid."""
        self.count_tokens(image.grid)
        shape = int(np.prod(image.grid)), self.patch_numbers
        if image.patches.shape != shape:
            raise UserError(
                f"an image with a grid of {image.grid} has patches of shape {shape}, "
                f"not {image.patches.shape}"
            )
        if not np.isfinite(image.patches).all():
            raise UserError("an image's patches contain NaN or infinite numbers")

    def pack(
        self, rows: Sequence[Sequence[ImagePatches]], length: int, max_frame: int = 0
    ) -> PackedImages:
        """Rows of images, one after the other, padded to `length` patches.

        The tokens of a row's first image are its first, then those of the second, and so on.

        Args:
            rows: the images of each row.
            length: patches of a row.
            max_frame: the most patches of a frame, as the processor's budget allows them: rows that
                are longer than three times that cost time linear in their length. 0: unknown.

        Raises:
            UserError: a row or frame has more patches, or an image is not as this format describes
                it.
        """
        if length < 1 or length % self.patches_per_token:
            raise UserError(
                f"rows of patches have a multiple of {self.patches_per_token}, not {length}"
            )
        packed = _empty_rows(self, len(rows), length, max_frame)
        for row, images in enumerate(rows):
            start = last_frame = last_window = 0
            for image in images:
                self.check(image)
                grid = grid_layout(image.grid, self.merge_size, self.window, self.position_side)
                stop = start + len(image.patches)
                if max_frame and image.grid[1] * image.grid[2] > max_frame:
                    raise UserError(
                        f"a frame of {image.grid[1]} x {image.grid[2]} patches is larger than the "
                        f"{max_frame} that were allowed"
                    )
                if stop > length:
                    total = sum(len(image.patches) for image in images)
                    raise UserError(f"a row of {length} patches has no room for {total}")
                columns = slice(start, stop)
                packed.patches[row, columns] = image.patches[grid.order]
                packed.coordinates[row, columns] = grid.coordinates
                packed.segment_ids[row, columns] = grid.frames + last_frame
                last_frame += image.grid[0]
                if packed.window_ids is not None:
                    packed.window_ids[row, columns] = grid.windows + last_window
                    last_window += int(grid.windows[-1])
                if packed.position_indices is not None and packed.position_weights is not None:
                    packed.position_indices[row, columns] = grid.indices
                    packed.position_weights[row, columns] = grid.weights
                first = start // self.patches_per_token
                tokens = slice(first, first + len(grid.token_order))
                packed.token_order[row, tokens] = grid.token_order + first
                start = stop
        return packed

    def layout(self, length: int, spans: Sequence[ImageSpan]) -> ImageLayout:
        """Positions of a sequence of `length` tokens whose images stand at `spans`.

        With M-RoPE (Wang et al. 2024, arXiv:2409.12191) a text token has the next position p on all
        axes, and that of frame t, row i and column j of an image [p + t, p + i, p + j]; what
        follows an image of h x w tokens has p + max(h, w). In a video t is multiplied by
        `positions_per_second` and the time of a temporal patch, and rounded down.

        Raises:
            UserError: spans overlap or leave the sequence.
        """
        rope = np.zeros((3, length), np.int32)
        visible_until = np.arange(length, dtype=np.int32)
        column = position = 0
        for span in sorted(spans, key=lambda span: span.start):
            stop = span.start + self.count_tokens(span.grid)
            if span.start < column or stop > length:
                raise UserError(
                    f"an image of {stop - span.start} tokens at {span.start} overlaps another one "
                    f"or leaves the {length} tokens of its sequence"
                )
            text = span.start - column
            rope[:, column : span.start] = position + np.arange(text)
            position += text
            frames, rows, columns = span.grid
            rows, columns = rows // self.merge_size, columns // self.merge_size
            t, i, j = np.indices((frames, rows, columns)).reshape(3, -1)
            step = np.float32(self.positions_per_second) * np.float32(span.seconds_per_patch)
            times = (t.astype(np.float32) * step).astype(np.int32)
            rope[:, span.start : stop] = position + np.stack([times, i, j])
            position += max(rows, columns)
            visible_until[span.start : stop] = stop - 1
            column = stop
        rope[:, column:] = position + np.arange(length - column)
        delta = position - column
        return ImageLayout(
            rope if self.multi_axis_rope else None,
            delta if self.multi_axis_rope else 0,
            visible_until if self.bidirectional else None,
        )


def choose_bucket(count: int, buckets: Sequence[int]) -> int:
    """The smallest of `buckets` that holds `count` patches, so that few lengths are compiled.

    Raises:
        UserError: none does.
    """
    fitting = [size for size in buckets if size >= count]
    if not fitting:
        raise UserError(
            f"{count} patches do not fit the longest row of {max(buckets, default=0)}: "
            "allow longer rows or smaller images"
        )
    return min(fitting)


def _empty_rows(f: ImageFormat, rows: int, length: int, max_frame: int) -> PackedImages:
    shape, tokens = (rows, length), length // f.patches_per_token
    has_table = f.position_side > 0
    return PackedImages(
        patches=np.zeros((*shape, f.patch_numbers), np.float32),
        coordinates=np.zeros((*shape, 2), np.int32),
        segment_ids=np.zeros(shape, np.int32),
        window_ids=np.zeros(shape, np.int32) if f.window else None,
        position_indices=np.zeros((*shape, 4), np.int32) if has_table else None,
        position_weights=np.zeros((*shape, 4), np.float32) if has_table else None,
        token_order=np.tile(np.arange(tokens, dtype=np.int32), (rows, 1)),
        max_frame=max_frame,
    )
