"""Which mesh a model needs: chosen from bytes."""

from dataclasses import dataclass, replace

import jax

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy
from agentrl_jax.sharding import MeshConfig

ROOM = 0.7  # of a device's memory that may be filled; activations, caches and programs have the rest
GB = 10**9


@dataclass(frozen=True)
class Need:
    """Bytes, all devices together."""

    weights: int
    trained: int  # of the weights, those that have a gradient
    moments: int  # copies of what is trained that the optimizer keeps: 2 for Adam
    copies: int = 0  # whole copies of the weights beside (a frozen reference)
    served: int = 0  # the weights of an engine, on each of its devices

    def on_each(self, parts: int) -> float:
        """Bytes on a device where the learner's are split into so many parts."""
        return (self.weights * (1 + self.copies) + self.trained * (1 + self.moments)) / parts + self.served


def need_of(policy: Policy, served: int) -> Need:
    """Of a policy under AdamW, with room for a frozen reference; an engine splits it into `served` parts, 0: has its own devices."""
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    sizes = [(x.size * x.dtype.itemsize, chosen) for x, chosen in zip(jax.tree.leaves(shapes), jax.tree.leaves(policy.trainable()))]
    weights = sum(size for size, _ in sizes)
    return Need(weights, sum(size for size, chosen in sizes if chosen), moments=2, copies=1, served=weights // served if served else 0)


def fit(need: Need, devices: int, slices: int, memory: float) -> MeshConfig:
    """The mesh that splits the weights least, since each split costs a gather: over `fsdp` within a slice, then over all slices.

    `devices` in all, of `memory` bytes each, in so many equal `slices`. What is not `fsdp` is `data`.

    Raises:
        UserError: the model does not fit even where it is split over all devices.
    """
    within = devices // slices
    for fsdp in (n for n in range(1, within + 1) if within % n == 0):
        if need.on_each(fsdp) <= ROOM * memory:
            return MeshConfig(data=within // fsdp, fsdp=fsdp, dcn_data=slices)
    if need.on_each(devices) <= ROOM * memory:
        return MeshConfig(data=1, fsdp=within, dcn_fsdp=slices)
    left = ROOM * memory - need.served
    more = f"{-(-(need.on_each(1) - need.served) // left):.0f} devices would do" if left > 0 else "the engine's weights alone are too many"
    raise UserError(
        f"the model needs {need.on_each(devices) / GB:.1f} GB on each of {devices} devices and may fill {ROOM * memory / GB:.1f} GB: {more}"
    )


def fitted(config: MeshConfig, need: Need, devices: int, slices: int) -> MeshConfig:
    """`config` itself, or where it tells the memory of a device, the mesh that fits."""
    if not config.memory_gb:
        return config
    plain = MeshConfig(each=config.each, memory_gb=config.memory_gb)
    if config != plain:
        raise UserError(f"config.mesh.memory_gb chooses the sizes of the axes: leave them as they are, or memory_gb at 0 ({config})")
    return replace(fit(need, devices, slices, config.memory_gb * GB), each=config.each)
