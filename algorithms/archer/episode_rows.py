"""Rows of whole episodes for a joint critic: where states and utterances end in them, and the
utterances that branch off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from agentrl_jax.errors import UserError
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.pytree import AnyArray, pytree_dataclass
from agentrl_jax.trajectories import starts_with

NOWHERE = -1  # the column of a text that a row does not hold


@dataclass(frozen=True, eq=False)
class EpisodeTurn:
    """What a row holds of a turn, as token ids; None: nothing.

    The utterance continues the state; a branch is another utterance in the same state.
    """

    state: np.ndarray
    utterance: np.ndarray | None = None
    next_state: np.ndarray | None = None
    branch: np.ndarray | None = None


@dataclass(frozen=True)
class RowShape:
    """The columns of a row: packed episodes, then a branch for each of its turns."""

    row_length: int
    branch_length: int  # 0: no branches
    num_turns: int  # at most

    @property
    def num_columns(self) -> int:
        return self.row_length + self.num_turns * self.branch_length


@dataclass(frozen=True)
class TextEnd:
    """The last token of a text: the chain that begins with the text, and the position in it."""

    chain: int
    position: int


@dataclass(frozen=True, eq=False)
class RowTurn:
    """A turn of a row: which one it is, and the ends of its texts."""

    index: int  # in the sequence of turns that was packed
    state: TextEnd
    utterance: TextEnd | None
    next_state: TextEnd | None
    continues: bool = False  # the row's next turn is the episode's next


@dataclass(eq=False)
class EpisodeRow:
    """Texts that begin alike as chains, each the longest of its texts, and the turns in them."""

    chains: list[np.ndarray] = field(default_factory=list)
    turns: list[RowTurn] = field(default_factory=list)

    @property
    def length(self) -> int:
        return sum(map(len, self.chains))

    def with_turn(self, index: int, turn: EpisodeTurn) -> "EpisodeRow | None":
        """This row with a turn added to its chains; None where the turn shares no text with
        them.
        """
        row = EpisodeRow(list(self.chains), list(self.turns))
        utterance = next_state = None
        if turn.utterance is not None:
            utterance = row._place(np.concatenate([turn.state, turn.utterance]))
        state = row._place(turn.state)
        if turn.next_state is not None:
            next_state = row._place(turn.next_state)
        shares = not self.chains or state.chain < len(self.chains)
        row.turns.append(RowTurn(index, state, utterance, next_state))
        return row if shares else None

    def _place(self, text: np.ndarray) -> TextEnd:
        """Where a text ends, in a chain that begins with it or that it makes longer."""
        for i in reversed(range(len(self.chains))):
            if starts_with(self.chains[i], text):
                return TextEnd(i, len(text) - 1)
            if starts_with(text, self.chains[i]):
                self.chains[i] = text
                return TextEnd(i, len(text) - 1)
        self.chains.append(text)
        return TextEnd(len(self.chains) - 1, len(text) - 1)

    def join(self, other: "EpisodeRow") -> None:
        """Append another row's chains and turns."""
        shift = len(self.chains)

        def moved(end: TextEnd | None) -> TextEnd | None:
            return end and TextEnd(end.chain + shift, end.position)

        self.chains += other.chains
        for turn in other.turns:
            state = TextEnd(turn.state.chain + shift, turn.state.position)
            self.turns.append(
                RowTurn(
                    turn.index, state, moved(turn.utterance), moved(turn.next_state), turn.continues
                )
            )


def pack_episodes(
    turns: Sequence[EpisodeTurn], chosen: Sequence[int], shape: RowShape
) -> list[EpisodeRow]:
    """Some of the turns in few rows: adjacent turns of an episode share the tokens of their texts,
    several episodes share a row (first-fit decreasing).

    An episode whose context only grows is one chain. Where a context was rewritten, the states
    before and after are separate chains of the row, each read as it was. An episode that exceeds a
    row is continued in another, which repeats the tokens before its turns.

    Raises:
        UserError: a turn alone exceeds a row.
    """
    pieces: list[EpisodeRow] = []
    previous = None
    for i in chosen:
        turn = turns[i]
        extended = pieces[-1].with_turn(i, turn) if pieces else None
        if extended is not None and _fits(extended, shape):
            if previous is not None and turn.state is previous.next_state:
                extended.turns[-2] = _continued(extended.turns[-2])
            pieces[-1], previous = extended, turn
            continue
        alone = EpisodeRow().with_turn(i, turn)
        assert alone is not None
        if not _fits(alone, shape):
            raise UserError(
                f"a turn with its state and the next takes {alone.length} tokens, but the rows of "
                f"a joint critic hold {shape.row_length}: raise row_length, or use an "
                "EncoderUtteranceCritic, which cuts long texts on the left"
            )
        pieces.append(alone)
        previous = turn
    rows: list[EpisodeRow] = []
    for piece in sorted(pieces, key=lambda piece: -piece.length):
        for row in rows:
            free = shape.row_length - row.length
            if piece.length <= free and len(row.turns) + len(piece.turns) <= shape.num_turns:
                row.join(piece)
                break
        else:
            rows.append(piece)
    return rows


def _fits(row: EpisodeRow, shape: RowShape) -> bool:
    return row.length <= shape.row_length and len(row.turns) <= shape.num_turns


def _continued(turn: RowTurn) -> RowTurn:
    return RowTurn(turn.index, turn.state, turn.utterance, turn.next_state, continues=True)


@pytree_dataclass
class EpisodeColumns:
    """Packed rows, and the columns at which a row's turns are valued, `NOWHERE` where one lacks
    the text.
    """

    inputs: PolicyInputs
    state: Int[AnyArray, "B R"]
    utterance: Int[AnyArray, "B R"]
    next_state: Int[AnyArray, "B R"]
    branch: Int[AnyArray, "B R"]

    @property
    def episode_inputs(self) -> PolicyInputs:
        """The rows without their branches."""
        inputs = self.inputs
        first = slice(None, inputs.prefix_length)
        return PolicyInputs(
            tokens=inputs.tokens[:, first],
            positions=inputs.positions[:, first],
            segment_ids=inputs.segment_ids[:, first],
        )


@dataclass(frozen=True, eq=False)
class PackedTurns:
    """Turns in rows: m of n turns, each in a column of a row."""

    columns: EpisodeColumns
    turn: np.ndarray  # int [m]: which turns
    row: np.ndarray  # int [m]
    column: np.ndarray  # int [m]: among the turns of the row
    continues: np.ndarray  # bool [B, R]: the next column is the episode's next turn

    def scatter(self, values: np.ndarray) -> np.ndarray:
        """A value of each turn, [n], as float32 [B, R], 0 elsewhere."""
        out = np.zeros(self.continues.shape, np.float32)
        out[self.row, self.column] = values[self.turn]
        return out


def fill_rows(
    rows: Sequence[EpisodeRow],
    turns: Sequence[EpisodeTurn],
    shape: RowShape,
    row_indices: np.ndarray,
    num_rows: int,
) -> PackedTurns:
    """Row i as row `row_indices[i]` of arrays; the others are empty."""
    tokens, positions, segment_ids = np.zeros((3, num_rows, shape.num_columns), np.int32)
    columns = np.full((4, num_rows, shape.num_turns), NOWHERE, np.int32)
    continues = np.zeros((num_rows, shape.num_turns), bool)
    steps = np.arange(shape.num_columns)
    for r, row in zip(row_indices.tolist(), rows, strict=True):
        starts = np.cumsum([0, *map(len, row.chains)]).tolist()
        for i, chain in enumerate(row.chains):
            part = r, slice(starts[i], starts[i + 1])
            tokens[part], positions[part], segment_ids[part] = chain, steps[: len(chain)], i + 1
        for j, turn in enumerate(row.turns):
            ends = (turn.state, turn.utterance, turn.next_state)
            columns[:3, r, j] = [
                NOWHERE if end is None else starts[end.chain] + end.position for end in ends
            ]
            continues[r, j] = turn.continues
            branch = turns[turn.index].branch
            if branch is None:
                continue
            if not len(branch):  # the value of an empty utterance is read at the state
                columns[3, r, j] = columns[0, r, j]
                continue
            first, position = shape.row_length + j * shape.branch_length, turn.state.position + 1
            part = r, slice(first, first + len(branch))
            tokens[part], segment_ids[part] = branch, turn.state.chain + 1
            positions[part] = steps[position : position + len(branch)]
            columns[3, r, j] = first + len(branch) - 1
    inputs = PolicyInputs(
        tokens=tokens,
        positions=positions,
        segment_ids=segment_ids,
        prefix_length=shape.row_length,
        branch_length=shape.branch_length,
        inner_branches=shape.branch_length > 0,
    )
    state, utterance, next_state, branch = columns
    episode_columns = EpisodeColumns(
        inputs=inputs, state=state, utterance=utterance, next_state=next_state, branch=branch
    )
    slots = [(row.turns, r) for row, r in zip(rows, row_indices.tolist())]
    turn_index, row_index, column_index = (
        np.array(
            [(turn.index, r, j) for row_turns, r in slots for j, turn in enumerate(row_turns)],
            np.int64,
        )
        .reshape(-1, 3)
        .T
    )
    return PackedTurns(episode_columns, turn_index, row_index, column_index, continues)
