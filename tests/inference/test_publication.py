"""Weights go from a learner's devices to an engine's without a host reading them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from support.fixtures import device_mesh, record_compilations, tiny_policy
from support.host_reads import count_host_reads
from support.processes import SUPPORT, assert_success, start_processes

from agentrl_jax.distributed.resharding import first_step, reshard, shared_layout
from agentrl_jax.distributed.sharding import MESH_AXES, weight_shardings
from agentrl_jax.inference.publication import Publication
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.sampling_weights import sampling_weights

POLICY = tiny_policy(kv_heads=2)
FLOAT32 = jnp.dtype("float32")


def mesh_of(devices: list[int], **sizes: int) -> Mesh:
    shape = [sizes.get(axis, 1) for axis in MESH_AXES]
    return Mesh(np.array(jax.devices(), object)[devices].reshape(shape), MESH_AXES)


def sharded(policy: Policy, mesh: Mesh, seed: int = 0) -> Params:
    params = jax.jit(policy.init)(jax.random.key(seed))
    return jax.device_put(params, weight_shardings(mesh, policy.axes(), params))


def assert_holds(weights: Params, params: Params, mesh: Mesh, policy: Policy = POLICY) -> None:
    """The engine has, on its devices, the bits of the learner's weights."""
    expected = jax.jit(policy.unstack)(jax.device_get(params))
    jax.tree.map(np.testing.assert_array_equal, weights, expected)
    devices = set(mesh.devices.flat)
    assert all(x.sharding.device_set == devices for x in jax.tree.leaves(weights))


# The learner's devices and mesh, the engine's devices and mesh.
CASES: dict[str, tuple[list[int], dict[str, int], list[int], dict[str, int]]] = {
    "same chips": ([0, 1, 2, 3], {"fsdp": 4}, [0, 1, 2, 3], {"tensor": 4}),
    "same chips in another order": ([0, 1, 3, 2], {"fsdp": 4}, [0, 1, 2, 3], {"tensor": 4}),
    "a subset": ([*range(8)], {"data": 2, "fsdp": 2, "tensor": 2}, [0, 1], {"tensor": 2}),
    "other chips": ([0, 1, 2, 3], {"fsdp": 2, "tensor": 2}, [4, 5, 6, 7], {"tensor": 4}),
    "more chips": ([0], {}, [2, 3], {"tensor": 2}),
    "numbers that do not divide": ([0, 1, 2], {"fsdp": 3}, [3, 4], {"tensor": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_no_host_reads_weights_that_are_published(name: str):
    devices, sizes, engine_devices, engine_sizes = CASES[name]
    mesh = mesh_of(engine_devices, **engine_sizes)
    publish = Publication(POLICY, mesh, FLOAT32, max_group_bytes=1)
    first, second = (sharded(POLICY, mesh_of(devices, **sizes), seed) for seed in range(2))
    with count_host_reads() as reads:
        weights = publish(first)
        again = publish(second, jax.tree.map(jnp.copy, weights))
    assert reads == []
    assert_holds(weights, first, mesh)
    assert_holds(again, second, mesh)


@pytest.mark.slow
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3]])
def test_no_host_of_several_reads_them(order: list[int], tmp_path: Path):
    command = [SUPPORT / "publish_process.py", tmp_path, *order]
    assert_success(start_processes(2, command, devices=2))
    expected = jax.jit(POLICY.unstack)(POLICY.init(jax.random.key(0)))
    for process in range(2):
        assert json.loads((tmp_path / f"reads.{process}.json").read_text()) == []
        weights = np.load(tmp_path / f"weights.{process}.npz")
        for path, x in jax.tree.leaves_with_path(expected):
            np.testing.assert_array_equal(weights[jax.tree_util.keystr(path)], x)


def test_new_weights_take_the_memory_of_the_old_ones():
    mesh = device_mesh(tensor=2)
    publish = Publication(POLICY, mesh, FLOAT32, max_group_bytes=1)
    first, second = (sharded(POLICY, device_mesh(fsdp=4), seed) for seed in range(2))
    old = publish(first)
    publish(second, jax.tree.map(jnp.copy, old))

    def addresses(tree: Any) -> list[int]:
        return [
            shard.data.unsafe_buffer_pointer()
            for x in jax.tree.leaves(tree)
            for shard in x.addressable_shards
        ]

    before = sorted(addresses(old))
    with record_compilations() as compiled:
        new = publish(second, old)
    assert compiled == [] and sorted(addresses(new)) == before
    assert all(x.is_deleted() for x in jax.tree.leaves(old))
    assert_holds(new, second, mesh)


def test_arrays_are_published_one_by_one_or_together_up_to_a_size():
    params, mesh = jax.eval_shape(POLICY.init, jax.random.key(0)), device_mesh()
    count = len(jax.tree.leaves(params))
    one_by_one, tree = Publication(POLICY, mesh, FLOAT32, max_group_bytes=1).groups(params)
    assert [len(group.inputs) for group in one_by_one] == [1] * count
    together, _ = Publication(POLICY, mesh, FLOAT32).groups(params)
    assert [len(group.inputs) for group in together] == [count]
    outputs = sorted(i for group in one_by_one for i in group.outputs)
    assert outputs == [*range(tree.num_leaves)]


def test_matrices_are_rounded_before_they_are_moved_and_norms_are_not():
    policy = dataclasses.replace(POLICY.config, compute_dtype="bfloat16").build(POLICY.vocab_size)
    mesh = device_mesh(tensor=2)
    publish = Publication(policy, mesh, jnp.dtype("bfloat16"), max_group_bytes=1)
    params = sharded(policy, device_mesh(fsdp=4))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(params)]
    moved = {
        names[i]: dtype.name for group in publish.groups(params)[0] for i, dtype, _ in group.inputs
    }
    for name, dtype in moved.items():
        assert dtype == ("float32" if "norm" in name else "bfloat16"), name
    expected = jax.jit(lambda x: sampling_weights(policy, x, jnp.dtype("bfloat16")))(
        jax.device_get(params)
    )
    jax.tree.map(np.testing.assert_array_equal, publish(params), expected)


def test_a_weight_and_its_adapter_are_merged_in_one_group():
    policy = LoraConfig(dataclasses.replace(POLICY.config), rank=2).build(POLICY.vocab_size)
    mesh = device_mesh(tensor=2)
    publish = Publication(policy, mesh, FLOAT32, max_group_bytes=1)
    params = sharded(policy, device_mesh(fsdp=4))
    params["adapters"] = jax.tree.map(lambda x: x + 0.1, params["adapters"])
    assert {len(group.inputs) for group in publish.groups(params)[0]} == {1, 3}
    expected = jax.jit(policy.unstack)(jax.device_get(params))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), publish(params), expected
    )


def test_no_device_holds_more_than_a_shard_of_an_array_on_its_way():
    """The program between the layouts has no array larger than the engine's shard."""
    source = NamedSharding(device_mesh(fsdp=8), PartitionSpec(None, "fsdp"))
    x = jax.ShapeDtypeStruct((4, 64, 32), jnp.float32, sharding=source)
    layout = shared_layout(
        x, NamedSharding(device_mesh(tensor=2), PartitionSpec(None, None, "tensor"))
    )
    step = first_step(x, layout)
    assert layout.shard_shape(x.shape) == (4, 64, 16)
    assert step.shard_shape(x.shape) == (4, 16, 16)
    array = jax.device_put(jnp.arange(4 * 64 * 32.0).reshape(x.shape), source)
    target = NamedSharding(device_mesh(tensor=2), PartitionSpec(None, None, "tensor"))
    np.testing.assert_array_equal(reshard(array, target), array)
