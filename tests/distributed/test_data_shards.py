"""Which process feeds which rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.described import needs_libtpu, run_python
from support.fixtures import device_mesh, random_groups

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.data_shards import (
    DataShard,
    agree_on_layout,
    make_data_shard,
    put_sharded,
)
from agentrl_jax.learner.packing import PackedLayout, pack
from agentrl_jax.learner.sequences import collate

DATA_SHARDS = """
import numpy as np
from jax.sharding import Mesh
from agentrl_jax.errors import UserError
from agentrl_jax.learner.data_shards import make_data_shard
from agentrl_jax.distributed.sharding import MESH_AXES, MeshConfig
from agentrl_jax.compiler.topology import topology_mesh

for data, fsdp, tensor in ((16, 1, 1), (1, 8, 2), (2, 1, 8), (1, 1, 16)):
    mesh = topology_mesh("v5e:4x4", MeshConfig(data=data, fsdp=fsdp, tensor=tensor))
    shard = make_data_shard(mesh)
    print(shard.replica_groups, shard.replica_processes, shard.num_local_rows(30))
devices = sorted(mesh.devices.flat, key=lambda device: device.id)
a, b = ([device for device in devices if device.process_index == p] for p in (0, 1))
grid = np.array([[a[0], a[1]], [a[2], b[0]], [a[3], b[1]], [b[2], b[3]]]).reshape(4, 1, 1, 2)
try:
    make_data_shard(Mesh(grid, MESH_AXES))
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@needs_libtpu
def test_processes_of_a_pod_that_hold_the_same_rows_are_a_replica_group():
    assert run_python("-c", DATA_SHARDS).splitlines() == [
        "((0,), (1,), (2,), (3,)) (0,) 8",
        "((0,), (1,), (2,), (3,)) (0,) 8",
        "((0, 1), (2, 3)) (0, 1) 15",
        "((0, 1, 2, 3),) (0, 1, 2, 3) 30",
        "the mesh {'data': 4, 'fsdp': 1, 'expert': 1, 'tensor': 2} splits its rows unevenly "
        "over the processes ({0: [0, 1, 2], 1: [1, 2, 3]}): choose sizes that fit",
    ]


class ScriptedProcessGroup(ProcessGroup):
    """A process group whose all-gather returns given values."""

    def __init__(self, index: int, values: list[Any]) -> None:
        super().__init__(index)
        self.count, self._values = len(values), values

    def all_gather(self, label: str, value: Any) -> list[Any]:
        assert self._values[self.index] == value
        return self._values


def layout_of(num_bins: int) -> PackedLayout:
    """Bins of one sequence each."""
    return pack(collate(random_groups([[[(4, 4, False, 1.0)]]] * num_bins)).sequences, 8, 2)


@pytest.mark.parametrize(
    ("index", "bins_per_process", "num_bins", "first"),
    [
        (0, [3, 0, 1, 1], 4, 0),
        (1, [3, 0, 1, 1], 4, 3),  # no sequence: all weights are zero
        (2, [3, 0, 1, 1], 4, 0),
        (3, [3, 0, 1, 1], 4, 1),
        (3, [0, 0, 4, 5], 10, 4),
    ],
)
def test_replica_groups_have_as_many_bins_as_the_fullest(
    index: int, bins_per_process: list[int], num_bins: int, first: int
):
    shard = DataShard(device_mesh(), ((0, 1), (2, 3)), index)
    process_group = ScriptedProcessGroup(index, bins_per_process)
    local_bins = bins_per_process[index]
    layout = agree_on_layout(process_group, shard, layout_of(local_bins), 2)
    assert layout is not None and layout.num_bins == num_bins
    assert sorted(layout.bin_index) == list(range(first, first + local_bins))
    batch = layout.to_batch(np.zeros((num_bins, 8), np.float32))
    assert np.asarray(batch.segment_ids).any(axis=1).sum() == local_bins


def test_there_is_no_update_where_no_process_has_a_sequence():
    shard = DataShard(device_mesh(), ((0,), (1,)), 1)
    assert agree_on_layout(ScriptedProcessGroup(1, [0, 0]), shard, layout_of(0), 2) is None


def test_the_shard_of_a_single_process_is_the_whole_batch():
    shard = make_data_shard(device_mesh(data=2, fsdp=2, tensor=2))
    assert shard.replica_groups == ((0,),) and shard.num_local_rows(5) == 8
    layout = layout_of(3)
    agreed = agree_on_layout(ProcessGroup(), shard, layout, 2)
    assert agreed is not None and agreed.num_bins == layout.num_bins == 4
    np.testing.assert_array_equal(agreed.bin_index, layout.bin_index)
    batch = layout.to_batch(np.zeros((4, 8), np.float32))
    on_devices = shard.put_global(batch, batch)
    np.testing.assert_array_equal(shard.local_rows(on_devices.tokens), batch.tokens)


def test_a_copy_of_weights_never_shares_their_memory():
    sharding = jax.sharding.NamedSharding(device_mesh(data=2), jax.sharding.PartitionSpec())
    weights = jax.device_put(jnp.arange(4.0), sharding)
    copy = put_sharded(weights, sharding)
    weights.delete()
    assert copy.tolist() == [0.0, 1.0, 2.0, 3.0]
