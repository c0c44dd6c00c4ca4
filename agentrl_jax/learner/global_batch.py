"""`GlobalGroups`: the token indices of the groups of all processes.

Credit and loss weights computed from them are those of a single process with all groups. What else
credit is computed from (`CreditInputs`) is exchanged column by column, when a function reads it.
"""

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from flax.serialization import msgpack_restore, msgpack_serialize

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.deferred_inputs import (
    COLUMN_LEVELS,
    INDEX_FIELDS,
    DeferredCreditInputs,
    TrajectoryFn,
)
from agentrl_jax.learner.sequences import CreditInputs, Level, TokenIndex
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Call, Trajectory

TokenIndexT = TypeVar("TokenIndexT", bound=TokenIndex)
# Sent in compressed form, as runs.
RUN_FIELDS = ("token_sequence", "token_position", "token_turn")
INDEX_LEVELS: dict[str, Level] = {
    field.name: field.metadata["level"] for field in dataclasses.fields(TokenIndex)
}


class ProcessPart(NamedTuple):
    """What one process contributes: its index, and each of its groups' number among all."""

    token_index: TokenIndex
    group_indices: Sequence[int]


@dataclass(frozen=True, eq=False)
class GlobalGroups(Generic[TokenIndexT]):
    """The token index of all groups, in the order in which a single process would have them."""

    token_index: TokenIndexT
    num_groups: int
    local_groups: np.ndarray  # int: the numbers of this process's groups
    local_token_mask: np.ndarray  # bool [N]: this process's tokens, in its own order

    def select_groups(self, groups: np.ndarray) -> tuple[TokenIndexT, slice]:
        """The index of some adjacent groups alone, and the range of their tokens in [N]."""
        index = self.token_index
        first, stop = (groups[0], groups[-1] + 1) if len(groups) else (0, 0)
        j0, j1 = np.searchsorted(index.trajectory_group, [first, stop])
        r0, r1 = np.searchsorted(index.turn_trajectory, [j0, j1])
        n0, n1 = np.searchsorted(index.token_turn, [r0, r1])
        ranges: dict[Level, slice] = {
            "token": slice(n0, n1),
            "turn": slice(r0, r1),
            "trajectory": slice(j0, j1),
        }
        deferred = isinstance(index, DeferredCreditInputs)
        levels = INDEX_LEVELS if deferred else _levels(index)
        fields = {name: getattr(index, name)[ranges[level]] for name, level in levels.items()}
        fields["token_sequence"] = fields["token_sequence"] - fields["token_sequence"][:1]
        fields["token_turn"] = fields["token_turn"] - r0
        fields["turn_trajectory"] = fields["turn_trajectory"] - j0
        fields["trajectory_group"] = fields["trajectory_group"] - first
        if deferred:
            return cast(TokenIndexT, index.select(TokenIndex(**fields), ranges)), ranges["token"]
        return dataclasses.replace(index, **fields), ranges["token"]


def _levels(index: TokenIndex) -> dict[str, Level]:
    """The level of each field that is set."""
    return {
        field.name: field.metadata["level"]
        for field in dataclasses.fields(index)
        if getattr(index, field.name) is not None
    }


def gather_groups(
    process_group: ProcessGroup,
    local_index: TokenIndexT,
    num_groups: int,
    group_indices: Sequence[int] | None = None,
) -> GlobalGroups[TokenIndexT]:
    """All-gather the token indices of all processes; of credit inputs each column when it is read.

    Tokens are sent as runs, one per call, so an index takes a few bytes per call, whatever its
    length. Of credit inputs, scores per token and the trajectories without their prompts stay with
    their process until a function reads them (`DeferredCreditInputs`).

    Args:
        process_group: the processes of the run.
        local_index: that of this process's groups.
        num_groups: how many groups this process has.
        group_indices: their numbers among all; None: round-robin, as `ProcessGroup.local_items`.
    """
    if process_group.count == 1:
        is_local = np.ones(len(local_index.token_sequence), bool)
        return GlobalGroups(local_index, num_groups, np.arange(num_groups), is_local)
    if group_indices is None:
        total = num_groups * process_group.count
        group_indices = range(process_group.index, total, process_group.count)
    data = process_group.all_gather_bytes("indices", _serialize_index(local_index, group_indices))
    parts = list(map(_deserialize_index, data))
    merged, order = _merge_parts(parts, process_group.index)
    index: Any = merged.token_index
    if isinstance(local_index, CreditInputs):
        gather = _ColumnGather(process_group, local_index, order)
        index = DeferredCreditInputs.of(merged.token_index, gather.column, gather.map)
    return GlobalGroups(index, merged.num_groups, merged.local_groups, merged.local_token_mask)


@dataclass(frozen=True, eq=False)
class _ColumnGather:
    """Gathers columns of credit inputs, each when it is asked for."""

    process_group: ProcessGroup
    local: CreditInputs
    order: Mapping[Level, np.ndarray]  # of the items of all processes, counted in process order
    trajectories: list[Trajectory] = dataclasses.field(default_factory=list)

    def column(self, name: str) -> Any:
        """A column of all processes; None where they have none."""
        if name == "turns":
            return [turn for trajectory in self._trajectories() for turn in trajectory.turns]
        if name == "trajectories":
            return self._trajectories()
        values = getattr(self.local, name)
        if values is None:
            return None
        data = self.process_group.all_gather_bytes(name, msgpack_serialize(values))
        columns: Any = list(map(msgpack_restore, data))
        return np.concatenate(columns)[self.order[COLUMN_LEVELS[name]]]

    def map(self, function: TrajectoryFn) -> list[Any]:
        """The values of a function of each trajectory of all processes."""
        local = [function(trajectory) for trajectory in self.local.trajectories]
        values = self.process_group.all_gather("trajectory values", local)
        flat = [value for part in values for value in part]
        return [flat[i] for i in self.order["trajectory"]]

    def _trajectories(self) -> list[Trajectory]:
        if not self.trajectories:
            lines = [trajectory_json.encode(_without_prompts(x)) for x in self.local.trajectories]
            compressed = zlib.compress(json.dumps(lines).encode())
            flat = [
                trajectory_json.decode(line)
                for data in self.process_group.all_gather_bytes("trajectories", compressed)
                for line in json.loads(zlib.decompress(data))
            ]
            self.trajectories.extend(flat[i] for i in self.order["trajectory"])
        return self.trajectories


def _merge_parts(
    parts: Sequence[ProcessPart], process_index: int
) -> tuple[GlobalGroups[TokenIndex], dict[Level, np.ndarray]]:
    """The parts of all processes as one index, and the order of their items in it."""
    indices = [part.token_index for part in parts]
    numbered = sorted(
        (number, (p, g))
        for p, part in enumerate(parts)
        for g, number in enumerate(part.group_indices)
    )
    group_owners = [pair for _, pair in numbered]  # (process, group within it) of each group
    number_of = {pair: i for i, pair in enumerate(group_owners)}
    group_numbers = [
        np.array([number_of[p, g] for g in index.trajectory_group.tolist()], np.int64)
        for p, index in enumerate(indices)
    ]
    trajectory_group = np.concatenate(group_numbers)
    # Within a group trajectories stay in order.
    trajectories = np.argsort(trajectory_group, kind="stable")
    turns = _reorder_by_owner(
        [index.turn_trajectory for index in indices], list(map(len, group_numbers)), trajectories
    )
    tokens = _reorder_by_owner(
        [index.token_turn for index in indices],
        [len(index.turn_trajectory) for index in indices],
        turns.order,
    )
    order_of: dict[Level, np.ndarray] = {
        "token": tokens.order,
        "turn": turns.order,
        "trajectory": trajectories,
    }

    fields = {
        name: np.concatenate([getattr(index, name) for index in indices])[order_of[level]]
        for name, level in INDEX_LEVELS.items()
    }
    lengths = [len(index.token_sequence) for index in indices]
    process = np.repeat(np.arange(len(parts)), lengths)[tokens.order]
    fields |= {
        "token_sequence": _renumber_sequences(process, fields["token_sequence"]),
        "token_turn": tokens.owner,
        "turn_trajectory": turns.owner,
        "trajectory_group": trajectory_group[trajectories],
    }
    merged = GlobalGroups(
        TokenIndex(**fields),
        len(group_owners),
        np.flatnonzero([p == process_index for p, _ in group_owners]),
        process == process_index,
    )
    return merged, order_of


def _renumber_sequences(process: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Global sequence numbers, by first tokens, from those within each token's process [N]."""
    _, first, sequence = np.unique(
        process * (sequence.max(initial=0) + 1) + sequence, return_index=True, return_inverse=True
    )
    return np.argsort(np.argsort(first))[sequence]


class Reordered(NamedTuple):
    """Items of all processes in the order of their owners."""

    owner: np.ndarray  # int: the owner of each item
    order: np.ndarray  # int: which item it was, counted over all processes


def _reorder_by_owner(
    item_owners: Sequence[np.ndarray], num_owners: Sequence[int], owner_order: np.ndarray
) -> Reordered:
    """Sort the items of all processes by their owners, stably.

    Args:
        item_owners: per process, the owner of each item, counted within the process.
        num_owners: per process, how many owners it has.
        owner_order: the owners, counted over all processes, in the order that they shall have.
    """
    starts = np.cumsum([0, *num_owners[:-1]])
    owner = np.concatenate([owners + start for owners, start in zip(item_owners, starts)])
    rank = np.empty(len(owner_order), np.int64)
    rank[owner_order] = np.arange(len(owner_order))
    order = np.argsort(rank[owner], kind="stable")
    return Reordered(rank[owner][order], order)


def _serialize_index(index: TokenIndex, group_indices: Sequence[int]) -> bytes:
    columns = np.stack([getattr(index, name) for name in RUN_FIELDS])
    continues = (np.diff(columns) == np.array([[0], [1], [0]])).all(0)
    starts = np.flatnonzero(np.concatenate([np.ones(min(columns.shape[1], 1), bool), ~continues]))
    counts = np.diff(np.append(starts, columns.shape[1]))
    arrays: dict[str, np.ndarray] = {
        name: getattr(index, name) for name in INDEX_FIELDS if name not in RUN_FIELDS
    }
    arrays["runs"] = np.vstack([columns[:, starts], counts])
    arrays["group_indices"] = np.asarray(group_indices, np.int64)
    return zlib.compress(msgpack_serialize(arrays))


def _without_prompts(trajectory: Trajectory) -> Trajectory:
    """The trajectory without prompts, log-probs and times: what other processes need for credit."""

    def without_prompt(call: Call) -> Call:
        empty = np.zeros(0, np.float32)
        return Call(
            prompt=empty.astype(np.int32),
            action=call.action,
            sampler_logp=empty,
            version=call.version,
            sampling=call.sampling,
            finish_reason=call.finish_reason,
            source=call.source,
            key=call.key,
        )

    turns = tuple(
        dataclasses.replace(turn, calls=tuple(map(without_prompt, turn.calls)), time=None)
        for turn in trajectory.turns
    )
    return trajectory.replace(turns=turns)


def _deserialize_index(data: bytes) -> ProcessPart:
    arrays: Any = msgpack_restore(zlib.decompress(data))
    *columns, counts = arrays.pop("runs")
    group_indices = arrays.pop("group_indices").tolist()
    fields = {name: np.repeat(column, counts) for name, column in zip(RUN_FIELDS, columns)}
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    fields["token_position"] = fields["token_position"] + offset
    return ProcessPart(TokenIndex(**fields, **arrays), group_indices)
