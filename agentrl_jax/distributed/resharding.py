"""Arrays moved between meshes from device to device: no host reads them, and no process needs more
of an array than its own devices hold.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agentrl_jax.errors import UserError
from agentrl_jax.pytree import AnyArray

Index = tuple[tuple[int, int], ...]  # start and end of each axis


def reshard(x: AnyArray, sharding: NamedSharding) -> jax.Array:
    """`x` with another sharding, over devices of this process.

    A program on the devices of `x` brings it into a layout, `shared_layout`, each shard of which is
    a shard of the result; shards that belong on other devices are copied there. Where `x` spans
    processes, each of them calls this with the like sharding of its own devices.

    Returns:
        An array that may share the memory of `x`.
    """
    if not isinstance(x, jax.Array):
        return jax.device_put(x, sharding)
    if x.sharding.is_equivalent_to(sharding, x.ndim):
        return x
    targets = indices_of(sharding, x.shape)
    if not _every_process_holds(x, set(targets.values())):
        x = _laid_out(x, shared_layout(x, sharding))
    pieces: dict[Index, list[jax.Array]] = {}
    for shard in x.addressable_shards:
        pieces.setdefault(_index(shard.index, x.shape), []).append(shard.data)
    turns = {index: itertools.cycle(copies) for index, copies in pieces.items()}
    arrays = []
    for device, index in targets.items():
        local = [piece for piece in pieces.get(index, ()) if piece.devices() == {device}]
        if local:
            arrays.append(local[0])
            continue
        piece = next(turns[index]) if index in turns else _slice_of_copy(x, index)
        arrays.append(jax.device_put(piece, device))
    return jax.make_array_from_single_device_arrays(x.shape, sharding, arrays)


def shared_layout(x: Any, sharding: NamedSharding) -> NamedSharding:
    """A sharding over the devices of `x`, each process of which holds all shards of `sharding`.

    Where the number of these does not divide that of a process's devices, each holds all of `x`.

    Args:
        x: an array, or its shape and sharding.
        sharding: over devices of this process, or of one that is like it.

    Raises:
        UserError: processes have unequally many devices of `x`.
    """
    sources = _devices_by_process(x.sharding)
    spec, axes = sharding.spec, _used_axes(sharding)
    sizes = tuple(sharding.mesh.shape[axis] for axis in axes)
    copies, rest = divmod(sources.shape[1], math.prod(sizes))
    if rest:
        copies, sizes, axes, spec = sources.shape[1], (), (), PartitionSpec()
    if len(sources) == 1:
        sources = _with_own_devices_first(sources, sharding, axes)
    grid = sources.reshape(len(sources), copies, *sizes)
    return NamedSharding(Mesh(grid, ("process", "copy", *axes)), spec)


def indices_of(sharding: Any, shape: tuple[int, ...]) -> dict[Any, Index]:
    """What each of this process's devices holds of an array."""
    indices = sharding.addressable_devices_indices_map(shape)
    return {device: _index(index, shape) for device, index in indices.items()}


def _index(index: tuple[slice, ...], shape: tuple[int, ...]) -> Index:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _every_process_holds(x: jax.Array, indices: set[Index]) -> bool:
    """Whether the devices of each process hold all these parts of `x`."""
    by_process: dict[int, set[Index]] = {}
    for device, index in x.sharding.devices_indices_map(x.shape).items():
        by_process.setdefault(device.process_index, set()).add(_index(index, x.shape))
    return all(indices <= part for part in by_process.values())


def _devices_by_process(sharding: Any) -> np.ndarray:
    """The devices of a sharding [process, device], in the order of their ids."""
    by_process: dict[int, list[Any]] = {}
    for device in sorted(sharding.device_set, key=lambda device: device.id):
        by_process.setdefault(device.process_index, []).append(device)
    if len(set(map(len, by_process.values()))) > 1:
        raise UserError("every process must have equally many devices in the learner's mesh")
    return np.array([by_process[process] for process in sorted(by_process)], object)


def _devices(sharding: NamedSharding) -> np.ndarray:
    assert isinstance(sharding.mesh, Mesh)
    return np.asarray(sharding.mesh.devices)


def _used_axes(sharding: NamedSharding) -> tuple[str, ...]:
    """The mesh axes that split an array, in their order."""
    parts = [part if isinstance(part, tuple) else (part,) for part in sharding.spec if part]
    used = set(itertools.chain(*parts))
    return tuple(axis for axis in sharding.mesh.axis_names if axis in used)


def _with_own_devices_first(
    sources: np.ndarray, sharding: NamedSharding, axes: tuple[str, ...]
) -> np.ndarray:
    """`sources` in an order in which devices of `sharding` hold their own shards, if they are all
    among them.
    """
    names = sharding.mesh.axis_names
    others = [i for i, axis in enumerate(names) if axis not in axes]
    targets = _devices(sharding).transpose(*others, *map(names.index, axes)).ravel()
    if not set(targets) <= set(sources.flat):
        return sources
    rest = [device for device in sources.flat if device not in set(targets)]
    return np.array([[*targets, *rest]], object)


def first_step(x: Any, layout: NamedSharding) -> NamedSharding:
    """A sharding between those of `x` and a `shared_layout`, in which no device holds more than its
    part of `x`: from there devices that hold parts of a shard gather it. XLA alone would gather all
    of `x` on every device. The layout itself where nothing divides.

    Args:
        x: an array, or its shape and sharding.
        layout: over the same devices.
    """
    sizes = layout.mesh.shape
    parts = [*layout.spec, *[None] * (len(x.shape) - len(layout.spec))]
    counts = np.divide(x.shape, np.maximum(x.sharding.shard_shape(x.shape), 1))
    for axis in np.argsort(-counts, kind="stable"):
        names = parts[axis] or ()
        names = (*(names if isinstance(names, tuple) else (names,)), "process", "copy")
        if counts[axis] > 1 and x.shape[axis] % math.prod(sizes[name] for name in names) == 0:
            parts[axis] = names
            return NamedSharding(layout.mesh, PartitionSpec(*parts))
    return layout


@functools.cache
def layout_program(step: NamedSharding, layout: NamedSharding) -> Callable[[Any], jax.Array]:
    """The program that brings an array into a layout by way of another one on the same devices."""

    def bring(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, step)

    return jax.jit(bring, out_shardings=layout)


def _laid_out(x: jax.Array, layout: NamedSharding) -> jax.Array:
    """`x` in a sharding over the same devices."""
    source, step = x.sharding, first_step(x, layout)
    in_order = isinstance(source, NamedSharding) and np.array_equal(
        _devices(source).ravel(), _devices(layout).ravel()
    )
    if not in_order:
        # JAX runs a program of its own where the order of devices changes; else it would read `x`.
        x = jax.device_put(x, step)
    return layout_program(step, layout)(x)


def _slice_of_copy(x: jax.Array, index: Index) -> jax.Array:
    """A part of an array that each of its devices holds whole."""
    return jax.lax.slice(x.addressable_shards[0].data, *zip(*index))
