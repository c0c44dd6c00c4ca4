"""Trees of parameters in safetensors files: read slice by slice into sharded arrays, and written
back.
"""

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
from safetensors.numpy import save_file

from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.safetensors import Index, SafetensorsFolder
from agentrl_jax.models.hf.tensor_layout import TensorLayout

MAX_FILE_BYTES = 4 * 2**30  # of a written file


def load_array(
    tensors: SafetensorsFolder,
    layout: TensorLayout,
    shape: tuple[int, ...],
    sharding: Any,
    dtype: str,
) -> jax.Array:
    """One parameter array; each process reads only the slices that its devices hold, one layer at a
    time.

    Raises:
        UserError: a tensor is missing or has another shape or type.
    """
    for name in layout.tensor_names(shape):
        tensors.check_tensor(name, layout.file_shape(shape))
    if not layout.stack_axes:
        return jax.make_array_from_callback(
            shape, sharding, lambda index: layout.read_slice(tensors, shape, index or (), dtype)
        )
    layer_sharding = sharding
    if isinstance(sharding, NamedSharding):
        if sharding.spec and sharding.spec[0] is not None:
            raise UserError("layers cannot be split over a mesh axis")
        layer_sharding = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
    stacked, write = jnp.zeros(shape, dtype, device=sharding), _layer_writer(sharding)
    for i in range(shape[0]):

        def read_layer(index: Index | None, i: int = i) -> np.ndarray:
            return layout.read_slice(tensors, shape, (slice(i, i + 1), *(index or ())), dtype)[0]

        layer = jax.make_array_from_callback(shape[1:], layer_sharding, read_layer)
        stacked = write(stacked, layer, jnp.int32(i))
        # or the host would read ahead of the device and hold several layers
        stacked.block_until_ready()
    return stacked


@functools.cache
def _layer_writer(sharding: Any) -> Any:
    """`stacked[i] = layer`, in place."""
    return jax.jit(
        lambda stacked, layer, i: jax.lax.dynamic_update_index_in_dim(stacked, layer, i, 0),
        donate_argnums=0,
        out_shardings=sharding,
    )


def load_tree(
    tensors: SafetensorsFolder, tensor_layouts: Any, shapes: Any, shardings: Any, dtype: str
) -> Any:
    """A tree of arrays from trees of `TensorLayout`, shapes and shardings; `shardings` None: the
    default device.
    """
    layouts, tree = jax.tree.flatten(tensor_layouts, is_leaf=_is_layout)
    if shardings is None:
        flat_shardings = [SingleDeviceSharding(jax.local_devices()[0])] * len(layouts)
    else:
        flat_shardings = tree.flatten_up_to(shardings)
    arrays = [
        load_array(tensors, layout, x.shape, sharding, dtype)
        for layout, x, sharding in zip(layouts, tree.flatten_up_to(shapes), flat_shardings)
    ]
    return tree.unflatten(arrays)


def _is_layout(x: Any) -> bool:
    return isinstance(x, TensorLayout)


def check_all_used(
    tensors: SafetensorsFolder, tensor_layouts: Any, shapes: Any, ignored: Sequence[str] = ()
) -> None:
    """Raise UserError where the folder holds a tensor that no layout names and whose name ends in
    none of `ignored`.
    """
    layouts, tree = jax.tree.flatten(tensor_layouts, is_leaf=_is_layout)
    used = {
        name
        for layout, x in zip(layouts, tree.flatten_up_to(shapes))
        for name in layout.tensor_names(x.shape)
    }
    unused = [name for name in set(tensors.shapes) - used if not name.endswith(tuple(ignored))]
    if unused:
        others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise UserError(
            f"{tensors.folder} holds the tensor {min(unused)}{others}, "
            "which its config.json does not describe"
        )


@dataclass(frozen=True, eq=False)
class TensorToSave:
    """One tensor to be written: an index of the stack of a parameter array."""

    layout: TensorLayout
    array: jax.Array
    stack_index: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.array.shape[self.layout.stack_axes :]) * self.array.dtype.itemsize

    def to_host(self) -> np.ndarray:
        """On the host, as stored; all processes call it if the array is spread over several."""
        x = self.array[self.stack_index]
        if not x.is_fully_addressable:
            x = multihost_utils.process_allgather(x, tiled=True)
        return self.layout.to_file_order(np.asarray(x))


def tensors_to_save(tensor_layouts: Any, params: Any) -> dict[str, TensorToSave]:
    """The tensors of a tree of arrays, by name."""
    layouts, tree = jax.tree.flatten(tensor_layouts, is_leaf=_is_layout)
    return {
        layout.tensor_name(index): TensorToSave(layout, array, index)
        for layout, array in zip(layouts, tree.flatten_up_to(params))
        for index in np.ndindex(*array.shape[: layout.stack_axes])
    }


def save_tensors(
    folder: Path,
    tensors: dict[str, TensorToSave],
    max_file_bytes: int = MAX_FILE_BYTES,
    name: str = "model.safetensors",
) -> None:
    """Write safetensors files of at most `max_file_bytes`, with an index if there are several, as
    `transformers` does.

    Process 0 writes. The host holds one file at a time.
    """
    files: list[list[str]] = [[]]
    room = max_file_bytes
    for key, tensor in tensors.items():
        if tensor.nbytes > room and files[-1]:
            files.append([])
            room = max_file_bytes
        files[-1].append(key)
        room -= tensor.nbytes
    is_sharded, is_writer, weight_map = len(files) > 1, jax.process_index() == 0, {}
    for i, names in enumerate(files):
        suffix = f"-{i + 1:05}-of-{len(files):05}." if is_sharded else "."
        path = folder / name.replace(".", suffix)
        part = {key: tensors[key].to_host() for key in names}
        if is_writer:
            save_file(part, path, metadata={"format": "pt"})
            path.chmod(0o644)  # it is created readable for its owner alone
        weight_map |= dict.fromkeys(names, path.name)
    if is_sharded and is_writer:
        index = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
            "weight_map": weight_map,
        }
        (folder / f"{name}.index.json").write_text(json.dumps(index, indent=2) + "\n")
