"""The checksum of weights depends on every bit and on nothing else."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from support.fixtures import tiny_policy

from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.training.engine_weights import (
    checksums_by_device,
    engine_weights,
    keeps_numbers,
    weight_checksum,
)

RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(8, 6)).astype(np.float32)


def checksum(*arrays: Any) -> int:
    return int(weight_checksum([jnp.asarray(x) for x in arrays]))


def test_it_does_not_depend_on_layout_or_order():
    bits = ARRAY.view(np.uint32).astype(np.uint64)
    mixed = (bits ^ (bits >> 16)) * 0x7FEB352D % 2**32
    expected = int((mixed ^ (mixed >> 15)).sum()) % 2**32
    assert checksum(ARRAY) == checksum(ARRAY.T) == checksum(ARRAY[4:], ARRAY[:4]) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "int32", "uint8"])
def test_it_depends_on_every_bit_of_every_dtype(dtype: str):
    array = jnp.asarray(RNG.integers(1, 100, 5), dtype)
    width = 8 * array.dtype.itemsize
    bits = np.asarray(array).view(f"uint{width}")
    checksums = {checksum(array)}
    for bit in range(width):
        changed = bits.copy()
        changed[2] ^= np.asarray(1 << bit, changed.dtype)
        checksums.add(checksum(jnp.asarray(changed.view(np.asarray(array).dtype))))
    assert len(checksums) == width + 1


@pytest.mark.parametrize(
    "spec", [PartitionSpec(), PartitionSpec("data"), PartitionSpec(None, "tensor")], ids=str
)
def test_the_parts_of_all_devices_are_the_whole(spec: PartitionSpec):
    mesh = make_mesh(MeshConfig(data=4, tensor=2), jax.devices()[:8])
    parts = checksums_by_device([jax.device_put(ARRAY, NamedSharding(mesh, spec))])
    assert sum(map(int, parts)) % 2**32 == checksum(ARRAY)
    assert engine_weights("policy", 3, weight_checksum([jnp.asarray(ARRAY)]), parts).holds
    check = engine_weights("policy", 3, weight_checksum([jnp.asarray(ARRAY + 1)]), parts)
    assert not check.holds and "published as version 3" in check.detail


def test_only_layouts_of_the_learners_numbers_are_compared():
    assert keeps_numbers(tiny_policy()) and keeps_numbers(tiny_policy(tied_head=True))
    lora = LoraConfig(DecoderConfig(1, 16, 32, 2, 1, 8), rank=2)
    assert lora.merge_for_sampling and not keeps_numbers(lora.build(24))
    assert keeps_numbers(dataclasses.replace(lora, merge_for_sampling=False).build(24))


def test_an_engines_weights_have_the_checksum_of_the_learners():
    policy = tiny_policy(layers=2)
    params = jax.jit(policy.init)(jax.random.key(0))
    unstacked = jax.jit(policy.unstack)(params)
    expected = jax.jit(lambda x: weight_checksum(policy.unstack(x)))(params)
    assert engine_weights("policy", 0, expected, checksums_by_device(unstacked)).holds
    other = jax.tree.map(lambda x: x + 1e-6, unstacked)
    assert not engine_weights("policy", 0, expected, checksums_by_device(other)).holds
