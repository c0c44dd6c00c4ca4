"""Chips' rates and how long an exchange takes at them, by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from agentrl_jax.chips import CHIPS, HOP, chip_of, closed, cost, in_all
from agentrl_jax.collectives import Collective
from agentrl_jax.errors import UserError

V5E, V5P = CHIPS["v5e"], CHIPS["v5p"]


@dataclass(frozen=True)
class At:
    coords: tuple[int, ...]
    slice_index: int = 0


def torus(*sizes: int, slices: int = 1) -> list[At]:
    """Devices in the order of their coordinates, slice after slice."""
    return [At(tuple(c), s) for s in range(slices) for c in np.ndindex(*sizes)]


def exchange(kind: str, *groups: tuple[int, ...], size: int = 4_000_000_000, times: int = 1) -> Collective:
    return Collective(kind, ((size // 4,),), size, groups, times)


@pytest.mark.parametrize("name", ["v5e:4x4", "2x v5e:4x4", "v5p:4x4x4", "v6e:8x8"])
def test_a_chip_is_known_by_its_topology(name: str):
    assert chip_of(name).name in name


@pytest.mark.parametrize("name", ["", "v99:4x4", "4x4", "tpu"])
def test_an_unknown_chip_is_refused_in_one_sentence(name: str):
    with pytest.raises(UserError, match=r"not in agentrl_jax/chips\.py, only those of v5e, v6e, v5p"):
        chip_of(name)


def test_rings_close_where_the_maker_closes_them():
    assert closed(V5E, (8, 16)) == (False, True) and closed(V5E, (16, 16)) == (True, True) and closed(V5E, (4, 4)) == (False, False)
    assert closed(V5P, (4, 4, 8)) == (True, True, True) and closed(V5P, (2, 4, 4)) == (False, False, False)


def test_an_all_gather_on_a_line_on_a_ring_and_on_a_torus():
    row = tuple(range(4))
    gathered = 4e9 * 3 / 4  # what each of four gets of 4 GB
    assert cost(exchange("all-gather", row), torus(4, 4, 1), V5E).links == pytest.approx(gathered / 50e9)  # a line
    assert cost(exchange("all-gather", row), torus(4, 4, 4), V5P).links == pytest.approx(gathered / 2 / 100e9)  # a ring, both ways
    everyone = tuple(range(64))
    assert cost(exchange("all-gather", everyone), torus(4, 4, 4), V5P).links == pytest.approx(4e9 * 63 / 64 / 6 / 100e9)
    assert cost(exchange("all-reduce", row), torus(4, 4, 1), V5E).links == pytest.approx(2 * gathered / 50e9)


def test_groups_between_each_others_chips_share_the_links():
    near, apart = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    one, two = (cost(exchange("all-gather", *groups), torus(4, 1, 1), V5E).links for groups in (near, apart))
    assert two == pytest.approx(one * 3 / 2)  # two chips spread over three


def test_a_small_exchange_takes_its_hops():
    assert cost(exchange("all-reduce", tuple(range(4)), size=64), torus(4, 4, 1), V5E).links == 3 * HOP
    assert cost(exchange("all-reduce", tuple(range(64)), size=64), torus(4, 4, 4), V5P).links == 6 * HOP


def test_slices_exchange_over_the_network_what_is_left():
    chips = torus(2, 2, 1, slices=2)
    between = cost(exchange("all-reduce", (0, 4), (1, 5), (2, 6), (3, 7)), chips, V5E)
    assert between.links == 0 and between.network == pytest.approx(4e9 / V5E.network_rate)
    both = cost(exchange("all-reduce", tuple(range(8))), chips, V5E)  # summed within a slice first, a quarter a chip between them
    assert both.network == pytest.approx(1e9 / V5E.network_rate)
    assert both.links == pytest.approx(2 * 4e9 * 3 / 4 / 2 / 50e9)
    scattered = cost(exchange("reduce-scatter", tuple(range(8)), size=500_000_000), chips, V5E)  # of 4 GB each keeps an eighth
    assert both.network_bytes == 1e9 and both.links_bytes == 2 * 4e9 * 3 / 4
    assert scattered.network == pytest.approx(0.5e9 / V5E.network_rate) and scattered.links == pytest.approx(4e9 * 3 / 4 / 2 / 50e9)


def test_exchanges_follow_one_another():
    chips, found = torus(4, 1, 1), [exchange("all-gather", (0, 1, 2, 3), times=3), exchange("collective-permute", (0, 1), (1, 0))]
    assert in_all(found, chips, V5E).links == pytest.approx(3 * 3e9 / 50e9 + 4e9 / 50e9)


def test_who_exchanges_with_nobody_takes_no_time():
    assert cost(exchange("all-reduce", (0,), (1,)), torus(2, 1, 1), V5E).links == 0
