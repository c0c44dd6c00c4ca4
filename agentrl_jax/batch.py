"""`Batch`: rows packed into device arrays of one shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Inputs
from agentrl_jax.record import AnyArray, record, static
from agentrl_jax.rows import Row

T = TypeVar("T")


@record
class Batch:
    """Packed rows. Everything per token is aligned to the token itself, not to the one before that predicts it."""

    tokens: Int[AnyArray, "B T"]
    positions: Int[AnyArray, "B T"]
    segment_ids: Int[AnyArray, "B T"]  # 0: padding
    turns: Int[AnyArray, "B T"]  # turn within the trajectory, -1 where the policy did not write
    action_mask: Bool[AnyArray, "B T"]
    sampler_logp: Float[AnyArray, "B T"]
    version: Int[AnyArray, "B T"]
    temperature: Float[AnyArray, "B T"]
    weight: Float[AnyArray, "B T"]  # of the token in the loss: the device computes sum(weight x loss)
    stem: int = static(default=0)  # columns of a bin that its branches share, see `Inputs`
    branch: int = static(default=0)

    @property
    def inputs(self) -> Inputs:
        return Inputs(
            tokens=self.tokens, positions=self.positions, segment_ids=self.segment_ids, stem=self.stem, branch=self.branch
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each row went: its bin and the offset in it. Moves per-token values between rows and packed arrays.

    With branches the first `shared_of` tokens of a row are in its bin's stem, and the offset is that of the others.
    """

    rows: Sequence[Row]
    length: int
    bins: int
    bin_of: np.ndarray
    offset_of: np.ndarray
    shared_of: np.ndarray
    stem: int = 0
    branch: int = 0

    def place(self, token_row: np.ndarray, token_position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Packed coordinates (bin, column) of tokens, none of them shared."""
        return self.bin_of[token_row], self.offset_of[token_row] + token_position

    def scatter(self, values: np.ndarray, token_row: np.ndarray, token_position: np.ndarray) -> np.ndarray:
        """Token values [N] as a packed array [bins, length], zero elsewhere."""
        out = np.zeros((self.bins, self.length), np.float32)
        out[self.place(token_row, token_position)] = values
        return out

    def batch(self, weight: np.ndarray) -> Batch:
        """The packed batch with the given packed loss weights. Raises UserError where a token was sampled greedily."""
        shape = (self.bins, self.length)
        out = Batch(
            tokens=np.zeros(shape, np.int32), positions=np.zeros(shape, np.int32), segment_ids=np.zeros(shape, np.int32),
            turns=np.full(shape, -1, np.int32), action_mask=np.zeros(shape, bool), sampler_logp=np.zeros(shape, np.float32),
            version=np.full(shape, -1, np.int32), temperature=np.ones(shape, np.float32), weight=weight,
            stem=self.stem, branch=self.branch,
        )  # fmt: skip
        segments = np.zeros(self.bins, np.int32)
        for row, b, offset, shared in zip(self.rows, self.bin_of, self.offset_of, self.shared_of):
            own, span, stem = slice(shared, None), slice(offset + shared, offset + len(row)), slice(self.stem - shared, self.stem)
            segments[b] = 1 if self.branch else segments[b] + 1
            if shared:
                out.tokens[b, stem], out.positions[b, stem], out.segment_ids[b, stem] = row.tokens[:shared], np.arange(shared), 1
            out.tokens[b, span], out.positions[b, span] = row.tokens[own], np.arange(shared, len(row))
            out.segment_ids[b, span], out.turns[b, span], out.action_mask[b, span] = segments[b], row.turn[own], row.action_mask[own]
            out.sampler_logp[b, span], out.version[b, span] = row.sampler_logp[own], row.version[own]
            out.temperature[b, span] = row.temperature[own]
        if not (np.asarray(out.temperature) > 0).all():
            raise UserError("greedy samples (temperature 0) cannot be trained on: sample with a temperature above 0")
        return out


def pack(rows: Sequence[Row], length: int, multiple: int) -> Layout:
    """First-fit-decreasing packing into bins of `length` tokens; the number of bins is rounded up to `multiple`.

    Raises UserError where a row is longer than a bin.
    """
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    if rows and len(rows[order[0]]) > length:
        raise UserError(f"a training row has {len(rows[order[0]])} tokens but bins hold {length}: raise bin_length")
    free: list[int] = []
    bin_of, offset_of = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    first_open = 0
    for i in order:
        size = len(rows[i])
        b = next((b for b in range(first_open, len(free)) if free[b] >= size), len(free))
        if b == len(free):
            free.append(length)
        bin_of[i], offset_of[i] = b, length - free[b]
        free[b] -= size
        while first_open < len(free) and free[first_open] < 2:
            first_open += 1
    bins = max(multiple, -(-len(free) // multiple) * multiple)
    return Layout(rows, length, bins, bin_of, offset_of, np.zeros(len(rows), np.int64))


def pack_branches(rows: Sequence[Row], stem: int, branch: int, branches: int, multiple: int) -> Layout:
    """Bins of a stem, the first `stem` tokens of a prompt that some rows have in common, and `branches` of them going on from it.

    At least one token of a prompt is a row's own: what predicts its first action. The number of bins is rounded up to `multiple`.
    Raises UserError where the tokens of a row that are its own are more than `branch`.
    """
    shared_of = np.array([max(0, min(stem, int(np.argmax(row.action_mask)) - 1)) for row in rows], np.int64)
    bin_of, offset_of = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    bins, last = 0, dict[bytes, tuple[int, int]]()  # of each prompt: its last bin, and how many rows are in it
    for i, (row, shared) in enumerate(zip(rows, shared_of)):
        if len(row) - shared > branch:
            raise UserError(f"a training row has {len(row) - shared} tokens of its own but a branch holds {branch}: raise bin_length")
        prompt = row.tokens[:shared].tobytes()
        b, taken = last.get(prompt, (0, branches))
        if taken == branches:
            b, taken, bins = bins, 0, bins + 1
        last[prompt] = b, taken + 1
        bin_of[i], offset_of[i] = b, stem + taken * branch - shared
    bins = max(multiple, -(-bins // multiple) * multiple)
    return Layout(rows, stem + branches * branch, bins, bin_of, offset_of, shared_of, stem, branch)


def split(packed: T, rows: int) -> list[T]:
    """A record of packed arrays [bins, ...] in pieces of `rows` bins."""
    bins = len(jax.tree.leaves(packed)[0])
    return [jax.tree.map(lambda x, i=i: x[i : i + rows], packed) for i in range(0, bins, rows)]
