"""`DataShard`: which rows of a global batch this process feeds; also copies of arrays on a mesh."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import BATCH_AXES, batch_sharding, num_shards
from agentrl_jax.errors import UserError
from agentrl_jax.learner.packing import Batch, PackedLayout


@dataclasses.dataclass(frozen=True)
class DataShard:
    """This process's rows among those that the mesh splits over `data` and `fsdp`.

    Where the devices that hold the same rows belong to several processes (`tensor` or `expert`
    spans hosts), these form a replica group: they feed the same rows, and each fills some of them
    with its own groups.

    data 2, tensor 2 over four processes of one device  ->  replica groups (0, 1), which holds the
    first half of the rows, and (2, 3)
    """

    mesh: Mesh
    replica_groups: tuple[tuple[int, ...], ...]  # process indices
    process_index: int

    @property
    def replica_processes(self) -> tuple[int, ...]:
        """This process's replica group."""
        return next(group for group in self.replica_groups if self.process_index in group)

    def num_local_rows(self, min_global_rows: int) -> int:
        """The rows of this process's replica group in the smallest global batch that splits evenly.

        Args:
            min_global_rows: the global batch has at least this many rows.
        """
        parts = num_shards(self.mesh, BATCH_AXES)
        return math.ceil(min_global_rows / parts) * parts // len(self.replica_groups)

    def put_global(self, tree: Any, batch: Batch) -> Any:
        """This process's rows as global arrays.

        Args:
            tree: arrays [B, ...] of the local rows.
            batch: the local rows; those without a segment were not filled by this process.
        """
        row_sharding = batch_sharding(self.mesh)
        if self.mesh.devices.size == len(self.mesh.local_devices):
            return jax.device_put(tree, row_sharding)
        if len(self.replica_processes) == 1:
            return jax.tree.map(lambda x: self._make_global(np.asarray(x), row_sharding), tree)
        # Every process of the replica group provides a copy of the rows, and each row is taken from
        # the process that filled it.
        replica_axes = self._replica_axes()
        sharding = NamedSharding(self.mesh, PartitionSpec(replica_axes, *row_sharding.spec))
        index_of_device = sharding.addressable_devices_indices_map(
            (num_shards(self.mesh, replica_axes), num_shards(self.mesh, BATCH_AXES))
        )
        copies = len({index[0].start for index in index_of_device.values() if index})

        def put_copies(x: Any) -> Array:
            return self._make_global(np.broadcast_to(x, (copies, *np.shape(x))), sharding)

        filled = np.asarray(batch.segment_ids).any(axis=1)
        return _select_filled(self.mesh)(jax.tree.map(put_copies, tree), put_copies(filled))

    def _replica_axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in self.mesh.axis_names if axis not in BATCH_AXES)

    def _make_global(self, x: np.ndarray, sharding: NamedSharding) -> Array:
        lead = len(sharding.spec) - 1  # 1 with a leading axis of copies, 0 without
        copies = (num_shards(self.mesh, self._replica_axes()),) * lead
        rows = x.shape[lead] * len(self.replica_groups)
        shape = (*copies, rows, *x.shape[lead + 1 :])
        return jax.make_array_from_process_local_data(sharding, x, global_shape=shape)

    def local_rows(self, x: Array) -> np.ndarray:
        """This process's rows of a global array [B, ...], on the host."""
        parts = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}
        return np.concatenate([jax.device_get(parts[start]) for start in sorted(parts)])


@functools.cache
def _select_filled(mesh: Mesh) -> Any:
    """A program that takes each row of copies [X, B, ...] from the first copy that filled it."""

    def choose(copies: Any, filled: Array) -> Any:
        copy = jnp.argmax(filled, axis=0)
        return jax.tree.map(
            lambda x: jnp.take_along_axis(x, copy.reshape(1, -1, *(1,) * (x.ndim - 2)), axis=0)[0],
            copies,
        )

    return jax.jit(choose, out_shardings=batch_sharding(mesh))


def make_data_shard(mesh: Mesh) -> DataShard:
    """The data shard of this process.

    Raises:
        UserError: the mesh splits its rows unevenly over the processes, or has no device of this
            process.
    """
    num_parts = num_shards(mesh, BATCH_AXES)
    rows_of_process: dict[int, set[int]] = {}
    for device, index in batch_sharding(mesh).devices_indices_map((num_parts,)).items():
        rows_of_process.setdefault(device.process_index, set()).add(index[0].start or 0)
    groups: dict[frozenset[int], list[int]] = {}  # rows -> the processes that hold them
    for process in sorted(rows_of_process):
        groups.setdefault(frozenset(rows_of_process[process]), []).append(process)
    if jax.process_index() not in rows_of_process:
        raise UserError(
            f"process {jax.process_index()} has no device in the learner's mesh: "
            "every process must have some"
        )
    is_disjoint = sum(map(len, groups)) == num_parts
    if not is_disjoint or len({(len(rows), len(group)) for rows, group in groups.items()}) > 1:
        rows_text = {process: sorted(rows) for process, rows in sorted(rows_of_process.items())}
        raise UserError(
            f"the mesh {dict(mesh.shape)} splits its rows unevenly over the processes "
            f"({rows_text}): choose sizes that fit"
        )
    return DataShard(mesh, tuple(map(tuple, groups.values())), jax.process_index())


def agree_on_layout(
    process_group: ProcessGroup,
    data_shard: DataShard,
    layout: PackedLayout,
    bins_per_microbatch: int,
) -> PackedLayout | None:
    """The layout with the number of microbatches that the fullest replica group needs.

    This process's bins follow those of the earlier processes of its replica group; empty bins have
    weight zero. None where no process has a sequence.

    Args:
        process_group: the processes of the run; all call this.
        data_shard: this process's.
        layout: this process's packed sequences.
        bins_per_microbatch: of a replica group.
    """
    num_bins = int(layout.bin_index.max()) + 1 if len(layout.sequences) else 0
    bins = process_group.all_gather("microbatches", num_bins)
    most = max(sum(bins[p] for p in group) for group in data_shard.replica_groups)
    earlier = (p for p in data_shard.replica_processes if p < data_shard.process_index)
    first_bin = sum(bins[p] for p in earlier)
    if not most:
        return None
    return dataclasses.replace(
        layout,
        num_bins=math.ceil(most / bins_per_microbatch) * bins_per_microbatch,
        bin_index=layout.bin_index + first_bin,
    )


def put_sharded(x: Any, sharding: Any) -> Array:
    """A copy of an array with this sharding.

    Where the sharding spans processes, each of them holds all of `x`, and nothing is exchanged.
    """
    x = jnp.asarray(x)
    if sharding.is_fully_addressable or not x.is_fully_addressable:
        return jnp.copy(jax.device_put(x, sharding))
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(put_sharded(jax.random.key_data(x), sharding))
    host = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: host[index])
