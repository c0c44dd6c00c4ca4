"""What the makers say of their chips, and how long an exchange takes at those rates."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from agentrl_jax.collectives import Collective
from agentrl_jax.errors import UserError
from agentrl_jax.topology import slice_of

HOP = 1e-6  # seconds a hop takes at least: "about a microsecond" (jax-ml.github.io/scaling-book), no promise of the maker


@dataclass(frozen=True)
class Chip:
    """One chip. Rates are peaks: a program that reaches 60 % of one is a good one."""

    name: str
    operations: float  # a second, bfloat16
    memory: float  # bytes that a program may use: what libtpu's compiler says is available
    memory_rate: float  # bytes a second
    link_rate: float  # bytes a second over one link in one direction
    network_rate: float  # bytes a second between slices, of one chip
    wraps: int  # a torus closes along an axis of so many chips: `whole`: where every axis is a multiple of it, else where it is one
    whole: bool
    host: str  # the chips of one host


GIB = 2.0**30
# cloud.google.com/tpu/docs/v5e, /v6e, /v5p (November 2026). Links: the chip's interconnect bandwidth, both directions together (400, 800,
# 1200 GB/s), over 2 x its 4, 4, 6 ports. Network: a pod's 6.4 and 25.6 Tb/s over its 256 chips; v5p: 50 Gb/s a chip. v5e's and v6e's
# tori close only along a whole pod's 16 chips, v5p's wherever a slice is made of cubes of 4 x 4 x 4.
CHIPS = {
    "v5e": Chip("v5e", 197e12, 15.75 * GIB, 819e9, 50e9, 25e9 / 8, 16, False, "2x2"),
    "v6e": Chip("v6e", 918e12, 31.24 * GIB, 1600e9, 100e9, 100e9 / 8, 16, False, "2x2"),
    "v5p": Chip("v5p", 459e12, 95.73 * GIB, 2765e9, 100e9, 50e9 / 8, 4, True, "2x2x1"),
}


def chip_of(topology: str) -> Chip:
    """The chip of a topology's name, `2x v5e:4x4`. Raises UserError where its rates are not known here."""
    name = topology.split()[-1].split(":")[0] if topology.strip() else ""
    if name not in CHIPS:
        raise UserError(f"the rates of {name!r} are not in agentrl_jax/chips.py, only those of {', '.join(CHIPS)}")
    return CHIPS[name]


def closed(chip: Chip, sizes: tuple[int, ...]) -> tuple[bool, ...]:
    """Along which axes of a slice of chips the links form a ring."""
    cubes = all(size % chip.wraps == 0 for size in sizes)
    return tuple(cubes if chip.whole else size == chip.wraps for size in sizes)


@dataclass(frozen=True)
class Seconds:
    """How long exchanges take: over the links between chips, and over the network between slices."""

    links: float = 0.0
    network: float = 0.0


def seconds(collective: Collective, mesh: Mesh, chip: Chip) -> Seconds:
    """Of one exchange that has the links to itself; the slowest group counts.

    links = sent / (link_rate x directions), at least a hop for each step of the ring. A group takes the links along every axis of the torus that it
    spreads over, both directions where that axis is a ring and the group all of it; where groups lie between each other's chips
    they share them. Between slices each chip sends its part of what its slice has.
    """
    devices = list(mesh.devices.flat)
    coords = np.array([device.coords for device in devices])
    sizes = tuple(int(n) for n in coords.max(0) + 1)
    rings = closed(chip, tuple(n for n in sizes if n > 1)) if max(sizes) > 1 else ()
    rings = dict(zip((i for i, n in enumerate(sizes) if n > 1), rings))
    found = [_of_group(collective, group, devices, coords, sizes, rings, chip) for group in _different(collective)]
    return Seconds(max((x.links for x in found), default=0.0), max((x.network for x in found), default=0.0))


def _different(collective: Collective) -> list[tuple[int, ...]]:
    return [group for group in collective.groups if len(set(group)) > 1]


def _of_group(
    collective: Collective, group: tuple[int, ...], devices: list[Any], coords: np.ndarray, sizes: tuple[int, ...],
    rings: dict[int, bool], chip: Chip,
) -> Seconds:  # fmt: skip
    slices = len({slice_of(devices[i]) for i in group})
    inside = len(group) // slices
    over_network = _sent(collective, slices) / max(inside, 1) / chip.network_rate if slices > 1 else 0.0
    places = [set(column.tolist()) for column in coords[list(group)].T]
    directions, steps = 0.0, 0
    for axis, places_here in enumerate(places):
        if len(places_here) > 1:
            ring = rings[axis] and len(places_here) == sizes[axis]
            directions += (2 if ring else 1) * len(places_here) / (max(places_here) - min(places_here) + 1)
            steps += len(places_here) // 2 if ring else len(places_here) - 1
    if inside < 2 or not directions:
        return Seconds(0.0, over_network)
    if collective.kind == "collective-permute":
        directions, steps = 1.0, 1
    return Seconds(max(_sent(collective, inside) / directions / chip.link_rate, steps * HOP), over_network)


def _sent(collective: Collective, members: int) -> float:
    """What each of so many members sends, where the exchange is split between slices and within them."""
    if collective.kind == "collective-permute":
        return collective.bytes
    whole = max(map(len, collective.groups))
    shrunk = Collective(collective.kind, collective.shapes, collective.bytes, (tuple(range(members)),))
    if collective.kind == "reduce-scatter":  # its bytes are of the part that stays
        return shrunk.sent * whole / members
    return shrunk.sent


def in_all(found: list[Collective], mesh: Mesh, chip: Chip) -> Seconds:
    """Of all of them, one after the other."""
    each = [(x.times, seconds(x, mesh, chip)) for x in found]
    return Seconds(math.fsum(n * x.links for n, x in each), math.fsum(n * x.network for n, x in each))
