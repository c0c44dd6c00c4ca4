"""Which process feeds which rows."""

import dataclasses
import inspect
import itertools
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from support.described import needs_libtpu, run_python
from support.fixtures import device_mesh, random_groups

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MESH_AXES, batch_sharding
from agentrl_jax.errors import UserError
from agentrl_jax.learner import data_shards
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


def in_turn(*firsts: int, processes: Sequence[int], times: int = 2) -> list[int]:
    """Some processes after each other, twice, then the same ones counted from the next first."""
    return [first + p for first in firsts for _ in range(times) for p in processes]


# (topology, sizes of the mesh's axes) -> the host of each of 64 chips, in the order of the mesh.
HOST_ORDERS: dict[tuple[str, tuple[int, int, int]], list[int]] = {
    ("v5e:8x8", (1, 64, 1)): in_turn(0, 1, 2, 3, processes=(0, 0, 4, 4, 8, 8, 12, 12)),
    ("v5e:8x8", (4, 16, 1)): np.repeat(np.arange(16), 4).tolist(),  # contiguous
    ("v5e:8x8", (2, 8, 4)): in_turn(0, 4, 8, 12, 2, 6, 10, 14, processes=(0, 0, 1, 1)),
    ("v5p:4x4x4", (1, 64, 1)): [
        *in_turn(0, 2, processes=(0, 4, 8, 12)) * 2,
        *in_turn(1, 3, processes=(0, 4, 8, 12)) * 2,
    ],
    ("v5p:4x4x4", (4, 16, 1)): in_turn(0, 1, 4, 5, 8, 9, 12, 13, processes=(0, 0, 2, 2)),
    ("v5p:4x4x4", (2, 8, 4)): in_turn(0, 2, 8, 10, processes=(0, 0, 1, 1, 4, 4, 5, 5)),
}
ORDERS_OF_TOPOLOGIES = """
import json, sys
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.compiler.topology import topology_mesh

for name, sizes in json.loads(sys.argv[1]):
    mesh = topology_mesh(name, MeshConfig(**dict(zip(("data", "fsdp", "tensor"), sizes))))
    print(json.dumps([device.process_index for device in mesh.devices.flat]))
"""


@pytest.mark.slow
@needs_libtpu
def test_the_hosts_of_a_pod_follow_each_other_as_its_topology_says():
    output = run_python("-c", ORDERS_OF_TOPOLOGIES, json.dumps(list(HOST_ORDERS)))
    assert list(map(json.loads, output.splitlines())) == list(HOST_ORDERS.values())


class DeviceOfProcess:
    """A device of one of several processes, as process `local` sees it."""

    platform = device_kind = "cpu"

    def __init__(self, id: int, process_index: int, local: int) -> None:
        self.id, self.process_index = id, process_index
        self.client = SimpleNamespace(process_index=lambda: local)


def process_mesh(
    processes: list[int], data: int, fsdp: int = 1, tensor: int = 1, local: int = 0
) -> Mesh:
    """A mesh of devices that belong to these processes, in order."""
    devices = [DeviceOfProcess(i, process, local) for i, process in enumerate(processes)]
    grid = np.array(devices).reshape(data, fsdp, 1, tensor)
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * 4)


@pytest.mark.parametrize(
    ("processes", "sizes", "groups", "rows"),
    [
        ([0, 1, 2, 3], {"data": 4}, ((0,), (1,), (2,), (3,)), 2),
        ([0, 1, 2, 3], {"data": 2, "tensor": 2}, ((0, 1), (2, 3)), 3),
        ([0, 0, 1, 1], {"data": 1, "fsdp": 4}, ((0,), (1,)), 4),
        ([0, 0, 1, 1], {"data": 1, "tensor": 4}, ((0, 1),), 5),
        ([0, 2, 1, 3], {"data": 2, "tensor": 2}, ((0, 2), (1, 3)), 3),
    ],
)
def test_processes_that_hold_the_same_rows_are_a_replica_group(
    processes: list[int], sizes: dict[str, int], groups: tuple, rows: int
):
    shard = make_data_shard(process_mesh(processes, **sizes))
    assert (shard.replica_groups, shard.process_index) == (groups, 0)
    assert shard.replica_processes == groups[0] and shard.num_local_rows(5) == rows


@pytest.mark.parametrize(("topology", "sizes"), HOST_ORDERS, ids=str)
def test_hosts_in_any_order_feed_every_row_once_and_read_their_own(
    topology: str, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
):
    order, rows = HOST_ORDERS[topology, sizes], 64 // sizes[2]
    global_rows = np.full((rows, 3), -1)
    for process in range(16):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        mesh = process_mesh(order, *sizes, local=process)
        shard = make_data_shard(mesh)
        # Devices in `tensor` hold the same rows: with 4 of them, on 2 hosts of 4.
        assert len(shard.replica_processes) == (2 if sizes[2] == 4 else 1)
        count = shard.num_local_rows(rows)
        assert count * len(shard.replica_groups) == rows
        local = 100 * shard.replica_processes[0] + np.arange(count)[:, None] + np.zeros(3, int)
        indices = batch_sharding(mesh).devices_indices_map((rows, 3))
        slices = {d: x[0] for d, x in indices.items() if d.process_index == process}
        # As `jax.make_array_from_process_local_data` maps a process's slices, in ascending order.
        starts = sorted({x.start or 0 for x in slices.values()})
        assert len(starts) == count
        if process == shard.replica_processes[0]:
            assert (global_rows[starts] == -1).all()
            global_rows[starts] = local
        shards = [SimpleNamespace(index=(x,), data=global_rows[x]) for x in slices.values()]
        array: Any = SimpleNamespace(addressable_shards=shards)
        read = inspect.unwrap(DataShard.local_rows)  # without the check that it is a jax.Array
        np.testing.assert_array_equal(read(shard, array), local)
    assert (global_rows >= 0).all() and len(np.unique(global_rows[:, 0])) == rows


@pytest.mark.parametrize(
    ("processes", "sizes", "message"),
    [
        ([1, 1, 2, 2], {"data": 4}, "process 0 has no device in the learner's mesh"),
        ([0, 0, 0, 1], {"data": 4}, r"unevenly .*\({0: \[0, 1, 2\], 1: \[3\]}\): choose sizes"),
        ([0, 0, 1, 2], {"data": 2, "tensor": 2}, "unevenly"),  # two processes hold the second half
        ([0, 0, 0, 1, 1, 1], {"data": 3, "tensor": 2}, r"{0: \[0, 1\], 1: \[1, 2\]}"),
    ],
)
def test_a_mesh_that_gives_processes_unequal_rows_is_refused(
    processes: list[int], sizes: dict[str, int], message: str
):
    with pytest.raises(UserError, match=message):
        make_data_shard(process_mesh(processes, **sizes))


def global_rows(
    monkeypatch: pytest.MonkeyPatch, rows: np.ndarray, filled: np.ndarray, **sizes: int
) -> np.ndarray:
    """What processes of one device each make together of their rows [P, B, ...], of which each has
    filled some [P, B].
    """
    arrays: dict[int, np.ndarray] = {}  # by the order in which every process makes them
    compiled = data_shards._select_filled(device_mesh(**sizes))
    monkeypatch.setattr(data_shards, "_select_filled", lambda mesh: compiled)
    result = None
    for process in range(len(rows)):
        order = itertools.count()

        def make_global(
            sharding: Any, x: np.ndarray, global_shape: Any, process: int = process, order=order
        ) -> jax.Array:
            array = arrays.setdefault(next(order), np.zeros(global_shape, x.dtype))
            for device, index in sharding.devices_indices_map(global_shape).items():
                if device.process_index == process:
                    array[index] = x
            return jnp.asarray(array)

        monkeypatch.setattr(jax, "make_array_from_process_local_data", make_global)
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        mesh = process_mesh(list(range(len(rows))), **sizes, local=process)
        empty = pack([], 2, filled.shape[1]).to_batch(np.zeros((filled.shape[1], 2), np.float32))
        segment_ids = np.stack([filled[process], 0 * filled[process]], axis=1).astype(np.int32)
        batch = dataclasses.replace(empty, segment_ids=segment_ids)
        result = make_data_shard(mesh).put_global({"x": rows[process]}, batch)
    assert result is not None
    return np.asarray(result["x"])


def test_each_process_feeds_its_own_rows(monkeypatch: pytest.MonkeyPatch):
    rows = np.arange(24.0, dtype=np.float32).reshape(4, 2, 3)
    merged = global_rows(monkeypatch, rows, np.ones((4, 2), int), data=4)
    np.testing.assert_array_equal(merged, rows.reshape(8, 3))


def test_a_replica_has_a_copy_of_its_rows_for_each_of_its_devices(
    monkeypatch: pytest.MonkeyPatch,
):
    shapes = []

    def make_global(sharding: Any, x: np.ndarray, global_shape: Any) -> jax.Array:
        shapes.append((x.shape, global_shape))
        return jnp.zeros(global_shape, x.dtype)

    monkeypatch.setattr(jax, "make_array_from_process_local_data", make_global)
    monkeypatch.setattr(data_shards, "_select_filled", lambda mesh: lambda tree, filled: tree)
    batch = pack([], 2, 3).to_batch(np.zeros((3, 2), np.float32))
    shard = make_data_shard(process_mesh([0, 0, 1, 1], data=1, tensor=4))
    shard.put_global({"x": np.ones((3, 5), np.float32)}, batch)
    # Of x [3, 5] and of which rows are filled [3]: two devices here, four of all processes.
    assert shapes == [((2, 3, 5), (4, 3, 5)), ((2, 3), (4, 3))]


def test_a_process_puts_its_own_part_of_weights_that_all_processes_hold(
    monkeypatch: pytest.MonkeyPatch,
):
    calls: list[Any] = []

    def from_callback(shape: tuple[int, ...], sharding: Any, read: Any) -> jax.Array:
        calls.append((shape, sharding, read((slice(1, 3),)).tolist()))
        return jnp.zeros(shape)

    monkeypatch.setattr(jax, "make_array_from_callback", from_callback)
    addressable = NamedSharding(device_mesh(data=2), PartitionSpec("data"))
    weights = np.arange(4.0, dtype=np.float32)
    assert put_sharded(weights, addressable).tolist() == weights.tolist() and calls == []
    spanning = SimpleNamespace(is_fully_addressable=False)
    put_sharded(weights, spanning)
    assert calls == [((4,), spanning, [1.0, 2.0])]


def test_rows_that_one_process_fills_are_not_copied(monkeypatch: pytest.MonkeyPatch):
    def refuse(mesh: Mesh) -> None:
        raise AssertionError("a process alone with its rows has no copies to choose from")

    monkeypatch.setattr(data_shards, "_select_filled", refuse)
    shapes = []

    def make_global(sharding: Any, x: np.ndarray, global_shape: Any) -> jax.Array:
        shapes.append((x.shape, global_shape))
        return jnp.zeros(global_shape)

    monkeypatch.setattr(jax, "make_array_from_process_local_data", make_global)
    batch = pack([], 2, 2).to_batch(np.zeros((2, 2), np.float32))
    make_data_shard(process_mesh([0, 1], data=2)).put_global({"x": np.ones((2, 3))}, batch)
    assert shapes == [((2, 3), (4, 3))]


def test_each_row_of_a_replica_group_is_that_of_the_process_that_filled_it(
    monkeypatch: pytest.MonkeyPatch,
):
    rows = np.arange(1.0, 49.0, dtype=np.float32).reshape(4, 3, 2, 2)
    filled = np.array([[0, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 0]])  # nobody fills the last row
    merged = global_rows(monkeypatch, rows, filled, data=2, tensor=2)
    expected = [rows[1, 0], rows[0, 1], rows[1, 2], rows[2, 0], rows[2, 1], rows[2, 2]]
    np.testing.assert_array_equal(merged, expected)


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


def test_weights_of_one_process_are_put_on_a_mesh_with_their_sharding():
    mesh = device_mesh(data=2, fsdp=2)
    sharding = NamedSharding(mesh, PartitionSpec("fsdp"))
    copy = put_sharded(np.arange(6.0, dtype=np.float32), sharding)
    assert copy.sharding == sharding and copy.tolist() == [0, 1, 2, 3, 4, 5]
    key = put_sharded(jax.random.key(3), NamedSharding(mesh, PartitionSpec()))
    assert jax.random.key_data(key).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
