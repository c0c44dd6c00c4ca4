"""Which process feeds which rows."""

import dataclasses
import importlib.util
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import grown_groups, mesh_of
from many import ROOT, environment

from agentrl_jax.batch import Layout, pack
from agentrl_jax.hosts import Hosts
from agentrl_jax.rows import collate
from agentrl_jax.shares import Share, brought, place, settle, share_of

DESCRIBED = """
import numpy as np
from jax.sharding import Mesh
from agentrl_jax.errors import UserError
from agentrl_jax.shares import share_of
from agentrl_jax.sharding import AXES, MeshConfig
from agentrl_jax.topology import described_mesh

for sizes in ({"data": 16}, {"data": 1, "fsdp": 8, "tensor": 2}, {"data": 2, "tensor": 8}, {"data": 1, "tensor": 16}):
    mesh = described_mesh("v5e:4x4", MeshConfig(**sizes))
    share = share_of(mesh)
    print(share.teams, share.team, share.rows(30))
a, b = (sorted((d for d in mesh.devices.flat if d.process_index == p), key=lambda d: d.id) for p in (0, 1))
grid = np.array([[a[0], a[1]], [a[2], b[0]], [a[3], b[1]], [b[2], b[3]]]).reshape(4, 1, 1, 2)
try:
    share_of(Mesh(grid, AXES))
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu describes TPUs; it is not installed")
def test_hosts_of_a_pod_that_hold_the_same_rows_are_a_team():
    found = subprocess.run([sys.executable, "-c", DESCRIBED], capture_output=True, text=True, cwd=ROOT, env=environment(1))
    assert found.stdout.splitlines() == [
        "((0,), (1,), (2,), (3,)) (0,) 8",
        "((0,), (1,), (2,), (3,)) (0,) 8",
        "((0, 1), (2, 3)) (0, 1) 15",
        "((0, 1, 2, 3),) (0, 1, 2, 3) 30",
        "the mesh {'data': 4, 'fsdp': 1, 'expert': 1, 'tensor': 2} splits its rows unevenly over the processes "
        "({0: [0, 1, 2], 1: [1, 2, 3]}): choose sizes that fit",
    ], found.stderr


class Scripted(Hosts):
    """A process whose others have said what they have to say."""

    def __init__(self, index: int, said: list[Any]) -> None:
        super().__init__(index)
        self.count, self._said = len(said), said

    def gather(self, what: str, value: Any) -> list[Any]:
        assert self._said[self.index] == value
        return self._said


def layout_of(rows: int) -> Layout:
    """So many bins of one row each."""
    return pack(collate(grown_groups([[[(4, 4, False, 1.0)]]] * rows)).rows, 8, 2)


@pytest.mark.parametrize(
    ("index", "said", "bins", "first"),
    [
        (0, [3, 0, 1, 1], 4, 0),
        (1, [3, 0, 1, 1], 4, 3),  # nothing of its own: weight zero throughout
        (2, [3, 0, 1, 1], 4, 0),
        (3, [3, 0, 1, 1], 4, 1),
        (3, [0, 0, 4, 5], 10, 4),
    ],
)
def test_a_team_shares_its_bins_and_every_team_has_as_many_as_the_fullest(index: int, said: list[int], bins: int, first: int):
    share = dataclasses.replace(share_of(mesh_of()), teams=((0, 1), (2, 3)), index=index)
    layout = settle(Scripted(index, said), share, layout_of(said[index]), 2)
    assert layout is not None and layout.bins == bins
    assert sorted(layout.bin_of) == list(range(first, first + said[index]))
    batch = layout.batch(np.zeros((bins, 8), np.float32))
    assert np.asarray(batch.segment_ids).any(axis=1).sum() == said[index]


def test_where_nobody_has_a_row_there_is_no_update():
    share = Share(mesh_of(), ((0,), (1,)), 1)
    assert settle(Scripted(1, [0, 0]), share, layout_of(0), 2) is None


def test_alone_a_share_is_everything():
    share = share_of(mesh_of(data=2, fsdp=2, tensor=2))
    assert share.teams == ((0,),) and share.rows(5) == 8
    layout = layout_of(3)
    settled = settle(Hosts(), share, layout, 2)
    assert settled is not None and settled.bins == layout.bins == 4
    np.testing.assert_array_equal(settled.bin_of, layout.bin_of)
    batch = layout.batch(np.zeros((4, 8), np.float32))
    on_devices = share.put(batch, batch)
    np.testing.assert_array_equal(share.take(on_devices.tokens), batch.tokens)


def test_a_copy_of_weights_never_shares_their_memory():
    sharding = jax.sharding.NamedSharding(mesh_of(data=2), jax.sharding.PartitionSpec())
    weights = jax.device_put(jnp.arange(4.0), sharding)
    copy = place(weights, sharding)
    weights.delete()
    assert brought(copy) is copy and copy.tolist() == [0.0, 1.0, 2.0, 3.0]
