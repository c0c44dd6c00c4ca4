"""One mesh with named axes, and one table from logical axes to mesh axes.

The table shards weights, activations and functions that run per shard.
"""

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

MESH_AXES = ("data", "fsdp", "expert", "tensor")
BATCH_AXES = ("data", "fsdp")  # what the rows of a batch are split over

# Which mesh axes a logical axis is split over. Within an array each mesh axis goes to the first
# logical axis that it divides; everything else is replicated.
LOGICAL_AXIS_RULES: dict[str, tuple[str, ...]] = {
    "rows": BATCH_AXES,
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "hidden": ("tensor",),
    "embed": ("fsdp",),
    "experts": ("expert",),
}

LogicalAxes = tuple[str | None, ...]  # one name per array axis; None: not split


@dataclass
class MeshConfig:
    """Devices per axis; -1 takes all that are left.

    `data` and `fsdp` split the batch; `fsdp`, `expert` and `tensor` the weights. Devices that
    differ in `expert` or `tensor` alone hold the same rows: each computes its part of the experts,
    heads, hidden units and vocabulary for them, and the results are summed.

    Where a slower network connects groups of devices (TPU slices, or hosts whose devices have no
    slice index), the `dcn_` sizes extend an axis over it, and the other sizes are those within one
    slice. 4 slices of 8 chips, `fsdp=8, dcn_data=4`: weights are split within a slice, and only the
    gradient is summed between slices.
    """

    data: int = -1
    fsdp: int = 1
    expert: int = 1
    tensor: int = 1
    dcn_data: int = 1
    dcn_fsdp: int = 1
    dcn_expert: int = 1
    dcn_tensor: int = 1
    devices_per_process: int = 0  # use only the first devices of every process; 0: all of them
    # Memory of a device: `fsdp` and `data` are then chosen by what the weights need; 0: as above.
    memory_gb: float = 0.0

    def ici_sizes(self) -> tuple[int, ...]:
        return self.data, self.fsdp, self.expert, self.tensor

    def dcn_sizes(self) -> tuple[int, ...]:
        return self.dcn_data, self.dcn_fsdp, self.dcn_expert, self.dcn_tensor


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh over all devices, or those given.

    Raises:
        UserError: the product of the sizes is not the number of devices.
    """
    if devices is None and config.devices_per_process:
        devices = first_devices_per_process(config.devices_per_process, jax.devices())
    devices = jax.devices() if devices is None else devices
    if set(config.dcn_sizes()) == {1}:
        sizes = _resolve_sizes(config.ici_sizes(), len(devices))
        # Splitting physical axes allows 2 x 4 x 2 on a torus of 4 x 4.
        grid = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    else:
        grid = hybrid_device_array(config, devices)
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def hybrid_device_array(config: MeshConfig, devices: Sequence[Any]) -> np.ndarray:
    """The devices of several slices as a grid [data, fsdp, expert, tensor].

    Along each axis the devices of a slice are adjacent.
    """
    slices = slice_ids(devices)
    if len(devices) % len(slices):
        raise UserError(f"{len(devices)} devices cannot be split evenly over {len(slices)} slices")
    outer = _resolve_sizes(config.dcn_sizes(), len(slices), "dcn_", "slices")
    inner = _resolve_sizes(
        config.ici_sizes(), len(devices) // len(slices), unit="devices of a slice"
    )
    return mesh_utils.create_hybrid_device_mesh(
        inner,
        outer,
        devices,
        process_is_granule=not _has_slices(devices),
        allow_split_physical_axes=True,
    )


def _resolve_sizes(
    sizes: Sequence[int], count: int, prefix: str = "", unit: str = "devices"
) -> tuple[int, ...]:
    """The sizes with the remaining factor of `count` in place of -1."""
    text = ", ".join(f"{prefix}{axis}={n}" for axis, n in zip(MESH_AXES, sizes))
    fixed = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) > 1 or any(n == 0 or n < -1 for n in sizes) or count % fixed:
        raise UserError(f"a mesh of {text} does not fit {count} {unit}")
    if -1 not in sizes and fixed != count:
        raise UserError(f"a mesh of {text} uses {fixed} of {count} {unit}: set one axis to -1")
    return tuple(count // fixed if n == -1 else n for n in sizes)


def _has_slices(devices: Sequence[Any]) -> bool:
    return len({getattr(device, "slice_index", None) for device in devices}) > 1


def slice_ids(devices: Sequence[Any]) -> set[int]:
    """The groups of devices that a slower network connects.

    These are slices where the devices have several slice indices, and processes otherwise.
    """
    return {
        device.slice_index if _has_slices(devices) else device.process_index for device in devices
    }


def first_devices_per_process(count: int, devices: Sequence[Any]) -> list[Any]:
    """The first `count` devices of every process. Raises UserError where one has fewer."""
    num_devices = Counter[int]()
    selected = []
    for device in devices:
        num_devices[device.process_index] += 1
        if num_devices[device.process_index] <= count:
            selected.append(device)
    fewest = min(num_devices.values())
    if count < 0 or fewest < count:
        raise UserError(
            f"config.mesh.devices_per_process={count}, but a process has {fewest} devices"
        )
    return selected


def num_shards(mesh: Mesh | AbstractMesh, axes: tuple[str, ...]) -> int:
    """Into how many parts these mesh axes split an array; an axis that the mesh lacks counts 1."""
    return math.prod(mesh.shape.get(axis, 1) for axis in axes)


def is_logical_axes(x: Any) -> bool:
    """Whether `x` names the axes of one array, that is, is a leaf of a tree of axes."""
    return isinstance(x, tuple) and all(name is None or isinstance(name, str) for name in x)


def partition_spec(
    mesh: Mesh | AbstractMesh, logical_axes: LogicalAxes, shape: tuple[int, ...]
) -> PartitionSpec:
    """How the table splits an array over the axes of `mesh` that are not manual already.

    ("rows", None, "hidden") of shape (8, 5, 12) on data 2, fsdp 2, tensor 4
    ->  (("data", "fsdp"), None, "tensor")
    """
    free = {axis for axis, kind in zip(mesh.axis_names, mesh.axis_types) if kind == AxisType.Auto}
    spec: list[tuple[str, ...] | None] = []
    for name, size in zip(logical_axes, shape, strict=True):
        axes = tuple(axis for axis in LOGICAL_AXIS_RULES.get(name or "", ()) if axis in mesh.shape)
        fits = axes and free.issuperset(axes) and size % num_shards(mesh, axes) == 0
        spec.append(axes if fits else None)
        free -= set(axes) if fits else set()
    return PartitionSpec(*spec)


def constrain(x: jax.Array, *names: str | None) -> jax.Array:
    """`x` constrained to the sharding of its logical axes; `x` itself without an ambient mesh.

    An axis that is None is not split: `constrain(kernel, None, "hidden")` gathers the kernel over
    `fsdp`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or AxisType.Auto not in mesh.axis_types:
        return x
    return jax.lax.with_sharding_constraint(x, partition_spec(mesh, names, x.shape))


def per_shard(
    fn: Callable[..., Any],
    in_axes: tuple[LogicalAxes, ...],
    out_axes: Any,
    mesh_axes: tuple[str, ...] = MESH_AXES,
) -> Callable[..., Any]:
    """`fn` run on every device's part of the arrays, for what the compiler partitions badly.

    A logical axis is split only where all its sizes divide; each array uses a mesh axis once, for
    the first logical axis that can take it. So with `kv_heads` before `heads`, queries
    [rows, T, kv_heads, heads, H] are split over key heads where those are enough, and otherwise
    over the queries of each, with the keys replicated.

    Args:
        fn: must be independent along the split axes.
        in_axes: the logical axes of each argument; () for a tree of arrays that is replicated.
        out_axes: a tree of logical axes like the result.
        mesh_axes: the mesh axes to split over; the compiler handles the others.
    """

    def call(*args: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or num_shards(mesh, mesh_axes) == 1 or AxisType.Auto not in mesh.axis_types:
            return fn(*args)
        split = {
            name: set(LOGICAL_AXIS_RULES[name]) <= set(mesh_axes)
            for names in in_axes
            for name in names
            if name
        }
        for names, x in zip(in_axes, args, strict=True):
            for name, size in zip(names, x.shape if names else (), strict=True):
                if name:
                    split[name] &= size % num_shards(mesh, LOGICAL_AXIS_RULES[name]) == 0

        def spec(names: LogicalAxes) -> PartitionSpec:
            split_names = tuple(name if name and split[name] else None for name in names)
            # Divisibility was checked above, and a size of 0 passes the check.
            return partition_spec(mesh, split_names, (0,) * len(split_names))

        in_specs = tuple(spec(names) for names in in_axes)
        out_specs = jax.tree.map(spec, out_axes, is_leaf=is_logical_axes)
        manual = set(mesh_axes) & set(mesh.axis_names)
        return jax.shard_map(
            fn, in_specs=in_specs, out_specs=out_specs, axis_names=manual, check_vma=False
        )(*args)

    return call


def with_auto_axes(mesh: Mesh) -> Mesh:
    """The mesh with `Auto` axes, which the compiler may split over.

    `jax.make_mesh` makes `Explicit` ones by default.

    Raises:
        UserError: an axis is not one of `MESH_AXES`, so nothing would ever be split over it.
    """
    unknown = [name for name in mesh.axis_names if name not in MESH_AXES]
    if unknown:
        raise UserError(
            f"a mesh has the axes {', '.join(MESH_AXES)} or some of them, not {unknown[0]!r}"
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def weight_shardings(mesh: Mesh, axes: Any, shapes: Any) -> Any:
    """A NamedSharding per weight.

    Args:
        mesh: its axes are made `Auto`.
        axes: a tree of logical axes, one tuple per weight.
        shapes: the like tree of arrays or `jax.ShapeDtypeStruct`s.
    """
    mesh = with_auto_axes(mesh)
    return jax.tree.map(
        lambda names, x: NamedSharding(mesh, partition_spec(mesh, names, x.shape)),
        axes,
        shapes,
        is_leaf=is_logical_axes,
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, for any array whose first axis is B."""
    axes = tuple(axis for axis in BATCH_AXES if axis in mesh.shape)
    return NamedSharding(mesh, PartitionSpec(axes))


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def platform() -> str:
    """The platform that a program traced now will run on: `cpu`, `tpu`, `cuda` or `rocm`.

    It is that of the ambient mesh's devices, topology descriptions included, or of the default
    device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    device = mesh.abstract_device if not mesh.empty and mesh.abstract_device else jax.devices()[0]
    if device.platform != "gpu":
        return device.platform
    return "cuda" if "NVIDIA" in device.device_kind else "rocm"
