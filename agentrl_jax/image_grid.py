"""The patches of an image in the order of a vision tower, with their windows and positions."""

import functools
from dataclasses import dataclass

import numpy as np

Grid = tuple[int, int, int]  # temporal patches, rows and columns of patches


@dataclass(frozen=True, eq=False)
class GridLayout:
    """What `PackedImages` holds of one image; patches in the order of the tower."""

    order: np.ndarray  # of the patches
    coordinates: np.ndarray
    frames: np.ndarray
    windows: np.ndarray
    indices: np.ndarray
    weights: np.ndarray
    token_order: np.ndarray


@functools.lru_cache(maxsize=1024)
def grid_layout(grid: Grid, merge: int, window: int, side: int) -> GridLayout:
    """Windows are contiguous in the tower's order, so that attention can be local."""
    frames, rows, columns = grid
    tokens = rows * columns // merge**2
    coordinates = np.moveaxis(np.indices((rows, columns)), 0, -1)
    squares = coordinates.reshape(rows // merge, merge, columns // merge, merge, 2)
    coordinates = squares.swapaxes(1, 2).reshape(-1, 2)
    window_side = max(window // merge, 1)
    token_row, token_column = np.indices((rows // merge, columns // merge)).reshape(2, -1)
    across = -(-(columns // merge) // window_side)
    window_ids = token_row // window_side * across + token_column // window_side
    order = np.argsort(window_ids, kind="stable") if window else np.arange(tokens)
    of_frame = np.repeat(np.arange(frames), tokens)
    all_order = np.tile(order, frames) + of_frame * tokens
    patch_order = (all_order[:, None] * merge**2 + np.arange(merge**2)).reshape(-1)
    windows = np.tile(window_ids[order], frames) + of_frame * (window_ids.max() + 1)
    coordinates = np.tile(coordinates, (frames, 1))[patch_order]
    indices, weights = _interpolate(coordinates, rows, columns, max(side, 1))
    return GridLayout(
        patch_order,
        coordinates.astype(np.int32),
        np.repeat(of_frame, merge**2).astype(np.int32) + 1,
        np.repeat(windows, merge**2).astype(np.int32) + 1,
        indices,
        weights,
        np.argsort(all_order).astype(np.int32),
    )


def _interpolate(
    coordinates: np.ndarray, rows: int, columns: int, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """The four entries of a table [side, side] around each patch and their bilinear weights, where
    the corners of the image lie on those of the table.
    """
    taps, weights = [], []
    for axis, size in enumerate((rows, columns)):
        place = coordinates[:, axis].astype(np.float32) * np.float32(side - 1) / max(size - 1, 1)
        low = np.floor(place)
        fraction = (place - low).astype(np.float32)
        taps.append(np.minimum(np.stack([low, low + 1], axis=1).astype(np.int32), side - 1))
        weights.append(np.stack([1 - fraction, fraction], axis=1))
    indices = taps[0][:, :, None] * side + taps[1][:, None, :]
    products = weights[0][:, :, None] * weights[1][:, None, :]
    return indices.reshape(-1, 4).astype(np.int32), products.reshape(-1, 4).astype(np.float32)
