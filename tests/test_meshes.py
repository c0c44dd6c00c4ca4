"""Meshes over slices and hosts, some devices of each process, and the mesh that a model's memory asks for."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging

from agentrl_jax.errors import UserError
from agentrl_jax.fitting import GB, ROOM, Need, fit, fitted, need_of
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.sharding import MeshConfig, arranged, first_of_each, make_mesh, slices_of


def devices(slices: int, hosts: int, each: int) -> list[Any]:
    """So many slices of hosts with some devices each."""
    made = []
    for i in range(slices * hosts * each):
        process = i // each
        made.append(SimpleNamespace(id=i, process_index=process, slice_index=process // hosts, platform="cpu", device_kind="cpu"))
    return made


def grid(config: MeshConfig, *shape: int) -> np.ndarray:
    """The devices' numbers in the mesh, [data, fsdp, expert, tensor]."""
    return np.vectorize(lambda device: device.id)(arranged(config, devices(*shape)))


def test_slices_are_split_by_the_sizes_over_the_network_and_their_devices_by_the_others():
    found = grid(MeshConfig(data=1, fsdp=-1, dcn_data=2), 2, 2, 2)
    np.testing.assert_array_equal(found.reshape(2, 4), [[0, 1, 2, 3], [4, 5, 6, 7]])  # a slice is a row of data
    found = grid(MeshConfig(data=2, tensor=2, dcn_data=-1, dcn_fsdp=2), 4, 1, 4)
    assert found.shape == (4, 2, 1, 2)
    for slice_, (data, fsdp) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        part = found[2 * data : 2 * data + 2, fsdp]
        assert sorted(part.ravel()) == list(range(4 * slice_, 4 * slice_ + 4))


def test_where_there_is_one_slice_its_hosts_are_what_the_network_joins():
    found = grid(MeshConfig(tensor=2, dcn_data=3), 1, 3, 2)
    np.testing.assert_array_equal(found.reshape(3, 2), [[0, 1], [2, 3], [4, 5]])
    assert slices_of(devices(1, 3, 2)) == {0, 1, 2} and slices_of(devices(2, 2, 2)) == {0, 1}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MeshConfig(dcn_data=3), "a mesh of dcn_data=3, dcn_fsdp=1, dcn_expert=1, dcn_tensor=1 does not fit 2 slices"),
        (MeshConfig(fsdp=3, dcn_data=2), "a mesh of data=-1, fsdp=3, expert=1, tensor=1 does not fit 4 devices of a slice"),
        (MeshConfig(data=1, fsdp=2, dcn_data=2), "uses 2 of 4 devices of a slice: set one axis to -1"),
        (MeshConfig(dcn_data=-1, dcn_fsdp=-1), "does not fit 2 slices"),
    ],
)
def test_numbers_that_do_not_multiply_out_are_named(config: MeshConfig, message: str):
    with pytest.raises(UserError, match=message):
        make_mesh(config, devices(2, 2, 2))


def test_a_learner_can_have_the_first_devices_of_each_process_and_the_engine_others():
    assert [device.id for device in first_of_each(2, devices(1, 2, 4))] == [0, 1, 4, 5]
    learner, engine = make_mesh(MeshConfig(fsdp=2, each=6)), EngineConfig(mesh=MeshConfig(data=2), first_device=6).devices()
    assert set(learner.devices.flat) == set(jax.devices()[:6]) and set(engine.devices.flat) == set(jax.devices()[6:])
    with pytest.raises(UserError, match=r"config.mesh.each=9, but a process has 8 devices"):
        make_mesh(MeshConfig(each=9))
    with pytest.raises(UserError, match="of one process"):
        EngineConfig(mesh=MeshConfig(dcn_data=2)).devices()


NEED = Need(weights=16 * GB, trained=16 * GB, moments=2, copies=0, served=0)  # 4 x 16 = 64 GB


@pytest.mark.parametrize(
    ("memory", "slices", "expected"),
    [
        (64.01, 1, MeshConfig(data=8, fsdp=1)),  # fits whole
        (63.0, 1, MeshConfig(data=4, fsdp=2)),
        (8.01, 1, MeshConfig(data=1, fsdp=8)),
        (16.01, 2, MeshConfig(data=1, fsdp=4, dcn_data=2)),  # within a slice
        (8.01, 2, MeshConfig(data=1, fsdp=4, dcn_fsdp=2)),  # not within a slice
    ],
)
def test_weights_are_split_just_as_far_as_they_must(memory: float, slices: int, expected: MeshConfig):
    assert fit(NEED, 8, slices, memory / ROOM * GB) == expected


def test_what_does_not_fit_says_how_many_devices_would_do():
    with pytest.raises(UserError, match=r"needs 8.0 GB on each of 8 devices and may fill 7.0 GB: 10 devices would do"):
        fit(NEED, 8, 1, 7 / ROOM * GB)
    with pytest.raises(UserError, match="the engine's weights alone are too many"):
        fit(dataclasses.replace(NEED, served=16 * GB), 8, 1, 7 / ROOM * GB)


def test_a_reference_and_frozen_weights_count_as_they_are_kept():
    assert Need(weights=100, trained=10, moments=2, copies=1, served=50).on_each(2) == (200 + 30) / 2 + 50
    policy = Averaging()
    assert need_of(policy, 2) == Need(4 * (24 * 8 + 8 * 8), 4 * (24 * 8 + 8 * 8), 2, 1, 2 * (24 * 8 + 8 * 8))


def test_a_mesh_is_chosen_only_where_the_memory_is_told_and_the_sizes_are_not():
    assert fitted(MeshConfig(fsdp=2), NEED, 8, 1) == MeshConfig(fsdp=2)
    assert fitted(MeshConfig(memory_gb=16.01 / ROOM, each=2), NEED, 8, 1) == MeshConfig(data=2, fsdp=4, each=2)
    with pytest.raises(UserError, match="memory_gb chooses the sizes"):
        fitted(MeshConfig(memory_gb=16.0, fsdp=2), NEED, 8, 1)
