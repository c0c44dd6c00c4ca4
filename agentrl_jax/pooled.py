"""`Pool`: who owns what in the groups of all processes, so that credit and weights are those of one process with all of them."""

import dataclasses
import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from agentrl_jax import journal
from agentrl_jax.hosts import Hosts
from agentrl_jax.rows import Evidence, Indices
from agentrl_jax.trajectories import Call, Trajectory

Owners = TypeVar("Owners", bound=Indices)
Part = tuple[Owners, Sequence[int]]  # a process's indices or evidence, and the place of each of its groups among all


@dataclass(frozen=True, eq=False)
class Pool(Generic[Owners]):
    """The indices, or the evidence, of all groups, in the order in which one process would have had them."""

    indices: Owners
    groups: int
    own: np.ndarray  # this process's groups: which of all they are
    mine: np.ndarray  # bool [N]: this process's tokens, in its own order

    def part(self, groups: np.ndarray) -> tuple[Owners, slice]:
        """What belongs to these groups alone, which follow each other, and where their tokens are in [N]."""
        x, (first, last) = self.indices, (groups[0], groups[-1] + 1) if len(groups) else (0, 0)
        j0, j1 = np.searchsorted(x.trajectory_group, [first, last])
        r0, r1 = np.searchsorted(x.turn_trajectory, [j0, j1])
        n0, n1 = np.searchsorted(x.token_turn, [r0, r1])
        spans = {"token": slice(n0, n1), "turn": slice(r0, r1), "trajectory": slice(j0, j1)}
        found = {name: value[spans[_owner(name)]] for name, value in vars(x).items() if value is not None}
        rows = found["token_row"]
        found["token_row"] = rows - (rows[0] if len(rows) else 0)
        found["token_turn"], found["turn_trajectory"] = found["token_turn"] - r0, found["turn_trajectory"] - j0
        found["trajectory_group"] = found["trajectory_group"] - first
        return dataclasses.replace(x, **found), spans["token"]


def _owner(name: str) -> str:
    """token_row -> token, turns -> turn, trajectories -> trajectory"""
    return {"turns": "turn", "trajectories": "trajectory"}.get(name) or name.split("_")[0]


def pooled(hosts: Hosts, own: Owners, groups: int, places: Sequence[int] | None = None) -> Pool[Owners]:
    """Every process's indices or evidence; they have `groups` groups here, dealt as by `Hosts.mine` or at `places` among all.

    Tokens travel as runs, one a call, so that of indices a few bytes a call are exchanged; of evidence also what is known of each
    token, and the trajectories without their prompts.
    """
    if hosts.count == 1:
        return Pool(own, groups, np.arange(groups), np.ones(len(own.token_row), bool))
    places = list(range(hosts.index, groups * hosts.count, hosts.count)) if places is None else list(places)
    return _merge([_unpacked(said) for said in hosts.gather_bytes("indices", _packed(own, places))], hosts.index, own)


def _merge(parts: Sequence[Part], own: int, mine: Owners) -> Pool[Owners]:
    order = [pair for _, pair in sorted((place, (p, g)) for p, (_, places) in enumerate(parts) for g, place in enumerate(places))]
    number = {group: i for i, group in enumerate(order)}
    indices = [part for part, _ in parts]
    group_of = [np.array([number[p, g] for g in part.trajectory_group.tolist()], np.int64) for p, part in enumerate(indices)]
    group = np.concatenate(group_of)
    trajectories = np.argsort(group, kind="stable")  # within a group they stay in order
    turn_of, turns = _reordered([part.turn_trajectory for part in indices], list(map(len, group_of)), trajectories)
    token_of, tokens = _reordered([part.token_turn for part in indices], [len(part.turn_trajectory) for part in indices], turns)
    order_of = {"token": tokens, "turn": turns, "trajectory": trajectories}

    def together(name: str) -> Any:
        columns = [getattr(part, name) for part in indices]
        if isinstance(columns[0], list):
            flat = [one for column in columns for one in column]
            return [flat[i] for i in order_of[_owner(name)]]
        return np.concatenate(columns)[order_of[_owner(name)]]

    process = np.repeat(np.arange(len(parts)), [len(part.token_row) for part in indices])[tokens]
    found = {name: together(name) for name, value in vars(mine).items() if value is not None}
    row = found["token_row"]
    _, first, row = np.unique(process * (row.max(initial=0) + 1) + row, return_index=True, return_inverse=True)
    found["token_row"] = np.argsort(np.argsort(first))[row]  # numbered by their first tokens
    found |= {"token_turn": token_of, "turn_trajectory": turn_of, "trajectory_group": group[trajectories]}
    return Pool(dataclasses.replace(mine, **found), len(order), np.flatnonzero([p == own for p, _ in order]), process == own)


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


def _packed(x: Indices, places: Sequence[int]) -> bytes:
    columns = np.stack([x.token_row, x.token_position, x.token_turn]) if len(x.token_row) else np.zeros((3, 0), np.int64)
    follows = (np.diff(columns) == np.array([[0], [1], [0]])).all(0)
    starts = np.flatnonzero(np.concatenate([np.ones(min(columns.shape[1], 1), bool), ~follows]))
    counts = np.diff(np.append(starts, columns.shape[1]))
    more: dict[str, np.ndarray] = {}
    if isinstance(x, Evidence):
        more = {name: value for name, value in vars(x).items() if name.startswith("token_") and value is not None}
        more = {name: value for name, value in more.items() if name not in ("token_row", "token_position", "token_turn")}
        lines = json.dumps([journal.encode(_light(trajectory)) for trajectory in x.trajectories])
        more["trajectories"] = np.frombuffer(zlib.compress(lines.encode()), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(
        out, allow_pickle=False, runs=np.vstack([columns[:, starts], counts]), turn_trajectory=x.turn_trajectory, turn_reward=x.turn_reward,
        turn_terminated=x.turn_terminated, trajectory_group=x.trajectory_group, places=np.asarray(places, np.int64), **more,
    )  # fmt: skip
    return out.getvalue()


def _light(trajectory: Trajectory) -> Trajectory:
    """The trajectory without its prompts and log-probs: what others need of it to give credit."""

    def light(call: Call) -> Call:
        none = np.zeros(0, np.float32)
        return Call(none.astype(np.int32), call.action, none, call.version, call.sampling, call.finish_reason, call.source, call.key)

    turns = tuple(dataclasses.replace(turn, calls=tuple(map(light, turn.calls))) for turn in trajectory.turns)
    return trajectory.replace(turns=turns)


def _unpacked(data: bytes) -> Part:
    with np.load(io.BytesIO(data), allow_pickle=False) as x:
        *columns, counts = x["runs"]
        row, position, turn = (np.repeat(column, counts) for column in columns)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found = (row, position + within, turn, x["turn_trajectory"], x["turn_reward"], x["turn_terminated"], x["trajectory_group"])
        places = x["places"].tolist()
        if "trajectories" not in x:
            return Indices(*found), places
        trajectories = [journal.decode(line) for line in json.loads(zlib.decompress(x["trajectories"].tobytes()))]
        more = {name: x[name] for name in x.files if name.startswith("token_")}
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        return Evidence(*found, trajectories=trajectories, turns=turns, **more), places
