"""Checksums of weights: that an engine samples with those that the trainer published."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, UInt32

from agentrl_jax.distributed.sharding import replicated_sharding, with_auto_axes
from agentrl_jax.engine import WeightHolder
from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.sampling_weights import only_moves, sampling_dtype, sampling_weights

MAX_VERSIONS = 8  # that are remembered: an engine may lag behind by some


def weight_checksum(params: Params) -> UInt32[Array, ""]:
    """The sum over all numbers of a hash of their bits, modulo 2^32: it does not depend on how the
    weights are stacked, transposed or sharded, nor on the order of summation.
    """
    return functools.reduce(jnp.add, map(_array_checksum, jax.tree.leaves(params)), jnp.uint32(0))


def _array_checksum(x: Any) -> UInt32[Array, ""]:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    bits = x.astype(jnp.uint32)
    mixed = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    return jnp.sum(mixed ^ (mixed >> 15), dtype=jnp.uint32)


def _sampling_checksum(policy: Policy, dtype: np.dtype, params: Params) -> UInt32[Array, ""]:
    return weight_checksum(sampling_weights(policy, params, dtype))


@jax.jit
def _checksum_on_device(arrays: list[Array]) -> UInt32[Array, ""]:
    return weight_checksum(arrays)


def checksums_by_device(params: Params) -> list[UInt32[Array, ""]]:
    """Partial checksums of weights that are sharded over this process's devices, one a device.

    Each is a program of a single device: no collective of them can meet those of another thread.
    """
    by_device: dict[Any, list[Array]] = {}
    for leaf in jax.tree.leaves(params):
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                by_device.setdefault(shard.device, []).append(shard.data)
    return [_checksum_on_device(arrays) for arrays in by_device.values()]


def keeps_numbers(policy: Policy) -> bool:
    """Whether an engine of the policy holds the learner's very numbers (perhaps some of them, or
    some twice, or rounded), and not ones computed of them, such as adapters merged into their
    weights.
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return only_moves(jax.make_jaxpr(policy.unstack)(shapes).jaxpr)


class EngineWeights:
    """Checksums of the weights that a phase publishes, and of those that its engines sample with.

    Everything stays on the devices until the step is reported, during the next one.
    """

    def __init__(self, policies: Mapping[str, Policy], mesh: Mesh, dtype: str = "") -> None:
        """
        Args:
            policies: those of the engines, by name.
            mesh: the learner's.
            dtype: the engines', see `EngineConfig`.
        """
        self._mesh = with_auto_axes(mesh)
        self._programs = {
            name: jax.jit(
                functools.partial(_sampling_checksum, policy, sampling_dtype(policy, dtype)),
                out_shardings=replicated_sharding(self._mesh),
            )
            for name, policy in policies.items()
            if keeps_numbers(policy)
        }
        self._published: dict[tuple[str, int], Array] = {}

    def publish(self, engine: str, params: Params, version: int) -> None:
        """Start to compute the checksum of weights that an engine is given."""
        if engine not in self._programs:
            return
        with jax.set_mesh(self._mesh):
            self._published[engine, version] = self._programs[engine](params)
        for key in list(self._published)[: -MAX_VERSIONS * len(self._programs)]:
            del self._published[key]

    def defer_checks(self, runtime: Runtime) -> None:
        """Start to compute the checksums of what the engines sample with, to be compared later."""
        for name in self._programs:
            engine = runtime.engines[name]
            if not isinstance(engine, WeightHolder):
                continue
            for version, params in engine.weights_in_use():
                expected = self._published.get((name, version))
                if expected is not None:
                    parts = checksums_by_device(params)
                    runtime.invariants.defer(engine_weights, name, version, expected, parts)


def engine_weights(
    engine: str, version: int, expected: UInt32[Array, ""], parts: Sequence[UInt32[Array, ""]]
) -> InvariantCheck:
    """An engine samples with the weights that were published under its version.

    Args:
        engine: its name.
        version: that it tags tokens with.
        expected: the checksum of the weights that were published.
        parts: partial checksums of those in use; their sum is compared, modulo 2^32.
    """
    in_use = sum(int(part) for part in jax.device_get(list(parts))) % 2**32
    published = int(jax.device_get(expected))
    return InvariantCheck(
        "engine_weights",
        in_use == published,
        f"the engine {engine!r} samples with weights of the checksum {in_use:08x}, while those "
        f"published as version {version} have {published:08x}",
    )
