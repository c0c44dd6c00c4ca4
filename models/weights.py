"""Weights in a folder of safetensors files: read slice by slice straight into sharded arrays, and written back."""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from agentrl_jax.errors import UserError

Index = tuple[slice, ...]
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
BLOCK = 2**24  # numbers read at once, so that a large tensor is never on the host twice
SHARD = 4 * 2**30  # bytes a written file holds at most


class Tensors:
    """The tensors of a folder's safetensors files, by name; nothing is read before it is asked for.

    Raises:
        UserError: no such files, one that the index names is missing, one is truncated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for path in _files(folder):
            try:
                with safe_open(path, framework="np") as file:
                    for name in file.keys():  # noqa: SIM118 - no dict
                        view = file.get_slice(name)
                        self._file[name], self.shapes[name], self.dtypes[name] = path, tuple(view.get_shape()), view.get_dtype()
            except (SafetensorError, OSError) as error:
                raise UserError(f"{path} is truncated or damaged: {error}") from error

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise UserError where the folder has no tensor of that name, shape and a floating-point type."""
        if name not in self.shapes:
            raise UserError(f"{self.folder} has no tensor {name}, which its config.json asks for")
        if self.shapes[name] != shape:
            raise UserError(f"{self.folder}: the tensor {name} has shape {list(self.shapes[name])}, its config.json asks for {list(shape)}")
        if self.dtypes[name] not in FLOATS:
            known = ", ".join(FLOATS.values())
            raise UserError(f"{self.folder}: the tensor {name} holds {self.dtypes[name]}: only {known} can be read; dequantise it first")

    def read(self, name: str, index: Index, out: np.ndarray) -> None:
        """Fill `out` with a slice of a tensor, converted to its dtype, some rows at a time."""
        rows = range(*index[0].indices(self.shapes[name][0]))
        step = max(1, BLOCK // max(1, math.prod(out.shape[1:])))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            with safe_open(self._file[name], framework="np") as file:  # reopened: mapped pages count as memory until closed
                out[start : start + step] = file.get_slice(name)[(slice(some[0], some[-1] + 1), *index[1:])]


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UserError(f"{index} is damaged") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise UserError(
                f"{folder} lacks {missing[0]}, which its index names ({len(names) - len(missing)} of {len(names)} files are there)"
            )
        return [folder / name for name in names]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise UserError(f"{folder} holds no .safetensors files")
    return found


@dataclass(frozen=True)
class Layout:
    """Where one of our arrays lies among a folder's tensors.

    Ours is [*stack, *inner, *outer]: one tensor for each place in the stack (`{0}`, `{1}` in its name), in a file
    [outer, inner] flattened, as torch keeps the weight of `y = x W^T`. With `inner` 0 the order is the same, and axes
    are flattened where the file has fewer.
    """

    name: str
    inner: int = 0  # how many axes are contracted
    stack: int = 0  # how many leading axes choose the tensor
    start: int = 0  # of the first stack axis
    flat: bool = False  # all axes are one in the file

    def stored_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Of each tensor, for our array of that shape."""
        own = tuple(shape[self.stack :])
        if self.inner:
            return math.prod(own[self.inner :]), math.prod(own[: self.inner])
        return (math.prod(own),) if self.flat else own

    def tensor(self, place: Sequence[int]) -> str:
        """The name of the tensor at a place in the stack."""
        return self.name.format(*(i + (self.start if axis == 0 else 0) for axis, i in enumerate(place)))

    def names(self, shape: Sequence[int]) -> list[str]:
        """Of every tensor of our array."""
        return [self.tensor(place) for place in np.ndindex(*shape[: self.stack])]

    def read(self, tensors: Tensors, shape: Sequence[int], index: Index, dtype: str) -> np.ndarray:
        """A slice of our array of that shape."""
        bounds = [part.indices(size)[:2] for part, size in zip(index, shape)]
        out = np.empty([stop - start for start, stop in bounds], jnp.dtype(dtype))
        own, within = shape[self.stack :], bounds[self.stack :]
        for at in np.ndindex(out.shape[: self.stack]):
            name = self.tensor([start + i for i, (start, _) in zip(at, bounds)])
            if not self.inner:
                target = out[at].reshape(-1) if self.flat else out[at]
                tensors.read(name, (_flat(own, within),) if self.flat else tuple(slice(*b) for b in within), target)
                continue
            columns, rows = (_flat(own[part], within[part]) for part in (slice(None, self.inner), slice(self.inner, None)))
            target = out[at].reshape(columns.stop - columns.start, -1)  # of fresh memory: a view
            tensors.read(name, (rows, columns), target.T)
        return out

    def write(self, piece: np.ndarray) -> np.ndarray:
        """One tensor as stored, from our array at one place in the stack."""
        if self.inner:
            return np.ascontiguousarray(piece.reshape(math.prod(piece.shape[: self.inner]), -1).T)
        return np.ascontiguousarray(piece.reshape(-1) if self.flat else piece)


def _flat(sizes: Sequence[int], bounds: Sequence[tuple[int, int]]) -> slice:
    """The slice of flattened axes; only the first may be split."""
    inner = math.prod(sizes[1:])
    if any(bound != (0, size) for bound, size in zip(bounds[1:], sizes[1:])):
        raise UserError(f"a weight's axes {list(sizes)} cannot be split at {list(bounds)}: only the first of a group may be")
    return slice(bounds[0][0] * inner, bounds[0][1] * inner)


def load_array(tensors: Tensors, layout: Layout, shape: tuple[int, ...], sharding: Any, dtype: str) -> jax.Array:
    """Our array, each process reading only the slices that its devices hold, one layer at a time.

    Raises:
        UserError: a tensor is missing or has another shape or type.
    """
    for name in layout.names(shape):
        tensors.check(name, layout.stored_shape(shape))
    if not layout.stack:
        return jax.make_array_from_callback(shape, sharding, lambda index: layout.read(tensors, shape, index or (), dtype))
    one = sharding
    if isinstance(sharding, NamedSharding):
        if sharding.spec and sharding.spec[0] is not None:
            raise UserError("layers cannot be split over a mesh axis")
        one = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
    whole, put = jnp.zeros(shape, dtype, device=sharding), _put(sharding)
    for i in range(shape[0]):

        def layer(index: Index | None, i: int = i) -> np.ndarray:
            return layout.read(tensors, shape, (slice(i, i + 1), *(index or ())), dtype)[0]

        whole = put(whole, jax.make_array_from_callback(shape[1:], one, layer), jnp.int32(i))
        whole.block_until_ready()  # or the host would read ahead of the device and hold several layers
    return whole


@functools.cache
def _put(sharding: Any) -> Any:
    """`whole[i] = x`, in place."""
    return jax.jit(lambda whole, x, i: jax.lax.dynamic_update_index_in_dim(whole, x, i, 0), donate_argnums=0, out_shardings=sharding)


def load_tree(tensors: Tensors, layouts: Any, shapes: Any, shardings: Any, dtype: str) -> Any:
    """A tree of arrays from trees of `Layout`, shapes and shardings; `shardings` None: the default device."""
    here = SingleDeviceSharding(jax.local_devices()[0])
    is_layout = lambda x: isinstance(x, Layout)  # noqa: E731
    flat, tree = jax.tree.flatten(layouts, is_leaf=is_layout)
    wanted = [here] * len(flat) if shardings is None else tree.flatten_up_to(shardings)
    arrays = [load_array(tensors, *part, dtype) for part in zip(flat, [x.shape for x in tree.flatten_up_to(shapes)], wanted)]
    return tree.unflatten(arrays)


def check_all_used(tensors: Tensors, layouts: Any, shapes: Any, ignored: Sequence[str] = ()) -> None:
    """Raise UserError where the folder holds a tensor that no layout names and whose name ends in none of `ignored`."""
    flat, tree = jax.tree.flatten(layouts, is_leaf=lambda x: isinstance(x, Layout))
    used = {name for layout, x in zip(flat, tree.flatten_up_to(shapes)) for name in layout.names(x.shape)}
    more = sorted(name for name in set(tensors.shapes) - used if not name.endswith(tuple(ignored)))
    if more:
        others = f" and {len(more) - 1} more" if len(more) > 1 else ""
        raise UserError(f"{tensors.folder} holds the tensor {more[0]}{others}, which its config.json does not describe")


@dataclass(frozen=True, eq=False)
class Stored:
    """One tensor of a folder to be written: a place in the stack of one of our arrays."""

    layout: Layout
    array: jax.Array
    place: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.array.shape[self.layout.stack :]) * self.array.dtype.itemsize

    def fetch(self) -> np.ndarray:
        """On the host, as stored. All processes must call it where the array is spread over several."""
        piece = self.array[self.place]
        whole = piece if piece.is_fully_addressable else multihost_utils.process_allgather(piece, tiled=True)
        return self.layout.write(np.asarray(whole))


def stored(layouts: Any, params: Any) -> dict[str, Stored]:
    """The tensors of a tree of arrays, by name."""
    flat, tree = jax.tree.flatten(layouts, is_leaf=lambda x: isinstance(x, Layout))
    parts = zip(flat, tree.flatten_up_to(params))
    return {
        layout.tensor(place): Stored(layout, array, place) for layout, array in parts for place in np.ndindex(*array.shape[: layout.stack])
    }


def save_tensors(folder: Path, tensors: dict[str, Stored], limit: int = SHARD, name: str = "model.safetensors") -> None:
    """Write safetensors files of at most `limit` bytes, with an index where they are several, as `transformers` does.

    Process 0 writes. One file is on the host at a time.
    """
    files: list[list[str]] = [[]]
    room = limit
    for key, tensor in tensors.items():
        if tensor.nbytes > room and files[-1]:
            files.append([])
            room = limit
        files[-1].append(key)
        room -= tensor.nbytes
    several, writes, where = len(files) > 1, jax.process_index() == 0, {}
    for i, names in enumerate(files):
        path = folder / (name.replace(".", f"-{i + 1:05}-of-{len(files):05}.") if several else name)
        part = {key: tensors[key].fetch() for key in names}
        if writes:
            save_file(part, path, metadata={"format": "pt"})
            path.chmod(0o644)  # it comes readable for its owner alone
        where |= dict.fromkeys(names, path.name)
    if several and writes:
        index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())}, "weight_map": where}
        (folder / f"{name}.index.json").write_text(json.dumps(index, indent=2) + "\n")
