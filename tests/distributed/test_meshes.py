"""Meshes over slices and hosts, over some devices per process, and chosen from a model's memory."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from support.fixtures import MeanEmbeddingPolicy

from agentrl_jax.distributed.auto_mesh import (
    GB,
    USABLE_MEMORY_FRACTION,
    MemoryNeed,
    choose_mesh,
    memory_need,
    resolve_mesh_config,
)
from agentrl_jax.distributed.sharding import (
    MeshConfig,
    first_devices_per_process,
    hybrid_device_array,
    make_mesh,
    slice_ids,
)
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig


def devices(slices: int, hosts: int, devices_per_host: int) -> list[Any]:
    """The devices of slices of hosts."""
    return [
        SimpleNamespace(
            id=i,
            process_index=i // devices_per_host,
            slice_index=i // devices_per_host // hosts,
            platform="cpu",
            device_kind="cpu",
        )
        for i in range(slices * hosts * devices_per_host)
    ]


def grid(config: MeshConfig, *shape: int) -> np.ndarray:
    """The ids of the mesh's devices, [data, fsdp, expert, tensor]."""
    return np.vectorize(lambda device: device.id)(hybrid_device_array(config, devices(*shape)))


def test_dcn_sizes_split_slices_and_the_other_sizes_their_devices():
    ids = grid(MeshConfig(data=1, fsdp=-1, dcn_data=2), 2, 2, 2)
    # A slice is a row of data.
    np.testing.assert_array_equal(ids.reshape(2, 4), [[0, 1, 2, 3], [4, 5, 6, 7]])
    ids = grid(MeshConfig(data=2, tensor=2, dcn_data=-1, dcn_fsdp=2), 4, 1, 4)
    assert ids.shape == (4, 2, 1, 2)
    for slice_index, (data, fsdp) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        part = ids[2 * data : 2 * data + 2, fsdp]
        assert sorted(part.ravel()) == list(range(4 * slice_index, 4 * slice_index + 4))


def test_within_one_slice_dcn_sizes_split_hosts():
    ids = grid(MeshConfig(tensor=2, dcn_data=3), 1, 3, 2)
    np.testing.assert_array_equal(ids.reshape(3, 2), [[0, 1], [2, 3], [4, 5]])
    assert slice_ids(devices(1, 3, 2)) == {0, 1, 2} and slice_ids(devices(2, 2, 2)) == {0, 1}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            MeshConfig(dcn_data=3),
            "a mesh of dcn_data=3, dcn_fsdp=1, dcn_expert=1, dcn_tensor=1 does not fit 2 slices",
        ),
        (
            MeshConfig(fsdp=3, dcn_data=2),
            "a mesh of data=-1, fsdp=3, expert=1, tensor=1 does not fit 4 devices of a slice",
        ),
        (
            MeshConfig(data=1, fsdp=2, dcn_data=2),
            "uses 2 of 4 devices of a slice: set one axis to -1",
        ),
        (MeshConfig(dcn_data=-1, dcn_fsdp=-1), "does not fit 2 slices"),
        (MeshConfig(data=0, fsdp=4, dcn_data=2), "data=0, .* does not fit 4 devices of a slice"),
        (MeshConfig(data=-2, fsdp=4, dcn_data=2), "data=-2, .* does not fit 4 devices of a slice"),
    ],
)
def test_sizes_that_do_not_fit_the_devices_are_named(config: MeshConfig, message: str):
    with pytest.raises(UserError, match=message):
        make_mesh(config, devices(2, 2, 2))


def test_learner_and_engine_can_use_disjoint_devices_of_each_process():
    assert [device.id for device in first_devices_per_process(2, devices(1, 2, 4))] == [0, 1, 4, 5]
    learner = make_mesh(MeshConfig(fsdp=2, devices_per_process=6))
    engine = EngineConfig(mesh=MeshConfig(data=2), first_device=6).devices()
    assert set(learner.devices.flat) == set(jax.devices()[:6])
    assert set(engine.devices.flat) == set(jax.devices()[6:])
    with pytest.raises(
        UserError, match=r"config.mesh.devices_per_process=9, but a process has 8 devices"
    ):
        make_mesh(MeshConfig(devices_per_process=9))
    with pytest.raises(UserError, match="of one process"):
        EngineConfig(mesh=MeshConfig(dcn_data=2)).devices()


def test_devices_are_counted_for_each_process():
    assert first_devices_per_process(0, devices(1, 2, 4)) == []
    with pytest.raises(UserError, match="devices_per_process=-1"):
        first_devices_per_process(-1, devices(1, 2, 4))
    uneven = devices(1, 2, 3)[:5]  # three of the first process, two of the second
    assert [device.id for device in first_devices_per_process(2, uneven)] == [0, 1, 3, 4]
    with pytest.raises(UserError, match="devices_per_process=3, but a process has 2 devices"):
        first_devices_per_process(3, uneven)


def test_devices_that_are_passed_are_all_used():
    mesh = make_mesh(MeshConfig(devices_per_process=2), jax.devices()[:4])
    assert list(mesh.devices.flat) == jax.devices()[:4]


def test_slices_of_unequal_size_are_refused():
    with pytest.raises(UserError, match="5 devices cannot be split evenly over 2 slices"):
        hybrid_device_array(MeshConfig(dcn_data=2), devices(2, 1, 3)[:5])


NEED = MemoryNeed(weights=16 * 10**9, trainable=16 * 10**9, optimizer_copies=2)  # 4 x 16 = 64 GB


@pytest.mark.parametrize(
    ("memory", "slices", "expected"),
    [
        (64.01, 1, MeshConfig(data=8, fsdp=1)),  # fits on one device
        (63.0, 1, MeshConfig(data=4, fsdp=2)),
        (8.01, 1, MeshConfig(data=1, fsdp=8)),
        (16.01, 2, MeshConfig(data=1, fsdp=4, dcn_data=2)),  # within a slice
        (8.01, 2, MeshConfig(data=1, fsdp=4, dcn_fsdp=2)),  # not within a slice
    ],
)
def test_weights_are_split_no_further_than_necessary(
    memory: float, slices: int, expected: MeshConfig
):
    assert choose_mesh(NEED, 8, slices, memory / USABLE_MEMORY_FRACTION * GB) == expected


def test_a_model_that_does_not_fit_is_an_error_with_the_number_of_devices_it_needs():
    with pytest.raises(
        UserError,
        match=r"needs 8.0 GB on each of 8 devices and may fill 7.0 GB: 10 devices would do",
    ):
        choose_mesh(NEED, 8, 1, 7 / USABLE_MEMORY_FRACTION * GB)
    with pytest.raises(UserError, match="the engine's weights alone are too many"):
        with_engine = dataclasses.replace(NEED, engine_weights=16 * 10**9)
        choose_mesh(with_engine, 8, 1, 7 / USABLE_MEMORY_FRACTION * GB)
    with_engine = dataclasses.replace(NEED, engine_weights=2 * 10**9)
    with pytest.raises(UserError, match=r"needs 10.0 GB .* may fill 7.0 GB: 13 devices would do"):
        choose_mesh(with_engine, 8, 1, 7 / USABLE_MEMORY_FRACTION * GB)  # 64 / (7 - 2) = 12.8
    filled = MemoryNeed(weights=8, trainable=0, optimizer_copies=0, engine_weights=7)
    with pytest.raises(UserError, match="the engine's weights alone are too many"):
        choose_mesh(filled, 8, 1, 10.0)  # of 10 bytes 7 may be filled, and the engine takes 7


def test_by_default_all_devices_split_the_batch_and_no_memory_is_known():
    assert dataclasses.astuple(MeshConfig()) == (-1, 1, 1, 1, 1, 1, 1, 1, 0, 0.0)
    assert MeshConfig(2, 3, 4, 5, 6, 7, 8, 9).ici_sizes() == (2, 3, 4, 5)
    assert MeshConfig(2, 3, 4, 5, 6, 7, 8, 9).dcn_sizes() == (6, 7, 8, 9)
    assert MemoryNeed(1, 1, 1) == MemoryNeed(1, 1, 1, frozen_copies=0, engine_weights=0)
    assert (GB, USABLE_MEMORY_FRACTION) == (10**9, 0.7)


class TorusDevice:
    """A chip of a torus of 4 x 4."""

    platform, device_kind, core_on_chip = "tpu", "TPU v5 lite", 0

    def __init__(self, id: int, slice_index: int = 0) -> None:
        self.id, self.slice_index, self.process_index = id, slice_index, id // 4
        self.coords = (id % 4, id // 4 % 4, 0)
        self.client = SimpleNamespace(process_index=lambda: 0)


@pytest.mark.parametrize("slices", [1, 2])
def test_an_axis_of_a_torus_may_be_split(slices: int):
    chips: list[Any] = [TorusDevice(i, i // 16) for i in range(16 * slices)]
    mesh = make_mesh(MeshConfig(data=2, fsdp=4, tensor=2, dcn_data=slices), chips)
    assert mesh.devices.shape == (2 * slices, 4, 1, 2)
    assert sorted(device.id for device in mesh.devices.flat) == list(range(16 * slices))
    assert mesh.axis_names == ("data", "fsdp", "expert", "tensor")


@pytest.mark.parametrize(
    ("left", "advice"),
    [(0.5, "16 devices would do"), (1.5, "6 devices would do"), (-0.5, "alone are too many")],
)
def test_little_memory_beside_the_engines_weights(left: float, advice: str):
    need = MemoryNeed(weights=8, trainable=0, optimizer_copies=0, engine_weights=7)
    with pytest.raises(UserError, match=advice):
        choose_mesh(need, 1, 1, (7 + left) / USABLE_MEMORY_FRACTION * (1 + 1e-9))


@pytest.mark.parametrize("memory", [2.0, 3.5, 7.0, 9.0, 13.0, 29.0, 100.0])
@pytest.mark.parametrize(("num_devices", "slices"), [(1, 1), (6, 1), (8, 2), (12, 3)])
@pytest.mark.parametrize("engine", [0, 1])
def test_the_chosen_mesh_is_the_first_that_fits(
    memory: float, num_devices: int, slices: int, engine: int
):
    need = MemoryNeed(weights=10, trainable=8, optimizer_copies=2, engine_weights=engine)
    slice_size = num_devices // slices
    within = [(fsdp, 1) for fsdp in range(1, slice_size + 1) if not slice_size % fsdp]
    fitting = [
        (fsdp, over)
        for fsdp, over in (*within, (slice_size, slices))
        if 34 / (fsdp * over) + engine <= memory  # 10 + 8 x (1 + 2)
    ]
    if not fitting:
        with pytest.raises(UserError, match="the model needs"):
            choose_mesh(need, num_devices, slices, memory / USABLE_MEMORY_FRACTION)
        return
    fsdp, over = fitting[0]
    chosen = choose_mesh(need, num_devices, slices, memory / USABLE_MEMORY_FRACTION * (1 + 1e-9))
    sizes = (slice_size // fsdp, fsdp, slices // over, over)
    assert (chosen.data, chosen.fsdp, chosen.dcn_data, chosen.dcn_fsdp) == sizes


def test_seven_tenths_of_the_memory_are_for_weights():
    need = MemoryNeed(weights=7, trainable=0, optimizer_copies=0)
    assert choose_mesh(need, 2, 1, 10.0) == MeshConfig(data=2, fsdp=1)
    assert choose_mesh(need, 2, 1, 9.9) == MeshConfig(data=1, fsdp=2)


def test_a_reference_and_frozen_weights_count_as_copies():
    assert (
        MemoryNeed(
            weights=100, trainable=10, optimizer_copies=2, frozen_copies=1, engine_weights=50
        ).bytes_per_device(2)
        == (200 + 30) / 2 + 50
    )
    plain = MemoryNeed(weights=100, trainable=10, optimizer_copies=2)
    assert plain.bytes_per_device(2) == (100 + 30) / 2
    policy = MeanEmbeddingPolicy()
    assert memory_need(policy, 0).engine_weights == 0  # the engine has its own devices
    assert memory_need(policy, 2) == MemoryNeed(
        4 * (24 * 8 + 8 * 8), 4 * (24 * 8 + 8 * 8), 2, 1, 2 * (24 * 8 + 8 * 8)
    )


def test_a_mesh_is_chosen_only_where_the_memory_is_set_and_the_sizes_are_not():
    assert resolve_mesh_config(MeshConfig(fsdp=2), NEED, 8, 1) == MeshConfig(fsdp=2)
    assert resolve_mesh_config(
        MeshConfig(memory_gb=16.01 / USABLE_MEMORY_FRACTION, devices_per_process=2), NEED, 8, 1
    ) == MeshConfig(data=2, fsdp=4, devices_per_process=2)
    with pytest.raises(UserError, match="memory_gb chooses the sizes"):
        resolve_mesh_config(MeshConfig(memory_gb=16.0, fsdp=2), NEED, 8, 1)
