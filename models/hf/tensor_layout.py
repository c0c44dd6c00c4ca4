"""The layout of one parameter array in a folder of safetensors files."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.safetensors import Index, SafetensorsFolder


@dataclass(frozen=True)
class TensorLayout:
    """The tensors of a folder that hold one parameter array.

    The array is [*stack, *inner, *outer]: one tensor for each index of the stack (`{0}`, `{1}` in
    its name), in the file [outer, inner] flattened, as torch stores the weight of `y = x W^T`. With
    `contracted_axes` 0 the order is the same. A convolution over patches has its inner axis in
    several in the file (`inner_shape`).
    """

    name: str
    contracted_axes: int = 0  # number of inner axes
    stack_axes: int = 0  # number of leading axes that index tensors
    first_index: int = 0  # of the first stack axis
    is_flattened: bool = False  # all axes are flattened to one in the file
    inner_shape: tuple[int, ...] = ()  # the inner axes in the file; (): one

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each tensor, for an array of that shape."""
        axes, inner = tuple(shape[self.stack_axes :]), self.contracted_axes
        if inner:
            inner_axes = self.inner_shape or (math.prod(axes[:inner]),)
            return math.prod(axes[inner:]), *inner_axes
        return (math.prod(axes),) if self.is_flattened else axes

    def tensor_name(self, stack_index: Sequence[int]) -> str:
        """The name of the tensor at an index of the stack."""
        return self.name.format(
            *(i + (self.first_index if axis == 0 else 0) for axis, i in enumerate(stack_index))
        )

    def tensor_names(self, shape: Sequence[int]) -> list[str]:
        """The names of all tensors of an array of that shape."""
        return [self.tensor_name(index) for index in np.ndindex(*shape[: self.stack_axes])]

    def read_slice(
        self, tensors: SafetensorsFolder, shape: Sequence[int], index: Index, dtype: str
    ) -> np.ndarray:
        """A slice of the array, which has that shape."""
        bounds = [part.indices(size)[:2] for part, size in zip(index, shape)]
        out = np.empty([stop - start for start, stop in bounds], jnp.dtype(dtype))
        sizes, within, inner = (
            shape[self.stack_axes :],
            bounds[self.stack_axes :],
            self.contracted_axes,
        )
        for i in np.ndindex(out.shape[: self.stack_axes]):
            name = self.tensor_name([start + j for j, (start, _) in zip(i, bounds)])
            if inner:
                columns = _flat_slice(sizes[:inner], within[:inner])
                self._read_matrix(tensors, name, columns, (sizes[inner:], within[inner:]), out[i])
            elif self.is_flattened:
                for lead, part in _contiguous_parts(sizes, within):
                    tensors.read_slice(name, (part,), out[i][lead].reshape(-1))
            else:
                tensors.read_slice(name, tuple(slice(*b) for b in within), out[i])
        return out

    def _read_matrix(
        self,
        tensors: SafetensorsFolder,
        name: str,
        columns: slice,
        outer: tuple[Sequence[int], Sequence[tuple[int, int]]],
        out: np.ndarray,
    ) -> None:
        """Fill [*inner, *outer] from the rows of the file that the sizes and bounds of the outer
        axes select.
        """
        shape = self.inner_shape or (columns.stop - columns.start,)
        inner_index: Index = (columns,)
        if self.inner_shape:
            if (columns.start, columns.stop) != (0, math.prod(shape)):
                raise UserError("the inputs of a convolution cannot be split over devices")
            inner_index = tuple(slice(0, size) for size in shape)
        inner = (slice(None),) * (out.ndim - len(outer[0]))
        for index, rows in _contiguous_parts(*outer):
            # `out` is contiguous along what is flattened: these are views of it
            view = out[inner + index].reshape(*shape, -1)
            tensors.read_slice(name, (rows, *inner_index), np.moveaxis(view, -1, 0))

    def to_file_order(self, array: np.ndarray) -> np.ndarray:
        """One tensor as stored, from the array at one index of the stack."""
        if self.contracted_axes:
            inner = math.prod(array.shape[: self.contracted_axes])
            flat = array.reshape(inner, -1).T
            return np.ascontiguousarray(flat.reshape(-1, *(self.inner_shape or (inner,))))
        return np.ascontiguousarray(array.reshape(-1) if self.is_flattened else array)


def _contiguous_parts(
    sizes: Sequence[int], bounds: Sequence[tuple[int, int]]
) -> Iterator[tuple[tuple[int, ...], slice]]:
    """The slices of flattened axes that these bounds select, one for each index, from the bounds'
    start, of the axes before the one that is split.
    """
    split = [axis for axis, size in enumerate(sizes) if bounds[axis] != (0, size)]
    lead = split[-1] if split else 0
    rest = _flat_slice(sizes[lead:], bounds[lead:])
    for index in np.ndindex(*(stop - start for start, stop in bounds[:lead])):
        first = [start + j for j, (start, _) in zip(index, bounds)]
        offset = sum(j * math.prod(sizes[axis + 1 :]) for axis, j in enumerate(first))
        yield index, slice(offset + rest.start, offset + rest.stop)


def _flat_slice(sizes: Sequence[int], bounds: Sequence[tuple[int, int]]) -> slice:
    """The slice of flattened axes; only the first may be split."""
    inner = math.prod(sizes[1:])
    if any(bound != (0, size) for bound, size in zip(bounds[1:], sizes[1:])):
        raise UserError(
            f"a weight's axes {list(sizes)} cannot be split at {list(bounds)}: "
            "only the first of a group may be"
        )
    return slice(bounds[0][0] * inner, bounds[0][1] * inner)
