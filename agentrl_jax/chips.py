"""What the makers say of their chips, and how long an exchange takes at those rates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

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
class Cost:
    """Of exchanges, for one chip: seconds and bytes over the links between chips, and over the network between slices."""

    links: float = 0.0
    network: float = 0.0
    links_bytes: float = 0.0
    network_bytes: float = 0.0


def cost(collective: Collective, devices: Sequence[Any], chip: Chip) -> Cost:
    """Of one exchange over the devices of a mesh, in its order, that has the links to itself; the slowest group counts.

    links = sent / (link_rate x directions), at least a hop for each step of the ring. A group takes the links along every
    axis of the torus that it spreads over, both directions where that axis is a ring and the group all of it; where groups
    lie between each other's chips they share them. Between slices each chip sends its part of what its slice has. Devices that
    are at no place of a torus count as a line.
    """
    coords = np.array([getattr(device, "coords", (i,)) for i, device in enumerate(devices)])
    sizes = tuple(int(n) for n in coords.max(0) + 1)
    wide = [axis for axis, n in enumerate(sizes) if n > 1]
    rings = {axis for axis, ring in zip(wide, closed(chip, tuple(sizes[axis] for axis in wide))) if ring}
    found = [
        _of_group(collective, coords[list(group)], len({slice_of(devices[i]) for i in group}), sizes, rings, chip)
        for group in collective.groups
        if len(set(group)) > 1
    ]
    return max(found, key=lambda x: (x.links + x.network, x.links_bytes), default=Cost())


def _of_group(collective: Collective, coords: np.ndarray, slices: int, sizes: tuple[int, ...], rings: set[int], chip: Chip) -> Cost:
    """`coords` of its members, which lie in so many slices of these `sizes`."""
    inside = len(coords) // slices
    network = _sent(collective, slices) / inside if slices > 1 else 0.0
    directions, steps = 0.0, 0
    for axis, column in enumerate(coords.T):
        places = set(column.tolist())
        if len(places) > 1:
            ring = axis in rings and len(places) == sizes[axis]
            directions += (2 if ring else 1) * len(places) / (max(places) - min(places) + 1)
            steps += len(places) // 2 if ring else len(places) - 1
    if inside < 2 or not steps:
        return Cost(network=network / chip.network_rate, network_bytes=network)
    if collective.kind == "collective-permute":
        directions, steps = 1.0, 1
    links = _sent(collective, inside)
    return Cost(max(links / directions / chip.link_rate, steps * HOP), network / chip.network_rate, links, network)


def _sent(collective: Collective, members: int) -> float:
    """What each of so many members sends, where an exchange is split between slices and within them."""
    shrunk = replace(collective, groups=(tuple(range(members)),))
    if collective.kind == "reduce-scatter":  # its bytes are of the part that stays, one of all members
        return shrunk.sent * max(map(len, collective.groups)) / members
    return shrunk.sent


def in_all(found: Sequence[Collective], devices: Sequence[Any], chip: Chip) -> Cost:
    """Of all of them, one after the other."""
    each = [(x.times, cost(x, devices, chip)) for x in found]
    return Cost(*(math.fsum(n * getattr(x, field.name) for n, x in each) for field in fields(Cost)))
