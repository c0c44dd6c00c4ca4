"""`Pool`: who owns what in the groups of all processes, so that credit and weights are those of one process with all of them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.hosts import Hosts
from agentrl_jax.rows import Indices


@dataclass(frozen=True, eq=False)
class Pool:
    """The indices of all groups, in the order in which one process would have had them."""

    indices: Indices
    groups: int
    own: np.ndarray  # this process's groups: which of all they are
    mine: np.ndarray  # bool [N]: this process's tokens, in its own order

    def part(self, groups: np.ndarray) -> tuple[Indices, slice]:
        """The indices of these groups alone, which follow each other, and where their tokens are in [N]."""
        x, (first, last) = self.indices, (groups[0], groups[-1] + 1) if len(groups) else (0, 0)
        j0, j1 = np.searchsorted(x.trajectory_group, [first, last])
        r0, r1 = np.searchsorted(x.turn_trajectory, [j0, j1])
        n0, n1 = np.searchsorted(x.token_turn, [r0, r1])
        rows = x.token_row[n0:n1]
        return Indices(
            rows - (rows[0] if len(rows) else 0), x.token_position[n0:n1], x.token_turn[n0:n1] - r0, x.turn_trajectory[r0:r1] - j0,
            x.turn_reward[r0:r1], x.turn_terminated[r0:r1], x.trajectory_group[j0:j1] - first,
        ), slice(n0, n1)  # fmt: skip


def pooled(hosts: Hosts, indices: Indices, groups: int) -> Pool:
    """Every process's indices; they have `groups` groups here, dealt as by `Hosts.mine`.

    Tokens travel as runs, one a call, so that a few bytes a call are exchanged.
    """
    if hosts.count == 1:
        return Pool(indices, groups, np.arange(groups), np.ones(len(indices.token_row), bool))
    parts = [_unpacked(said) for said in hosts.gather_bytes("indices", _packed(indices, groups))]
    order = hosts.merged([[(p, g) for g in range(count)] for p, (_, count) in enumerate(parts)])
    return _merge([part for part, _ in parts], order, hosts.index)


def _merge(parts: Sequence[Indices], order: Sequence[tuple[int, int]], own: int) -> Pool:
    """`order` lists (process, its group) as one process would have them."""
    number = {group: i for i, group in enumerate(order)}
    group_of = [np.array([number[p, g] for g in part.trajectory_group.tolist()], np.int64) for p, part in enumerate(parts)]
    group = np.concatenate(group_of)
    trajectories = np.argsort(group, kind="stable")  # within a group they stay in order
    turn_of, turns = _reordered([part.turn_trajectory for part in parts], list(map(len, group_of)), trajectories)
    token_of, tokens = _reordered([part.token_turn for part in parts], [len(part.turn_trajectory) for part in parts], turns)

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    process = np.repeat(np.arange(len(parts)), [len(part.token_row) for part in parts])[tokens]
    row = together("token_row")[tokens]
    new = (np.diff(row) != 0) | (np.diff(process) != 0) | (np.diff(group[trajectories][turn_of[token_of]]) != 0)
    indices = Indices(
        np.concatenate([[0], np.cumsum(new)])[: len(row)], together("token_position")[tokens], token_of, turn_of,
        together("turn_reward")[turns], together("turn_terminated")[turns], group[trajectories],
    )  # fmt: skip
    return Pool(indices, len(order), np.flatnonzero([p == own for p, _ in order]), process == own)


def _reordered(owner_of: Sequence[np.ndarray], owners: Sequence[int], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Things of all processes, brought into the order of their owners: the owner of each, and which thing it was.

    `owner_of` counts each process's owners from 0; `order` says which owner, counted over all processes, comes when.
    """
    starts = np.cumsum([0, *owners[:-1]])
    owner = np.concatenate([part + start for part, start in zip(owner_of, starts)])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    things = np.argsort(rank[owner], kind="stable")
    return rank[owner][things], things


def _packed(x: Indices, groups: int) -> bytes:
    columns = np.stack([x.token_row, x.token_position, x.token_turn]) if len(x.token_row) else np.zeros((3, 0), np.int64)
    follows = (np.diff(columns) == np.array([[0], [1], [0]])).all(0)
    starts = np.flatnonzero(np.concatenate([np.ones(min(columns.shape[1], 1), bool), ~follows]))
    counts = np.diff(np.append(starts, columns.shape[1]))
    out = io.BytesIO()
    np.savez_compressed(
        out, runs=np.vstack([columns[:, starts], counts]), turn_trajectory=x.turn_trajectory, turn_reward=x.turn_reward,
        turn_terminated=x.turn_terminated, trajectory_group=x.trajectory_group, groups=groups,
    )  # fmt: skip
    return out.getvalue()


def _unpacked(data: bytes) -> tuple[Indices, int]:
    with np.load(io.BytesIO(data)) as x:
        *columns, counts = x["runs"]
        row, position, turn = (np.repeat(column, counts) for column in columns)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = Indices(row, position + within, turn, x["turn_trajectory"], x["turn_reward"], x["turn_terminated"], x["trajectory_group"])
        return indices, int(x["groups"])
