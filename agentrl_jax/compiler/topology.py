"""TPU topologies to compile for without the chips, and the memory of a compiled program."""

import dataclasses
import os
import re
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh
from jax.stages import Compiled

from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError

# What libtpu requires of a host in order to describe chips that it does not have. No chip is used,
# so several processes may load libtpu.
LIBTPU_ENV = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # any: topologies of all kinds are described
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
TOPOLOGY_PATTERN = re.compile(r"(?:([1-9]\d*)x )?([a-z]\w*:\d+(?:x\d+)*)")


def topology_devices(name: str) -> list[Any]:
    """The chips of a topology, none of which need exist; only libtpu is required.

    Args:
        name: `v5e:4x4`, `v5p:2x2x2`, or several slices: `2x v5e:4x4`.

    Raises:
        UserError: libtpu is missing or does not know the topology.
    """
    parts = TOPOLOGY_PATTERN.fullmatch(name)
    if not parts:
        raise UserError(
            f"a topology is written like v5e:4x4, v5p:2x2x2 or 2x v5e:4x4, not {name!r}"
        )
    if jax.default_backend() != "tpu":
        for variable, value in LIBTPU_ENV.items():
            os.environ.setdefault(variable, value)
    slices = {"num_slices": int(parts[1])} if int(parts[1] or 1) > 1 else {}
    try:
        return list(
            topologies.get_topology_desc(platform="tpu", topology_name=parts[2], **slices).devices
        )
    except Exception as error:  # jaxlib raises its own errors, and RuntimeError without libtpu
        raise UserError(
            f"there is no TPU topology {name!r} to compile for: "
            f"install libtpu, and name one like v5e:4x4 ({error})"
        ) from error


def topology_mesh(name: str, config: MeshConfig) -> Mesh:
    """A mesh over the chips of a topology; only the `data` axis spans slices.

    Programs lowered under it are compiled for those chips: `with jax.set_mesh(mesh):
    jax.jit(f).lower(shapes).compile()`.

    Raises:
        UserError: libtpu is missing or does not know the topology, or the mesh does not fit it.
    """
    devices = topology_devices(name)
    indices = sorted({slice_index(x) for x in devices})
    slices = [[x for x in devices if slice_index(x) == i] for i in indices]
    if len(slices) == 1:
        return make_mesh(config, devices)
    if config.data > 0 and config.data % len(slices):
        raise UserError(
            f"the data axis spans slices: {config.data} is not a multiple of "
            f"the {len(slices)} of {name!r}"
        )
    data = config.data // len(slices) if config.data > 0 else -1
    within_slice = dataclasses.replace(config, data=data)
    meshes = [make_mesh(within_slice, slice_devices) for slice_devices in slices]
    grid = np.concatenate([mesh.devices for mesh in meshes])
    return Mesh(grid, meshes[0].axis_names, axis_types=meshes[0].axis_types)


def slice_index(device: Any) -> int:
    """The slice that a chip belongs to; 0 where there is only one."""
    return getattr(device, "slice_index", 0)


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes on each device while a program runs."""

    arguments: int
    outputs: int
    aliased: int  # outputs that reuse donated arguments
    temporary: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporary


def program_memory(compiled: Compiled) -> ProgramMemory:
    """XLA's memory analysis of a compiled program."""
    analysis: Any = compiled.memory_analysis()
    return ProgramMemory(
        analysis.argument_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        analysis.temp_size_in_bytes,
    )
