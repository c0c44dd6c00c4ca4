"""One mesh with word axes, and one table from logical to mesh axes: of weights, of activations, of functions run per shard."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from agentrl_jax.errors import UserError

AXES = ("data", "fsdp", "expert", "tensor")
ROWS = ("data", "fsdp")  # what the rows of a batch are split over

# Which mesh axes a logical axis is split over; within an array the first that divides wins, all else is replicated.
TABLE: dict[str, tuple[str, ...]] = {
    "rows": ROWS,
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "hidden": ("tensor",),
    "embed": ("fsdp",),
    "experts": ("expert",),
}

Names = tuple[str | None, ...]  # the logical axes of an array; None: not split


@dataclass
class MeshConfig:
    """Devices per axis; -1 takes what is left. `data` and `fsdp` split the batch; `fsdp`, `expert` and `tensor` the weights.

    Devices that differ in `expert` or `tensor` alone hold the same rows: each computes its share of the experts, heads,
    hidden units and vocabulary for them, and the shares are summed.

    Where some devices are joined by a slower network (TPU slices, or hosts whose devices know of no slice), the `dcn_` sizes say
    how an axis goes on over it; then the others are those of one slice. 4 slices of 8 chips, `fsdp=8, dcn_data=4`: weights are
    split within a slice, and only the gradient's sum passes between them.
    """

    data: int = -1
    fsdp: int = 1
    expert: int = 1
    tensor: int = 1
    dcn_data: int = 1
    dcn_fsdp: int = 1
    dcn_expert: int = 1
    dcn_tensor: int = 1
    each: int = 0  # so many devices of every process, its first ones; 0: all
    memory_gb: float = 0.0  # of a device: `fsdp` and `data` are then chosen by what the weights need; 0: as they are above

    def within(self) -> tuple[int, ...]:
        return self.data, self.fsdp, self.expert, self.tensor

    def over_network(self) -> tuple[int, ...]:
        return self.dcn_data, self.dcn_fsdp, self.dcn_expert, self.dcn_tensor


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh over all devices, or those given. Raises UserError where the sizes do not multiply to their number."""
    if devices is None and config.each:
        devices = first_of_each(config.each, jax.devices())
    devices = jax.devices() if devices is None else devices
    if set(config.over_network()) == {1}:
        sizes = _filled(config.within(), len(devices))
        found = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)  # 2 x 4 x 2 on a torus of 4 x 4 too
    else:
        found = arranged(config, devices)
    return Mesh(found, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arranged(config: MeshConfig, devices: Sequence[Any]) -> np.ndarray:
    """The devices of several slices as a mesh has them, [data, fsdp, expert, tensor]; along each axis those of a slice are together."""
    slices = slices_of(devices)
    if len(devices) % len(slices):
        raise UserError(f"{len(devices)} devices cannot be split evenly over {len(slices)} slices")
    outer = _filled(config.over_network(), len(slices), "dcn_", "slices")
    inner = _filled(config.within(), len(devices) // len(slices), of="devices of a slice")
    return mesh_utils.create_hybrid_device_mesh(
        inner, outer, devices, process_is_granule=not _sliced(devices), allow_split_physical_axes=True
    )


def _filled(sizes: Sequence[int], count: int, prefix: str = "", of: str = "devices") -> tuple[int, ...]:
    """The sizes with what is left of `count` in place of -1."""
    said = ", ".join(f"{prefix}{axis}={n}" for axis, n in zip(AXES, sizes))
    fixed = math.prod(n for n in sizes if n > 0)
    if sizes.count(-1) > 1 or any(n == 0 or n < -1 for n in sizes) or count % fixed:
        raise UserError(f"a mesh of {said} does not fit {count} {of}")
    if -1 not in sizes and fixed != count:
        raise UserError(f"a mesh of {said} uses {fixed} of {count} {of}: set one axis to -1")
    return tuple(count // fixed if n == -1 else n for n in sizes)


def _sliced(devices: Sequence[Any]) -> bool:
    return len({getattr(device, "slice_index", None) for device in devices}) > 1


def slices_of(devices: Sequence[Any]) -> set[int]:
    """The groups of devices that a slower network joins: slices where the devices know of several, or else processes."""
    return {device.slice_index if _sliced(devices) else device.process_index for device in devices}


def first_of_each(count: int, devices: Sequence[Any]) -> list[Any]:
    """The first `count` devices of every process. Raises UserError where one has fewer."""
    taken = Counter[int]()
    kept = []
    for device in devices:
        taken[device.process_index] += 1
        if taken[device.process_index] <= count:
            kept.append(device)
    if count < 0 or min(taken.values()) < count:
        raise UserError(f"config.mesh.each={count}, but a process has {min(taken.values())} devices")
    return kept


def shards(mesh: Mesh | AbstractMesh, axes: tuple[str, ...]) -> int:
    """Into how many parts these mesh axes split an array; an axis that the mesh lacks is of size 1."""
    return math.prod(mesh.shape.get(axis, 1) for axis in axes)


def is_names(x: Any) -> bool:
    """Whether `x` names the axes of one array: a leaf of a tree of axes."""
    return isinstance(x, tuple) and all(name is None or isinstance(name, str) for name in x)


def partition(mesh: Mesh | AbstractMesh, names: Names, shape: tuple[int, ...]) -> PartitionSpec:
    """How the table splits an array over the axes of `mesh` that are not manual already.

    ("rows", None, "hidden") of shape (8, 5, 12) on data 2, fsdp 2, tensor 4  ->  (("data", "fsdp"), None, "tensor")
    """
    free = {axis for axis, kind in zip(mesh.axis_names, mesh.axis_types) if kind == AxisType.Auto}
    spec: list[tuple[str, ...] | None] = []
    for name, size in zip(names, shape, strict=True):
        axes = tuple(axis for axis in TABLE.get(name or "", ()) if axis in mesh.shape)
        fits = axes and free.issuperset(axes) and size % shards(mesh, axes) == 0
        spec.append(axes if fits else None)
        free -= set(axes) if fits else set()
    return PartitionSpec(*(axes[0] if axes and len(axes) == 1 else axes for axes in spec))


def constrain(x: jax.Array, *names: str | None) -> jax.Array:
    """`x`, split over the ambient mesh as its logical axes say; `x` itself where there is no mesh.

    An axis that is None is whole on every device: `constrain(kernel, None, "hidden")` gathers it over `fsdp`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or AxisType.Auto not in mesh.axis_types:
        return x
    return jax.lax.with_sharding_constraint(x, partition(mesh, names, x.shape))


def per_shard(fn: Callable[..., Any], in_axes: tuple[Names, ...], out_axes: Any, over: tuple[str, ...] = AXES) -> Callable[..., Any]:
    """`fn` run by every device of the ambient mesh on its own part of the arrays: what the compiler splits badly or not at all.

    A logical axis is split only where all its sizes divide; each array takes a mesh axis once, for the first name that
    may have it. So with `kv_heads` before `heads`, queries [rows, T, kv_heads, heads, H] are split over key heads where
    those are enough, and else over the queries of each, with keys whole. `fn` must be independent along the split axes.
    A tree of arrays with the axes () is whole everywhere. Mesh axes that `over` leaves out stay the compiler's business.
    """

    def call(*args: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or shards(mesh, over) == 1 or AxisType.Auto not in mesh.axis_types:
            return fn(*args)
        split = {name: set(TABLE[name]) <= set(over) for names in in_axes for name in names if name}
        for names, x in zip(in_axes, args, strict=True):
            for name, size in zip(names, x.shape if names else (), strict=True):
                if name:
                    split[name] &= size % shards(mesh, TABLE[name]) == 0

        def spec(names: Names) -> PartitionSpec:
            kept = tuple(name if name and split[name] else None for name in names)
            return partition(mesh, kept, (0,) * len(kept))  # a size of 0 divides by all: what may be split is known

        in_specs = tuple(spec(names) for names in in_axes)
        out_specs = jax.tree.map(spec, out_axes, is_leaf=is_names)
        manual = set(over) & set(mesh.axis_names)
        return jax.shard_map(fn, in_specs=in_specs, out_specs=out_specs, axis_names=manual, check_vma=False)(*args)

    return call


def automatic(mesh: Mesh) -> Mesh:
    """The mesh with axes that the compiler may split over: `jax.make_mesh` makes explicit ones unless told otherwise.

    Raises:
        UserError: an axis is none of `AXES`, so that nothing would ever be split over it.
    """
    unknown = [name for name in mesh.axis_names if name not in AXES]
    if unknown:
        raise UserError(f"a mesh has the axes {', '.join(AXES)} or some of them, not {unknown[0]!r}")
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def weight_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """A NamedSharding per weight. `axes` and `shapes` are like trees: tuples of logical names, and arrays or shapes."""
    mesh = automatic(mesh)
    return jax.tree.map(lambda names, x: NamedSharding(mesh, partition(mesh, names, x.shape)), axes, shapes, is_leaf=is_names)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`; of any array whose first axis is B."""
    return NamedSharding(mesh, PartitionSpec(tuple(axis for axis in ROWS if axis in mesh.shape)))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def platform() -> str:
    """What a program traced now will run on: the ambient mesh's devices, described ones too, or else the default device's.

    `cpu`, `tpu`, `cuda` or `rocm`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    device = mesh.abstract_device if not mesh.empty and mesh.abstract_device else jax.devices()[0]
    if device.platform != "gpu":
        return device.platform
    return "cuda" if "NVIDIA" in device.device_kind else "rocm"
