"""`Share`: which rows of a global batch this process feeds, and with whom; weights between processes and the global mesh."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from agentrl_jax.batch import Batch, Layout
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.record import AnyArray
from agentrl_jax.sharding import ROWS, batch_sharding, shards


@dataclasses.dataclass(frozen=True)
class Share:
    """This process's rows among those that the mesh splits over `data` and `fsdp`.

    Where devices that hold the same rows are of several processes (`tensor` or `expert` reaches over hosts), these are a
    team: they feed the same rows, each with its own groups in some of them.

    data 2, tensor 2 over four processes of one device  ->  teams (0, 1), which holds the first half of the rows, and (2, 3)
    """

    mesh: Mesh
    teams: tuple[tuple[int, ...], ...]
    index: int  # this process

    @property
    def team(self) -> tuple[int, ...]:
        return next(team for team in self.teams if self.index in team)

    def rows(self, rows: int) -> int:
        """How many of the rows of a global batch, at least `rows` and so many that they split evenly, are this team's."""
        parts = shards(self.mesh, ROWS)
        return math.ceil(rows / parts) * parts // len(self.teams)

    def put(self, tree: Any, batch: Batch) -> Any:
        """Arrays [B, ...] of this process's rows as global ones; `batch` tells which of them it filled."""
        everywhere = batch_sharding(self.mesh)
        if self.mesh.devices.size == len(self.mesh.local_devices):
            return jax.device_put(tree, everywhere)
        if len(self.team) == 1:
            return jax.tree.map(lambda x: self._global(np.asarray(x), everywhere), tree)
        # Every process of the team hands in a copy of the rows, and each is taken from the one that filled it.
        others = tuple(axis for axis in self.mesh.axis_names if axis not in ROWS)
        apart = NamedSharding(self.mesh, PartitionSpec(others, *everywhere.spec))
        where = apart.addressable_devices_indices_map((shards(self.mesh, others), shards(self.mesh, ROWS)))
        copies = len({index[0].start for index in where.values() if index})

        def copied(x: Any) -> Array:
            return self._global(np.broadcast_to(x, (copies, *np.shape(x))), apart)

        filled = np.asarray(batch.segment_ids).any(axis=1)
        return _chosen(self.mesh)(jax.tree.map(copied, tree), copied(filled))

    def _global(self, x: np.ndarray, sharding: NamedSharding) -> Array:
        others = math.prod(shards(self.mesh, (axis,)) for axis in self.mesh.axis_names if axis not in ROWS)
        lead = len(sharding.spec) - 1  # a leading axis for copies, or none
        shape = (*(others,) * lead, x.shape[lead] * len(self.teams), *x.shape[lead + 1 :])
        return jax.make_array_from_process_local_data(sharding, x, global_shape=shape)

    def take(self, x: Array) -> np.ndarray:
        """This process's rows of a global array [B, ...], on the host."""
        parts = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}
        return np.concatenate([jax.device_get(parts[start]) for start in sorted(parts)])


@functools.cache
def _chosen(mesh: Mesh) -> Any:
    """Of copies [X, B, ...] of rows, each row from the first copy in which it is filled, or else from any."""

    def choose(copies: Any, filled: Array) -> Any:
        copy = jnp.argmax(filled, axis=0)
        return jax.tree.map(lambda x: jnp.take_along_axis(x, copy.reshape(1, -1, *(1,) * (x.ndim - 2)), axis=0)[0], copies)

    return jax.jit(choose, out_shardings=batch_sharding(mesh))


def share_of(mesh: Mesh) -> Share:
    """Raises UserError where the mesh splits its rows unevenly over the processes."""
    held: dict[int, set[int]] = {}
    for device, index in batch_sharding(mesh).devices_indices_map((shards(mesh, ROWS),)).items():
        held.setdefault(device.process_index, set()).add(index[0].start or 0)
    teams: dict[frozenset[int], list[int]] = {}
    for process in sorted(held):
        teams.setdefault(frozenset(held[process]), []).append(process)
    if jax.process_index() not in held:
        raise UserError(f"process {jax.process_index()} has no device in the learner's mesh: every process must have some")
    disjoint = sum(map(len, teams)) == shards(mesh, ROWS)
    if not disjoint or len({(len(rows), len(team)) for rows, team in teams.items()}) > 1:
        where = {process: sorted(rows) for process, rows in sorted(held.items())}
        raise UserError(f"the mesh {dict(mesh.shape)} splits its rows unevenly over the processes ({where}): choose sizes that fit")
    return Share(mesh, tuple(map(tuple, teams.values())), jax.process_index())


def settle(hosts: Hosts, share: Share, layout: Layout, rows: int) -> Layout | None:
    """The layout with as many microbatches, of `rows` bins a team, as the fullest team needs; None where nobody has a row.

    Its own bins come after those of the team's processes before it; the bins that are left have weight zero.
    """
    bins = hosts.gather("microbatches", int(layout.bin_of.max()) + 1 if len(layout.rows) else 0)
    most = max(sum(bins[p] for p in team) for team in share.teams) if hosts.count > 1 else bins[0]
    before = sum(bins[p] for p in share.team if p < share.index) if hosts.count > 1 else 0
    return dataclasses.replace(layout, bins=math.ceil(most / rows) * rows, bin_of=layout.bin_of + before) if most else None


def place(x: Any, sharding: Any) -> Array:
    """A copy of an array over a mesh; where that is of several processes, each has the whole of `x` and sends nothing."""
    x = jnp.asarray(x)
    if sharding.is_fully_addressable or not x.is_fully_addressable:
        return jnp.copy(jax.device_put(x, sharding))
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(place(jax.random.key_data(x), sharding))
    host = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: host[index])


def brought(x: AnyArray) -> AnyArray:
    """A global array as an array of this process's devices alone, moved between devices only: whole here, split where it can be."""
    if isinstance(x, np.ndarray) or x.is_fully_addressable:
        return x
    by_process = _by_process(tuple(x.sharding.device_set))
    here = len(by_process.local_devices)
    axis = next((i for i, size in enumerate(x.shape) if size % here == 0), None)
    spec = PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, "local")
    found = jax.device_put(x, NamedSharding(by_process, spec))
    own = Mesh(by_process.devices[_row_of(by_process)], ("local",))
    pieces = {shard.device: shard.data for shard in found.addressable_shards}
    return jax.make_array_from_single_device_arrays(x.shape, NamedSharding(own, spec), [pieces[device] for device in own.devices])


@functools.cache
def _by_process(devices: Sequence[Any]) -> Mesh:
    """The devices of each process in a row. Raises UserError where one has more than another."""
    found: dict[int, list[Any]] = {}
    for device in sorted(devices, key=lambda device: device.id):
        found.setdefault(device.process_index, []).append(device)
    if len(set(map(len, found.values()))) > 1:
        raise UserError("every process must have equally many devices in the learner's mesh")
    return Mesh(np.array([found[process] for process in sorted(found)]), ("process", "local"))


def _row_of(by_process: Mesh) -> int:
    return [row[0].process_index for row in by_process.devices].index(jax.process_index())
