"""`RecordedTokens`: the sampled tokens of recorded calls, as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import DTypeLike

from agentrl_jax.trajectories import Call, Group

_FIELDS = ("prompt", "sampling", "action", "sampler_logp", "version")
_COLUMNS = attrgetter(*_FIELDS)


def calls_of(groups: Sequence[Group]) -> Iterator[Call]:
    """All calls of the groups, in order."""
    return (
        call
        for group in groups
        for trajectory in group.trajectories
        for turn in trajectory.turns
        for call in turn.calls
    )


@dataclass(frozen=True, eq=False)
class RecordedTokens:
    """The tokens that the calls of some groups sampled, in order; forced tokens are left out.

    Each column is [N]. They are read from the calls alone, and not from what is made of them.
    """

    tokens: np.ndarray  # int32
    position: np.ndarray  # int64: in prompt and action
    sampler_logp: np.ndarray  # float32
    version: np.ndarray  # int32
    temperature: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, groups: Sequence[Group]) -> "RecordedTokens":
        """The columns of all calls of the groups."""
        columns = [*zip(*map(_COLUMNS, calls_of(groups)))] or [()] * len(_FIELDS)
        prompts, samplings, *recorded = columns
        forced = [len(sampling.forced) for sampling in samplings]
        if any(forced):
            recorded = [[x[n:] for x, n in zip(column, forced)] for column in recorded]
        counts = np.array([*map(len, recorded[0])], np.int64)
        first = np.array([*map(len, prompts)], np.int64) + np.array(forced, np.int64)
        temperature = np.array([sampling.temperature for sampling in samplings], np.float32)
        return cls(
            tokens=concatenate(recorded[0], np.int32),
            position=np.arange(counts.sum())
            + np.repeat(first - np.cumsum(counts) + counts, counts),
            sampler_logp=concatenate(recorded[1], np.float32),
            version=concatenate(recorded[2], np.int32),
            temperature=np.repeat(temperature, counts),
        )


def concatenate(arrays: Sequence[np.ndarray], dtype: DTypeLike) -> np.ndarray:
    """The arrays one after the other, empty without any."""
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
