"""Pairs of replies to one prompt, on the host: which there are, where their tokens go, and what is left out."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.batch import Layout, pack, pack_branches
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Row, rows_of
from agentrl_jax.trajectories import Group, Trajectory


@dataclass(frozen=True, eq=False)
class Pair:
    """Two dialogues that are one up to turn h, and the two replies of that turn as rows that end with them and train nothing else."""

    dialogues: tuple[Trajectory, Trajectory]
    turn: int
    rows: tuple[Row, Row]

    @property
    def ended(self) -> tuple[bool, bool]:
        """Whether each reply ended by itself, and not at the end of its budget."""
        first, second = (one.turns[self.turn].calls[-1].finish_reason == "stop" for one in self.dialogues)
        return first, second


def reply_row(trajectory: Trajectory, turn: int) -> Row:
    """What was shown at a turn, and the reply to it. Raises UserError where the turn's calls are of several contexts."""
    rows = rows_of(trajectory.replace(turns=trajectory.turns[turn : turn + 1]))
    if len(rows) != 1:
        raise UserError("a pair is of replies to one prompt: keep what a turn writes in one context")
    return rows[0]


def whole(dialogue: Trajectory, turn: int) -> bool:
    """Whether a dialogue came to this turn, and nothing in it broke."""
    return (
        dialogue.error is None and dialogue.stop_reason != "error" and len(dialogue.turns) > turn and math.isfinite(dialogue.total_reward)
    )


def pairs_of(groups: Sequence[Group]) -> tuple[list[Pair], dict[str, int]]:
    """Trajectories 2i and 2i + 1 of each group, and how many pairs were left out: broken ones, and those whose replies are the same.

    They part at the second one's `branch_turn`, or are independent ones. Raises UserError where the replies answer different prompts.
    """
    found, left_out = list[Pair](), {"broken": 0, "identical": 0}
    for group in groups:
        left_out["broken"] += bool(group.dropped)
        for first, second in zip(group.trajectories[0::2], group.trajectories[1::2]):
            h = second.branch_turn or 0
            if not (whole(first, h) and whole(second, h)):
                left_out["broken"] += 1
                continue
            rows = reply_row(first, h), reply_row(second, h)
            (prompt, reply), (other_prompt, other_reply) = (_parts(row) for row in rows)
            if not np.array_equal(prompt, other_prompt):
                raise UserError("a pair's replies answer different prompts: take a strategy whose groups are pairs, such as Pairs")
            if np.array_equal(reply, other_reply):
                left_out["identical"] += 1
            else:
                found.append(Pair((first, second), h, rows))
    return found, left_out


def _parts(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and reply of a row."""
    start = int(np.argmax(row.action_mask)) if row.action_mask.any() else len(row)
    return row.tokens[:start], row.tokens[start:]


@dataclass(frozen=True, eq=False)
class Tokens:
    """The replies' tokens of some pairs: rows 2i and 2i + 1 are pair i."""

    row: np.ndarray  # int [N]
    position: np.ndarray  # int [N], within the row

    @property
    def pair(self) -> np.ndarray:
        return self.row // 2

    @property
    def sign(self) -> np.ndarray:
        """1 for the first reply, -1 for the second."""
        return 1 - 2 * (self.row % 2)

    @property
    def starts(self) -> np.ndarray:
        """The first token of each pair's first reply, int [pairs]."""
        return np.unique(self.pair, return_index=True)[1]


def tokens_of(rows: Sequence[Row]) -> Tokens:
    positions = [np.flatnonzero(row.action_mask) for row in rows]
    counts = [len(one) for one in positions]
    return Tokens(np.repeat(np.arange(len(rows)), counts), np.concatenate([np.zeros(0, np.int64), *positions]))


def pack_pairs(rows: Sequence[Row], prompt: int, length: int, multiple: int) -> Layout:
    """The rows, 2i and 2i + 1 of which are a pair, in bins so that a pair is in one: `length` tokens for whole pairs side by side.

    With `prompt` a bin is one pair: so many columns for what both are shown, and `length` for the rest of each.
    """
    if prompt:
        return pack_branches(rows, prompt, length, 2, multiple)
    names = [field.name for field in dataclasses.fields(Row)]
    pairs = [Row(*(np.concatenate([getattr(a, name), getattr(b, name)]) for name in names)) for a, b in zip(rows[0::2], rows[1::2])]
    packed = pack(pairs, length, multiple)
    offset = np.stack([packed.offset_of, packed.offset_of + np.array([len(row) for row in rows[0::2]], np.int64)], axis=1)
    shared = np.zeros(len(rows), np.int64)
    return dataclasses.replace(packed, rows=rows, bin_of=np.repeat(packed.bin_of, 2), offset_of=offset.reshape(-1), shared_of=shared)
