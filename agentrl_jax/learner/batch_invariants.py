"""Invariants of batches: the tokens that are trained are the recorded ones, and no others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.learner.packing import Batch, PackedLayout
from agentrl_jax.learner.sequences import CollatedSequences, TrainingSequence, token_identity
from agentrl_jax.trajectories import Call, Group


def trained_tokens(groups: Sequence[Group], collated: CollatedSequences) -> InvariantCheck:
    """The tokens that the sequences train are, in order, those of the calls (`token_identity` is
    1), and so are their log-probs, versions and temperatures.
    """
    calls = [
        call for group in groups for trajectory in group.trajectories for call in trajectory.calls
    ]
    identity = token_identity(groups, collated)
    columns = ("sampler_logp", "version", "temperature")
    wrong = [name for name in columns if identity == 1 and not _is_recorded(name, calls, collated)]
    return InvariantCheck(
        "trained_tokens",
        identity == 1 and not wrong,
        f"of {sum(_num_sampled(call) for call in calls)} recorded tokens a fraction of "
        f"{identity:.6g} is trained in its place"
        + (f", and the sequences' {' and '.join(wrong)} are not the recorded ones" * bool(wrong)),
    )


def _num_sampled(call: Call) -> int:
    return len(call.action) - len(call.sampling.forced)


def _is_recorded(name: str, calls: Sequence[Call], collated: CollatedSequences) -> bool:
    if name == "temperature":
        temperatures = np.array([call.sampling.temperature for call in calls], np.float32)
        recorded = np.repeat(temperatures, [_num_sampled(call) for call in calls])
    else:
        recorded = np.concatenate(
            [np.zeros(0), *(getattr(call, name)[len(call.sampling.forced) :] for call in calls)]
        )
    return np.array_equal(collated.token_values(name), recorded)


def trained_replies(
    replies: Sequence[Sequence[Call]], sequences: Sequence[TrainingSequence]
) -> InvariantCheck:
    """Each sequence trains the tokens of its reply's calls, in order, and nothing else."""
    wrong = sum(
        not np.array_equal(
            sequence.tokens[sequence.action_mask],
            np.concatenate([call.action[len(call.sampling.forced) :] for call in calls]),
        )
        for calls, sequence in zip(replies, sequences, strict=True)
    )
    return InvariantCheck(
        "trained_tokens",
        wrong == 0,
        f"of {len(replies)} replies {wrong} are not trained token by token as they are recorded",
    )


def packed_rows(layout: PackedLayout, microbatches: Sequence[Batch]) -> InvariantCheck:
    """The microbatches hold every sequence of the layout once, bit by bit, and no other token.

    Args:
        layout: of a whole batch.
        microbatches: the batch, split into equally many bins each.
    """
    pieces = [_PackedArrays.of_batch(batch) for batch in microbatches]
    segments = _segments(layout)
    wrong = sum(
        not _is_packed(x, layout, i, segments[i], pieces) for i, x in enumerate(layout.sequences)
    )
    packed_mask = sum(int(np.count_nonzero(piece.action_mask)) for piece in pieces)
    packed = sum(int(np.count_nonzero(batch.segment_ids)) for batch in microbatches)
    mask = sum(int(np.count_nonzero(sequence.action_mask)) for sequence in layout.sequences)
    tokens = sum(map(len, layout.sequences)) - int(layout.shared_prefix_length.sum())
    _, first_of_bin = np.unique(layout.bin_index, return_index=True)
    tokens += int(layout.shared_prefix_length[first_of_bin].sum())
    return InvariantCheck(
        "packed_rows",
        wrong == 0 and packed_mask == mask and packed == tokens,
        f"of {len(layout.sequences)} training sequences {wrong} differ from their packed rows, "
        f"which hold {packed} tokens and train {packed_mask} instead of {tokens} and {mask}",
    )


class _PackedArrays(NamedTuple):
    """What a microbatch repeats of its sequences, each [bins, length]."""

    tokens: np.ndarray
    positions: np.ndarray
    action_mask: np.ndarray
    sampler_logp: np.ndarray
    version: np.ndarray
    temperature: np.ndarray
    turns: np.ndarray
    segment_ids: np.ndarray

    @classmethod
    def of_batch(cls, batch: Batch) -> "_PackedArrays":
        return cls(*(np.asarray(getattr(batch, name)) for name in cls._fields))


def _segments(layout: PackedLayout) -> np.ndarray:
    """The segment id of each sequence, int [sequences]: its number in its bin, from 1; the branches
    of a prompt share one.
    """
    count = len(layout.sequences)
    if layout.branch_length:
        return np.ones(count, np.int32)
    order = np.argsort(layout.bin_index, kind="stable")
    bins = layout.bin_index[order]
    first = np.searchsorted(bins, bins)  # of the bin of each
    segments = np.zeros(count, np.int32)
    segments[order] = np.arange(count) - first + 1
    return segments


def _is_packed(
    x: TrainingSequence,
    layout: PackedLayout,
    index: int,
    segment: int,
    pieces: Sequence[_PackedArrays],
) -> bool:
    piece, row = divmod(int(layout.bin_index[index]), len(pieces[0].tokens))
    packed, shared = pieces[piece], int(layout.shared_prefix_length[index])
    offset, length, last = int(layout.bin_offset[index]), len(x), layout.prefix_length
    expected = _PackedArrays(
        tokens=x.tokens,
        positions=np.arange(length),
        action_mask=x.action_mask,
        sampler_logp=x.sampler_logp,
        version=x.version,
        temperature=x.temperature,
        turns=x.turn,
        segment_ids=np.full(length, segment, np.int32),
    )
    columns = slice(offset + shared, offset + length)
    in_prefix = packed.tokens[row, last - shared : last]
    return (not shared or bool((in_prefix == x.tokens[:shared]).all())) and all(
        bool((array[row, columns] == values[shared:]).all())
        for array, values in zip(packed, expected)
    )
