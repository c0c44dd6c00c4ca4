"""Pairs of replies to one prompt, on the host: which there are, where their tokens are packed, and
which are dropped.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.learner.packing import PackedLayout, pack, pack_branches
from agentrl_jax.learner.sequences import SequenceImage, TrainingSequence, sequences_of
from agentrl_jax.trajectories import Group, Trajectory


@dataclass(frozen=True, eq=False)
class Pair:
    """Two dialogues with the same prompt at turn h, and two sequences that end with the replies of
    that turn and train nothing else.
    """

    dialogues: tuple[Trajectory, Trajectory]
    turn: int
    sequences: tuple[TrainingSequence, TrainingSequence]

    @property
    def is_finished(self) -> tuple[bool, bool]:
        """Whether each reply ended with a stop token, and not at the end of its budget."""
        first, second = (
            dialogue.turns[self.turn].calls[-1].finish_reason == "stop"
            for dialogue in self.dialogues
        )
        return first, second


def reply_sequence(trajectory: Trajectory, turn: int) -> TrainingSequence:
    """The prompt of a turn and the reply to it.

    Raises:
        UserError: the turn's calls have several contexts.
    """
    sequences = sequences_of(trajectory.replace(turns=trajectory.turns[turn : turn + 1]))
    if len(sequences) != 1:
        raise UserError(
            "a pair is of replies to one prompt: keep what a turn writes in one context"
        )
    return sequences[0]


def reached_turn(dialogue: Trajectory, turn: int) -> bool:
    """Whether a dialogue has this turn and did not fail."""
    return (
        dialogue.error is None
        and dialogue.stop_reason != "error"
        and len(dialogue.turns) > turn
        and math.isfinite(dialogue.total_reward)
    )


def preference_pairs_of(groups: Sequence[Group]) -> tuple[list[Pair], dict[str, int]]:
    """Trajectories 2i and 2i + 1 of each group, and how many pairs were dropped: broken ones, and
    those whose replies are identical.

    They diverge at the second one's `branch_turn`, or are independent and compared at turn 0.

    Raises:
        UserError: the replies answer different prompts.
    """
    pairs, dropped = list[Pair](), {"broken": 0, "identical": 0}
    for group in groups:
        dropped["broken"] += bool(group.num_dropped)
        for first, second in zip(group.trajectories[0::2], group.trajectories[1::2]):
            h = second.branch_turn or 0
            if not (reached_turn(first, h) and reached_turn(second, h)):
                dropped["broken"] += 1
                continue
            sequences = reply_sequence(first, h), reply_sequence(second, h)
            (prompt, reply), (other_prompt, other_reply) = map(_split_prompt_reply, sequences)
            if not np.array_equal(prompt, other_prompt):
                raise UserError(
                    "a pair's replies answer different prompts: take a strategy whose groups are "
                    "pairs, such as PairedRollouts"
                )
            if np.array_equal(reply, other_reply):
                dropped["identical"] += 1
            else:
                pairs.append(Pair((first, second), h, sequences))
    return pairs, dropped


def _split_prompt_reply(sequence: TrainingSequence) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and reply of a sequence."""
    start = int(np.argmax(sequence.action_mask)) if sequence.action_mask.any() else len(sequence)
    return sequence.tokens[:start], sequence.tokens[start:]


@dataclass(frozen=True, eq=False)
class ReplyTokens:
    """The replies' tokens of some pairs: sequences 2i and 2i + 1 are pair i."""

    sequence: np.ndarray  # int [N]
    position: np.ndarray  # int [N], within the sequence

    @property
    def pair(self) -> np.ndarray:
        return self.sequence // 2

    @property
    def sign(self) -> np.ndarray:
        """1 for the first reply, -1 for the second."""
        return 1 - 2 * (self.sequence % 2)

    @property
    def first_tokens(self) -> np.ndarray:
        """The first token of each pair's first reply, int [pairs]."""
        return np.unique(self.pair, return_index=True)[1]


def reply_tokens(sequences: Sequence[TrainingSequence]) -> ReplyTokens:
    """The tokens that are trained, sequence by sequence."""
    positions = [np.flatnonzero(sequence.action_mask) for sequence in sequences]
    counts = [len(x) for x in positions]
    return ReplyTokens(
        np.repeat(np.arange(len(sequences)), counts),
        np.concatenate([np.zeros(0, np.int64), *positions]),
    )


def pack_pairs(
    sequences: Sequence[TrainingSequence], prompt_length: int, bin_length: int, multiple: int
) -> PackedLayout:
    """Sequences, of which 2i and 2i + 1 are a pair, packed with both of a pair in one bin of
    `bin_length` tokens.

    With `prompt_length` a bin is one pair: that many columns for the shared prompt, and
    `bin_length` for the rest of each sequence.
    """
    if prompt_length:
        return pack_branches(sequences, prompt_length, bin_length, 2, multiple)
    names = [f.name for f in dataclasses.fields(TrainingSequence) if f.name != "images"]
    pairs = [
        TrainingSequence(
            *(np.concatenate([getattr(a, name), getattr(b, name)]) for name in names),
            images=(
                *a.images,
                *(SequenceImage(x.start + len(a), x.stop + len(a), x.part) for x in b.images),
            ),
        )
        for a, b in zip(sequences[0::2], sequences[1::2])
    ]
    packed = pack(pairs, bin_length, multiple)
    first_lengths = np.array([len(sequence) for sequence in sequences[0::2]], np.int64)
    offset = np.stack([packed.bin_offset, packed.bin_offset + first_lengths], axis=1)
    return dataclasses.replace(
        packed,
        sequences=sequences,
        bin_index=np.repeat(packed.bin_index, 2),
        bin_offset=offset.reshape(-1),
        shared_prefix_length=np.zeros(len(sequences), np.int64),
    )
