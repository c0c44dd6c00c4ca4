"""The layout of one parameter array in a folder of safetensors files."""

import math
from collections.abc import Sequence
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
    `contracted_axes` 0 the order is the same.
    """

    name: str
    contracted_axes: int = 0  # number of inner axes
    stack_axes: int = 0  # number of leading axes that index tensors
    first_index: int = 0  # of the first stack axis
    is_flattened: bool = False  # all axes are flattened to one in the file

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each tensor, for an array of that shape."""
        axes, inner = tuple(shape[self.stack_axes :]), self.contracted_axes
        if inner:
            return math.prod(axes[inner:]), math.prod(axes[:inner])
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
                rows = _flat_slice(sizes[inner:], within[inner:])
                # `out` is contiguous: these are views of it
                view = out[i].reshape(columns.stop - columns.start, -1)
                tensors.read_slice(name, (rows, columns), view.T)
            elif self.is_flattened:
                tensors.read_slice(name, (_flat_slice(sizes, within),), out[i].reshape(-1))
            else:
                tensors.read_slice(name, tuple(slice(*b) for b in within), out[i])
        return out

    def to_file_order(self, array: np.ndarray) -> np.ndarray:
        """One tensor as stored, from the array at one index of the stack."""
        if self.contracted_axes:
            inner = math.prod(array.shape[: self.contracted_axes])
            return np.ascontiguousarray(array.reshape(inner, -1).T)
        return np.ascontiguousarray(array.reshape(-1) if self.is_flattened else array)


def _flat_slice(sizes: Sequence[int], bounds: Sequence[tuple[int, int]]) -> slice:
    """The slice of flattened axes; only the first may be split."""
    inner = math.prod(sizes[1:])
    if any(bound != (0, size) for bound, size in zip(bounds[1:], sizes[1:])):
        raise UserError(
            f"a weight's axes {list(sizes)} cannot be split at {list(bounds)}: "
            "only the first of a group may be"
        )
    return slice(bounds[0][0] * inner, bounds[0][1] * inner)
