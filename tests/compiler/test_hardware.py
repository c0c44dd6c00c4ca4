"""Chip rates and the time of collectives at these rates, computed by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from agentrl_jax.compiler.hardware import (
    CHIP_SPECS,
    HOP_SECONDS,
    ChipSpec,
    chip_spec,
    collective_cost,
    ring_axes,
    total_cost,
)
from agentrl_jax.compiler.hlo_collectives import Collective
from agentrl_jax.errors import UserError

V5E, V5P = CHIP_SPECS["v5e"], CHIP_SPECS["v5p"]


@dataclass(frozen=True)
class Chip:
    coords: tuple[int, ...]
    slice_index: int = 0


def torus(*sizes: int, slices: int = 1) -> list[Chip]:
    """Devices in the order of their coordinates, slice after slice."""
    return [Chip(tuple(c), s) for s in range(slices) for c in np.ndindex(*sizes)]


def collective(
    kind: str, *groups: tuple[int, ...], size: int = 4_000_000_000, count: int = 1
) -> Collective:
    return Collective(kind, ((size // 4,),), size, groups, count)


def link_seconds(x: Collective, chips: list[Chip], chip: ChipSpec) -> float:
    return collective_cost(x, chips, chip).link_seconds


@pytest.mark.parametrize("name", ["v5e:4x4", "2x v5e:4x4", "v5p:4x4x4", "v6e:8x8"])
def test_a_topology_names_its_chip(name: str):
    assert chip_spec(name).name in name


@pytest.mark.parametrize("name", ["", "v99:4x4", "4x4", "tpu"])
def test_an_unknown_chip_is_refused(name: str):
    with pytest.raises(
        UserError, match=r"not in agentrl_jax/compiler/hardware\.py, only those of v5e, v6e, v5p"
    ):
        chip_spec(name)


def test_rings_close_as_published():
    assert ring_axes(V5E, (8, 16)) == (False, True)
    assert ring_axes(V5E, (16, 16)) == (True, True)
    assert ring_axes(V5E, (4, 4)) == (False, False)
    assert ring_axes(V5P, (4, 4, 8)) == (True, True, True)
    assert ring_axes(V5P, (2, 4, 4)) == (False, False, False)


def test_an_all_gather_on_a_line_on_a_ring_and_on_a_torus():
    row, cube = tuple(range(4)), tuple(range(64))
    gathered = 4e9 * 3 / 4  # what each of four gets of 4 GB
    gather = collective("all-gather", row)
    assert link_seconds(gather, torus(4, 4, 1), V5E) == pytest.approx(gathered / 50e9)  # a line
    # A ring, in both directions.
    assert link_seconds(gather, torus(4, 4, 4), V5P) == pytest.approx(gathered / 2 / 100e9)
    gather = collective("all-gather", cube)
    assert link_seconds(gather, torus(4, 4, 4), V5P) == pytest.approx(4e9 * 63 / 64 / 6 / 100e9)
    reduce = collective("all-reduce", row)
    assert link_seconds(reduce, torus(4, 4, 1), V5E) == pytest.approx(2 * gathered / 50e9)


def test_interleaved_groups_share_the_links():
    adjacent, interleaved = (
        link_seconds(collective("all-gather", *groups), torus(4, 1, 1), V5E)
        for groups in (((0, 1), (2, 3)), ((0, 2), (1, 3)))
    )
    assert interleaved == pytest.approx(adjacent * 3 / 2)  # two chips spread over three


def test_a_small_collective_takes_its_hops():
    line = collective("all-reduce", tuple(range(4)), size=64)
    assert link_seconds(line, torus(4, 4, 1), V5E) == 3 * HOP_SECONDS
    cube = collective("all-reduce", tuple(range(64)), size=64)
    assert link_seconds(cube, torus(4, 4, 4), V5P) == 6 * HOP_SECONDS


def test_between_slices_a_collective_uses_the_network():
    chips = torus(2, 2, 1, slices=2)
    between = collective("all-reduce", (0, 4), (1, 5), (2, 6), (3, 7))
    cost = collective_cost(between, chips, V5E)
    assert cost.link_seconds == 0
    assert cost.network_seconds == pytest.approx(4e9 / V5E.network_bandwidth)
    # Summed within a slice first; each chip sends a quarter between slices.
    cost = collective_cost(collective("all-reduce", tuple(range(8))), chips, V5E)
    assert cost.network_seconds == pytest.approx(1e9 / V5E.network_bandwidth)
    assert cost.link_seconds == pytest.approx(2 * 4e9 * 3 / 4 / 2 / 50e9)
    assert cost.network_bytes == 1e9 and cost.link_bytes == 2 * 4e9 * 3 / 4
    # Of 4 GB each chip keeps an eighth.
    scatter = collective("reduce-scatter", tuple(range(8)), size=500_000_000)
    cost = collective_cost(scatter, chips, V5E)
    assert cost.network_seconds == pytest.approx(0.5e9 / V5E.network_bandwidth)
    assert cost.link_seconds == pytest.approx(4e9 * 3 / 4 / 2 / 50e9)


def test_the_costs_of_collectives_add_up():
    gathers = collective("all-gather", (0, 1, 2, 3), count=3)
    permutation = collective("collective-permute", (0, 1), (1, 0))
    cost = total_cost([gathers, permutation], torus(4, 1, 1), V5E)
    assert cost.link_seconds == pytest.approx(3 * 3e9 / 50e9 + 4e9 / 50e9)


def test_groups_of_one_take_no_time():
    assert link_seconds(collective("all-reduce", (0,), (1,)), torus(2, 1, 1), V5E) == 0
