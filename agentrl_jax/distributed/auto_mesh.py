"""Chooses the mesh of a model from the bytes that it needs."""

from dataclasses import dataclass, replace

import jax

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy
from agentrl_jax.sampling_weights import narrow_matrices, sampling_dtype

# The fraction of a device's memory for weights; activations, caches and programs use the rest.
USABLE_MEMORY_FRACTION = 0.7
GB = 10**9


@dataclass(frozen=True)
class MemoryNeed:
    """Memory of weights in bytes, summed over devices unless noted."""

    weights: int
    trainable: int  # the part of the weights that has gradients
    optimizer_copies: int  # copies of the trainable weights in the optimizer state: 2 for Adam
    frozen_copies: int = 0  # full copies of the weights in addition (a frozen reference)
    engine_weights: int = 0  # the weights of an engine, on each of its devices

    def bytes_per_device(self, num_shards: int) -> float:
        """Bytes on each device where the learner's arrays are split into `num_shards` parts."""
        frozen = self.weights * (1 + self.frozen_copies)
        trained = self.trainable * (1 + self.optimizer_copies)
        return (frozen + trained) / num_shards + self.engine_weights


def memory_need(policy: Policy, engine_shards: int, engine_dtype: str = "") -> MemoryNeed:
    """What a policy needs under AdamW, with a frozen reference.

    Args:
        policy: its weights are sized without being allocated.
        engine_shards: into how many parts an engine on the same devices splits its copy of the
            weights; 0: the engine has its own devices.
        engine_dtype: the engine's, see `EngineConfig`.
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    sizes = [x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes)]
    is_trained = jax.tree.leaves(policy.trainable())
    weights = sum(sizes)
    dtype = sampling_dtype(policy, engine_dtype)
    copy = jax.eval_shape(lambda params: narrow_matrices(params, dtype), shapes)
    engine = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(copy))
    return MemoryNeed(
        weights,
        sum(size for size, trained in zip(sizes, is_trained) if trained),
        optimizer_copies=2,
        frozen_copies=1,
        engine_weights=engine // engine_shards if engine_shards else 0,
    )


def choose_mesh(need: MemoryNeed, devices: int, slices: int, device_memory: float) -> MeshConfig:
    """The mesh that splits the weights least, since each split costs an all-gather.

    The weights are split over `fsdp` within a slice first, then over all slices; the rest of the
    devices is `data`.

    Args:
        need: the memory of the weights.
        devices: the number of devices in all.
        slices: into how many equal slices they are grouped.
        device_memory: bytes of each device.

    Raises:
        UserError: the model does not fit even where it is split over all devices.
    """
    usable = USABLE_MEMORY_FRACTION * device_memory
    slice_size = devices // slices
    for fsdp in (n for n in range(1, slice_size + 1) if slice_size % n == 0):
        if need.bytes_per_device(fsdp) <= usable:
            return MeshConfig(data=slice_size // fsdp, fsdp=fsdp, dcn_data=slices)
    if need.bytes_per_device(devices) <= usable:
        return MeshConfig(data=1, fsdp=slice_size, dcn_fsdp=slices)
    left = usable - need.engine_weights
    advice = (
        f"{-(-(need.bytes_per_device(1) - need.engine_weights) // left):.0f} devices would do"
        if left > 0
        else "the engine's weights alone are too many"
    )
    raise UserError(
        f"the model needs {need.bytes_per_device(devices) / GB:.1f} GB on each of {devices} "
        f"devices and may fill {usable / GB:.1f} GB: {advice}"
    )


def resolve_mesh_config(
    config: MeshConfig, need: MemoryNeed, devices: int, slices: int
) -> MeshConfig:
    """The config itself, or where it sets `memory_gb`, the mesh chosen by `choose_mesh`."""
    if not config.memory_gb:
        return config
    plain = MeshConfig(devices_per_process=config.devices_per_process, memory_gb=config.memory_gb)
    if config != plain:
        raise UserError(
            "config.mesh.memory_gb chooses the sizes of the axes: "
            f"leave them as they are, or memory_gb at 0 ({config})"
        )
    chosen = choose_mesh(need, devices, slices, config.memory_gb * GB)
    return replace(chosen, devices_per_process=config.devices_per_process)
