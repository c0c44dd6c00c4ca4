"""`Batch`: rows packed into device arrays of one shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Inputs
from agentrl_jax.record import AnyArray, record
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

    @property
    def inputs(self) -> Inputs:
        return Inputs(tokens=self.tokens, positions=self.positions, segment_ids=self.segment_ids)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each row went: its bin and the offset in it. Moves per-token values between rows and packed arrays."""

    rows: Sequence[Row]
    length: int
    bins: int
    bin_of: np.ndarray
    offset_of: np.ndarray

    def place(self, token_row: np.ndarray, token_position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Packed coordinates (bin, column) of tokens."""
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
        )  # fmt: skip
        segments = np.zeros(self.bins, np.int32)
        for row, b, start in zip(self.rows, self.bin_of, self.offset_of):
            span = slice(start, start + len(row))
            segments[b] += 1
            out.tokens[b, span], out.positions[b, span], out.segment_ids[b, span] = row.tokens, np.arange(len(row)), segments[b]
            out.turns[b, span], out.action_mask[b, span], out.sampler_logp[b, span] = row.turn, row.action_mask, row.sampler_logp
            out.version[b, span], out.temperature[b, span] = row.version, row.temperature
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
    return Layout(rows, length, bins, bin_of, offset_of)


def split(packed: T, rows: int) -> list[T]:
    """A record of packed arrays [bins, ...] in pieces of `rows` bins."""
    bins = len(jax.tree.leaves(packed)[0])
    return [jax.tree.map(lambda x, i=i: x[i : i + rows], packed) for i in range(0, bins, rows)]
