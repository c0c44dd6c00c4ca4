"""Chips that are not here: described TPUs to compile for, and what a compiled program holds in memory and moves between them."""

import dataclasses
import math
import os
import re
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh
from jax.stages import Compiled

from agentrl_jax.collectives import Collective, collectives
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy
from agentrl_jax.sharding import MeshConfig, is_names, make_mesh, shards

# What libtpu asks of its host before it describes chips that the host does not have; no chip is used, so several may ask.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # any: topologies of all kinds are described
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
SLICED = re.compile(r"(?:([1-9]\d*)x )?([a-z]\w*:\d+(?:x\d+)*)")


def described_devices(name: str) -> list[Any]:
    """The chips of a topology (`v5e:4x4`, `v5p:2x2x2`) or of several slices of one (`2x v5e:4x4`), none of which need exist.

    Only libtpu is needed.

    Raises:
        UserError: libtpu is missing or does not know the topology.
    """
    parts = SLICED.fullmatch(name)
    if not parts:
        raise UserError(f"a topology is written like v5e:4x4, v5p:2x2x2 or 2x v5e:4x4, not {name!r}")
    if jax.default_backend() != "tpu":
        for variable, value in ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
    slices = {"num_slices": int(parts[1])} if int(parts[1] or 1) > 1 else {}
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=parts[2], **slices).devices)
    except Exception as error:  # jaxlib raises its own errors, and RuntimeError without libtpu
        raise UserError(f"there is no TPU topology {name!r} to compile for: install libtpu, and name one like v5e:4x4 ({error})") from error


def described_mesh(name: str, config: MeshConfig) -> Mesh:
    """A mesh over the chips of a topology; the `data` axis goes over slices first, and nothing else does.

    Programs lowered under it are compiled for those chips: `with jax.set_mesh(mesh): jax.jit(f).lower(shapes).compile()`.

    Raises:
        UserError: libtpu is missing or does not know the topology, or the mesh does not fit it.
    """
    devices = described_devices(name)
    slices = [[x for x in devices if slice_of(x) == n] for n in sorted({slice_of(x) for x in devices})]
    if len(slices) == 1:
        return make_mesh(config, devices)
    if config.data > 0 and config.data % len(slices):
        raise UserError(f"the data axis goes over slices: {config.data} is no multiple of the {len(slices)} of {name!r}")
    meshes = [make_mesh(dataclasses.replace(config, data=config.data // len(slices) if config.data > 0 else -1), x) for x in slices]
    return Mesh(np.concatenate([x.devices for x in meshes]), meshes[0].axis_names, axis_types=meshes[0].axis_types)


def slice_of(device: Any) -> int:
    """Which slice a chip belongs to; 0 where there is but one."""
    return getattr(device, "slice_index", 0)


@dataclass(frozen=True)
class Memory:
    """Bytes on each device while a program runs."""

    arguments: int
    outputs: int
    aliased: int  # outputs that take the place of donated arguments
    temporary: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporary


def memory(compiled: Compiled) -> Memory:
    """XLA's own account of a compiled program."""
    found: Any = compiled.memory_analysis()
    return Memory(found.argument_size_in_bytes, found.output_size_in_bytes, found.alias_size_in_bytes, found.temp_size_in_bytes)


def gathered_stacks(hlo: str, policy: Policy, mesh: Mesh) -> list[Collective]:
    """The all-gathers that bring a matrix of all layers to a device at once, where one layer's at a time would do.

    A stacked matrix [L, ..., ...] is known by L and its size, whole or split over `tensor` or `expert`. Should be empty.
    """
    stacks = set()
    names = jax.tree.leaves(policy.axes(), is_leaf=is_names)
    for axes, weight in zip(names, jax.tree.leaves(jax.eval_shape(policy.init, jax.random.key(0))), strict=True):
        if axes[0] == "layers" and weight.ndim > 2 and weight.shape[0] > 1:
            parts = {shards(mesh, chosen) for chosen in ((), ("tensor",), ("expert",), ("expert", "tensor"))}
            stacks |= {(weight.shape[0], weight.size // n) for n in parts}

    def whole(shape: tuple[int, ...]) -> bool:
        return any((n, math.prod(shape)) in stacks for n in shape)

    return [x for x in collectives(hlo) if x.kind == "all-gather" and any(map(whole, x.shapes))]
