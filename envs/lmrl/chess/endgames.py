"""`ChessEndgames`: mate a bare king (LMRL-Gym, arXiv 2311.18232)."""

from functools import cache
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.envs.lmrl.chess import rules
from agentrl_jax.envs.lmrl.chess.chess import Chess
from agentrl_jax.errors import UserError

ENDINGS = ("kQK", "kRK", "kQRK", "kRRK")
SQUARES = tuple(file + rank for rank in "12345678" for file in "abcdefgh")
NUM_HELD_OUT, HELD_OUT_SEED = 645, 2311_18232
ANCHORS = (-1.0, 0.586, 1.0)


def sample_ending(rng: np.random.Generator) -> str:
    """The FEN of a random ending, White to move.

    Its pieces are on distinct uniform squares, by rejection of illegal positions.
    """
    pieces = ENDINGS[rng.integers(len(ENDINGS))]
    while True:
        squares = [SQUARES[i] for i in rng.choice(64, size=len(pieces), replace=False)]
        board = dict(zip(squares, pieces))
        if not rules.is_attacked(board, squares[0], by_white=True):
            return f"{rules.format_placement(board)} w - - 0 1"


@cache
def position_sequence(count: int) -> tuple[str, ...]:
    """The first `count` positions of a fixed sequence of distinct positions."""
    rng, positions = np.random.default_rng(HELD_OUT_SEED), dict[str, None]()
    while len(positions) < count:
        positions[sample_ending(rng)] = None
    return tuple(positions)


def held_out_positions() -> tuple[str, ...]:
    """The 645 evaluation positions, from which no other game starts.

    They are sampled here; LMRL-Gym's list differs.
    """
    return position_sequence(NUM_HELD_OUT)


@cache
def _held_out_set() -> frozenset[str]:
    return frozenset(held_out_positions())


class ChessEndgames(Chess):
    """`Chess` from a random ending against a bare king, White to move.

    White has king and queen, king and rook, queen and rook, or two rooks. Games start anywhere
    except at the 645 held-out positions. LMRL-Gym's evaluation of GPT-4 has `moves` = 50. Reset
    options: `index`, of a held-out position, and `fen`.

    Args:
        held_out: start at the held-out positions.
        positions: start at one of this many further fixed positions; 0: anywhere.
        options: those of `Chess`.
    """

    reset_options: ClassVar[tuple[str, ...]] = ("fen", "index")
    max_blunder_rate: ClassVar[float] = 0.75

    def __init__(self, held_out: bool = False, positions: int = 0, **options: Any) -> None:
        super().__init__(**options)
        if type(positions) is not int or positions < 0 or (held_out and positions):
            raise UserError(
                f"positions is a whole number from 0, and 0 with held_out, not {positions!r}"
            )
        self.held_out, self.positions = held_out, positions
        self.score_anchors = None if positions else ANCHORS

    def _choose_start_fen(self, options: dict[str, Any]) -> str:
        if options.keys() == {"fen", "index"}:
            raise UserError("a game starts at a fen or at an index, not at both")
        if "index" in options:
            index = options["index"]
            if type(index) is not int or not 0 <= index < NUM_HELD_OUT:
                raise UserError(
                    f"index is a whole number from 0 to {NUM_HELD_OUT - 1}, not {index!r}"
                )
            return held_out_positions()[index]
        if "fen" in options:
            return rules.validate_fen(options["fen"])
        if self.held_out:
            return held_out_positions()[self.np_random.integers(NUM_HELD_OUT)]
        if self.positions:
            sequence = position_sequence(NUM_HELD_OUT + self.positions)
            return sequence[NUM_HELD_OUT + self.np_random.integers(self.positions)]
        while (fen := sample_ending(self.np_random)) in _held_out_set():
            pass
        return fen
