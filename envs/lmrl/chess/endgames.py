"""`ChessEndgames`: mate a bare king with a queen, a rook, or two of them (LMRL-Gym, arXiv 2311.18232)."""

from functools import cache
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.envs.lmrl.chess import rules
from agentrl_jax.envs.lmrl.chess.chess import Chess
from agentrl_jax.errors import UserError

ENDINGS = ("kQK", "kRK", "kQRK", "kRRK")
SQUARES = tuple(file + rank for rank in "12345678" for file in "abcdefgh")
HELD_OUT, HELD_OUT_SEED = 645, 2311_18232
ANCHORS = (-1.0, 0.586, 1.0)


def drawn(rng: np.random.Generator) -> str:
    """A random ending: its pieces on distinct uniform squares, drawn until the position is legal. White is to move."""
    pieces = ENDINGS[rng.integers(len(ENDINGS))]
    while True:
        places = [SQUARES[i] for i in rng.choice(64, size=len(pieces), replace=False)]
        board = dict(zip(places, pieces))
        if not rules.attacks(board, places[0], white=True):
            return f"{rules.placement(board)} w - - 0 1"


@cache
def listed(count: int) -> tuple[str, ...]:
    """The first positions of a fixed sequence, no two alike."""
    rng, found = np.random.default_rng(HELD_OUT_SEED), dict[str, None]()
    while len(found) < count:
        found[drawn(rng)] = None
    return tuple(found)


def held_out() -> tuple[str, ...]:
    """The 645 positions of the evaluation, which no other game starts from. LMRL-Gym's list is not among these: they are drawn here."""
    return listed(HELD_OUT)


@cache
def _kept() -> frozenset[str]:
    return frozenset(held_out())


class ChessEndgames(Chess):
    """`Chess` from a random ending of king and queen, rook, queen and rook, or two rooks against a king, White to move.

    A game starts anywhere but at the 645 held-out positions; with `held_out` at one of these, with `positions` at one of so many others,
    always the same. Reset options: `index`, which of the held-out positions, and `fen`. LMRL-Gym's evaluation of GPT-4 has `moves` = 50.
    """

    reset_options: ClassVar[tuple[str, ...]] = ("fen", "index")
    weakest: ClassVar[float] = 0.75

    def __init__(self, held_out: bool = False, positions: int = 0, **options: Any) -> None:
        super().__init__(**options)
        if type(positions) is not int or positions < 0 or (held_out and positions):
            raise UserError(f"positions is a whole number from 0, and 0 with held_out, not {positions!r}")
        self.held_out, self.positions = held_out, positions
        self.score_anchors = None if positions else ANCHORS

    def _drawn(self, options: dict[str, Any]) -> str:
        if options.keys() == {"fen", "index"}:
            raise UserError("a game starts at a fen or at an index, not at both")
        if "index" in options:
            index = options["index"]
            if type(index) is not int or not 0 <= index < HELD_OUT:
                raise UserError(f"index is a whole number from 0 to {HELD_OUT - 1}, not {index!r}")
            return held_out()[index]
        if "fen" in options:
            return rules.check(options["fen"])
        if self.held_out:
            return held_out()[self.np_random.integers(HELD_OUT)]
        if self.positions:
            return listed(HELD_OUT + self.positions)[HELD_OUT + self.np_random.integers(self.positions)]
        while (fen := drawn(self.np_random)) in _kept():
            pass
        return fen
