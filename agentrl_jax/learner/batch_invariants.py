"""Invariants of batches: the tokens that are trained are the recorded ones, and no others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.learner.packing import Batch, PackedLayout
from agentrl_jax.learner.recorded_tokens import RecordedTokens, concatenate
from agentrl_jax.learner.sequences import CollatedSequences, TrainingSequence, recorded_identity
from agentrl_jax.trajectories import Call, Group


def trained_tokens(
    groups: Sequence[Group], collated: CollatedSequences, recorded: RecordedTokens | None = None
) -> InvariantCheck:
    """The tokens that the sequences train are, in order, those of the calls (`token_identity` is
    1), and so are their log-probs, versions and temperatures.

    Args:
        groups: whose calls.
        collated: the sequences.
        recorded: of the groups, where it is at hand.
    """
    recorded = recorded or RecordedTokens.of(groups)
    identity = recorded_identity(recorded, collated)
    wrong = [
        name
        for name in ("sampler_logp", "version", "temperature")
        if identity == 1
        and not np.array_equal(collated.token_values(name), getattr(recorded, name))
    ]
    return InvariantCheck(
        "trained_tokens",
        identity == 1 and not wrong,
        f"of {len(recorded)} recorded tokens a fraction of {identity:.6g} is trained in its place"
        + (f", and the sequences' {' and '.join(wrong)} are not the recorded ones" * bool(wrong)),
    )


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
    tokens = _SequenceTokens.of_layout(layout)
    is_equal = np.ones(len(tokens.sequence), bool)
    for name, values in tokens.own_columns(layout.sequences):
        packed = concatenate([np.asarray(getattr(x, name)) for x in microbatches], values.dtype)
        is_equal[tokens.is_own] &= packed.ravel()[tokens.packed_index[tokens.is_own]] == values
    if not tokens.is_own.all():  # of a shared prompt only the ids are those of its sequences
        packed = concatenate([np.asarray(x.tokens) for x in microbatches], np.int32).ravel()
        values = concatenate([x.tokens for x in layout.sequences], np.int32)
        is_equal &= packed[tokens.packed_index] == values
    wrong = len(np.unique(tokens.sequence[~is_equal]))
    packed_mask = sum(int(np.count_nonzero(batch.action_mask)) for batch in microbatches)
    num_packed = sum(int(np.count_nonzero(batch.segment_ids)) for batch in microbatches)
    mask = sum(int(np.count_nonzero(sequence.action_mask)) for sequence in layout.sequences)
    num_tokens = len(tokens.sequence) - tokens.num_repeated
    return InvariantCheck(
        "packed_rows",
        wrong == 0 and packed_mask == mask and num_packed == num_tokens,
        f"of {len(layout.sequences)} training sequences {wrong} differ from their packed rows, "
        f"which hold {num_packed} tokens and train {packed_mask} instead of {num_tokens} and "
        f"{mask}",
    )


@dataclass(frozen=True, eq=False)
class _SequenceTokens:
    """Where each of the N tokens of a layout's sequences is packed."""

    sequence: np.ndarray  # int [N]
    position: np.ndarray  # int [N], within the sequence
    segment: np.ndarray  # int [N], the segment id of its sequence
    packed_index: np.ndarray  # int [N], in the flattened [bins, length]
    is_own: np.ndarray  # bool [N]; False in a prompt that several sequences share
    num_repeated: int  # tokens that share their place with those of another sequence

    @classmethod
    def of_layout(cls, layout: PackedLayout) -> "_SequenceTokens":
        shared = layout.shared_prefix_length
        lengths = np.array([len(x) for x in layout.sequences], np.int64)
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        is_own = position >= shared[sequence]
        column = position + np.where(
            is_own, layout.bin_offset[sequence], layout.prefix_length - shared[sequence]
        )
        _, first_of_bin = np.unique(layout.bin_index, return_index=True)
        return cls(
            sequence,
            position,
            _segments(layout)[sequence],
            layout.bin_index[sequence] * layout.bin_length + column,
            is_own,
            int(shared.sum() - shared[first_of_bin].sum()),
        )

    def own_columns(
        self, sequences: Sequence[TrainingSequence]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """What a microbatch repeats of the sequences, by field of `Batch`, at tokens of their
        own.
        """
        yield "positions", self.position[self.is_own]
        yield "segment_ids", self.segment[self.is_own]
        for name, field, dtype in (
            ("tokens", "tokens", np.int32),
            ("action_mask", "action_mask", np.bool_),
            ("sampler_logp", "sampler_logp", np.float32),
            ("version", "version", np.int32),
            ("temperature", "temperature", np.float32),
            ("turns", "turn", np.int32),
        ):
            values = concatenate([getattr(x, field) for x in sequences], dtype)
            yield name, values[self.is_own]


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
