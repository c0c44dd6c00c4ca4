"""Published rates of chips, and the time of a collective on a TPU at those rates."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from agentrl_jax.compiler.hlo_collectives import Collective
from agentrl_jax.compiler.topology import slice_index
from agentrl_jax.errors import UserError

# The least time of a hop: "about a microsecond" (jax-ml.github.io/scaling-book), not published by
# the manufacturer.
HOP_SECONDS = 1e-6


@dataclass(frozen=True)
class ChipSpec:
    """One chip. Rates are peaks: a program that reaches 60 % of one is a good one."""

    name: str
    flops_per_second: float  # bfloat16
    memory_bytes: float  # for programs, as libtpu's compiler reports it
    memory_bandwidth: float  # bytes per second
    link_bandwidth: float  # bytes per second over one link in one direction
    network_bandwidth: float  # bytes per second of one chip between slices
    # An axis of the torus wraps around where its size is `wrap_size`, or with `wraps_at_multiples`
    # where all axes are multiples of it.
    wrap_size: int
    wraps_at_multiples: bool
    host_shape: str  # the chips of one host


GIB = 2.0**30
# cloud.google.com/tpu/docs/v5e, /v6e, /v5p (November 2026). Links: the chip's interconnect
# bandwidth, both directions together (400, 800, 1200 GB/s), over 2 x its 4, 4, 6 ports. Network: a
# pod's 6.4 and 25.6 Tb/s over its 256 chips; v5p: 50 Gb/s per chip. The tori of v5e and v6e wrap
# only along a full pod's 16 chips, those of v5p wherever a slice consists of 4 x 4 x 4 cubes.
CHIP_SPECS = {
    "v5e": ChipSpec("v5e", 197e12, 15.75 * GIB, 819e9, 50e9, 25e9 / 8, 16, False, "2x2"),
    "v6e": ChipSpec("v6e", 918e12, 31.24 * GIB, 1600e9, 100e9, 100e9 / 8, 16, False, "2x2"),
    "v5p": ChipSpec("v5p", 459e12, 95.73 * GIB, 2765e9, 100e9, 50e9 / 8, 4, True, "2x2x1"),
}


# Peaks of dense products in bfloat16, FLOPs per second of one JAX device, by its `device_kind`. The
# manufacturer's figures with sparsity are twice these.
# TPU: "peak compute per chip" of docs.cloud.google.com/tpu/docs/v4 (275), /v5e (197), /v5p (459),
# /v6e (918), /tpu7x (2307, of which a device is one of two cores).
# A100: 312 (nvidia.com, A100 datasheet). H100: 1979 with sparsity as SXM, 1513 as PCIe, 1671 as NVL
# (H100 datasheet). H200: 1979 as SXM, 1671 as NVL (H200 datasheet). B200: 4.5 PFLOPS with sparsity
# (nvidia.com/data-center/hgx).
DENSE_BF16_PEAKS = {
    r"TPU v4": 275e12,
    r"TPU v5( lite|e)": 197e12,
    r"TPU v5p?": 459e12,
    r"TPU v6( lite|e)": 918e12,
    r"TPU7x": 2307e12 / 2,
    r"NVIDIA A100[- ](SXM4?-|PCIE-)?\d+GB( PCIe)?": 312e12,
    r"NVIDIA H100 80GB HBM3": 1979e12 / 2,
    r"NVIDIA H100 PCIe": 1513e12 / 2,
    r"NVIDIA H100 NVL": 1671e12 / 2,
    r"NVIDIA H200": 1979e12 / 2,
    r"NVIDIA H200 NVL": 1671e12 / 2,
    r"NVIDIA B200": 4500e12 / 2,
}


def dense_peak(device_kind: str) -> float | None:
    """The peak of a device, FLOPs per second; None where none is listed here: of a part of a GPU
    (MIG), of a CPU.
    """
    peaks = (x for kind, x in DENSE_BF16_PEAKS.items() if re.fullmatch(kind, device_kind))
    return next(peaks, None)


def chip_spec(topology: str) -> ChipSpec:
    """The chip of a topology's name, `2x v5e:4x4`. Raises UserError where it is not listed here."""
    name = topology.split()[-1].split(":")[0] if topology.strip() else ""
    if name not in CHIP_SPECS:
        raise UserError(
            f"the rates of {name!r} are not in agentrl_jax/compiler/hardware.py, "
            f"only those of {', '.join(CHIP_SPECS)}"
        )
    return CHIP_SPECS[name]


def ring_axes(chip: ChipSpec, sizes: tuple[int, ...]) -> tuple[bool, ...]:
    """Along which axes of a slice of chips the links form a ring."""
    are_multiples = all(size % chip.wrap_size == 0 for size in sizes)
    if chip.wraps_at_multiples:
        return (are_multiples,) * len(sizes)
    return tuple(size == chip.wrap_size for size in sizes)


@dataclass(frozen=True)
class CollectiveCost:
    """Seconds and bytes of one chip, over links within a slice and the network between slices."""

    link_seconds: float = 0.0
    network_seconds: float = 0.0
    link_bytes: float = 0.0
    network_bytes: float = 0.0


def collective_cost(
    collective: Collective, devices: Sequence[Any], chip: ChipSpec
) -> CollectiveCost:
    """The cost of the slowest group of a collective that has the links to itself.

    link seconds = sent / (link_bandwidth x directions), at least a hop for each step of the ring. A
    group uses the links along every axis of the torus that it extends over, in both directions
    where that axis is a ring and the group spans it; interleaved groups share the links. Between
    slices each chip sends its part of its slice's data. Devices without coordinates count as a
    line.

    Args:
        collective: its groups are indices of `devices`.
        devices: of the mesh, in its order.
        chip: the rates.
    """
    coords = np.array([getattr(device, "coords", (i,)) for i, device in enumerate(devices)])
    sizes = tuple(int(n) for n in coords.max(0) + 1)
    axes = [axis for axis, n in enumerate(sizes) if n > 1]
    is_ring = ring_axes(chip, tuple(sizes[axis] for axis in axes))
    rings = {axis for axis, ring in zip(axes, is_ring) if ring}
    costs = [
        _group_cost(
            collective,
            coords[list(group)],
            len({slice_index(devices[i]) for i in group}),
            sizes,
            rings,
            chip,
        )
        for group in collective.groups
        if len(set(group)) > 1
    ]
    return max(
        costs,
        key=lambda x: (x.link_seconds + x.network_seconds, x.link_bytes),
        default=CollectiveCost(),
    )


def _group_cost(
    collective: Collective,
    coords: np.ndarray,
    slices: int,
    sizes: tuple[int, ...],
    rings: set[int],
    chip: ChipSpec,
) -> CollectiveCost:
    """The cost of a group with members at `coords` [n, axes] in slices of shape `sizes`."""
    members = len(coords) // slices  # within a slice
    network = _sent_bytes(collective, slices) / members if slices > 1 else 0.0
    directions, steps = 0.0, 0
    for axis, column in enumerate(coords.T):
        positions = set(column.tolist())
        if len(positions) > 1:
            ring = axis in rings and len(positions) == sizes[axis]
            density = len(positions) / (max(positions) - min(positions) + 1)
            directions += (2 if ring else 1) * density
            steps += len(positions) // 2 if ring else len(positions) - 1
    if members < 2 or not steps:
        return CollectiveCost(
            network_seconds=network / chip.network_bandwidth, network_bytes=network
        )
    if collective.kind == "collective-permute":
        directions, steps = 1.0, 1
    links = _sent_bytes(collective, members)
    return CollectiveCost(
        max(links / directions / chip.link_bandwidth, steps * HOP_SECONDS),
        network / chip.network_bandwidth,
        links,
        network,
    )


def _sent_bytes(collective: Collective, members: int) -> float:
    """What each member sends where the collective runs in a group of this size only.

    A collective is split into one within each slice and one between slices.
    """
    smaller = replace(collective, groups=(tuple(range(members)),))
    if collective.kind == "reduce-scatter":  # its bytes are those of one member's part
        return smaller.sent_bytes * max(map(len, collective.groups)) / members
    return smaller.sent_bytes


def total_cost(
    collectives: Sequence[Collective], devices: Sequence[Any], chip: ChipSpec
) -> CollectiveCost:
    """The summed cost of collectives that run one after the other."""
    costs = [(x.count, collective_cost(x, devices, chip)) for x in collectives]
    names = [field.name for field in fields(CollectiveCost)]
    return CollectiveCost(
        *(math.fsum(count * getattr(cost, name) for count, cost in costs) for name in names)
    )
