"""Tic-tac-toe."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.games import Game, Played, random_move

EMPTY, MARKS = ".", "xo"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def mover(board: str) -> int:
    return 9 - board.count(EMPTY) & 1


def moved(board: str, cell: int) -> str:
    """The board after the mark of whose turn it is was set in a cell, from 0."""
    return board[:cell] + MARKS[mover(board)] + board[cell + 1 :]


def winner(board: str) -> int | None:
    """The seat that has three in a row."""
    return next((MARKS.index(board[a]) for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), None)


def free(board: str) -> list[int]:
    return [cell for cell, mark in enumerate(board) if mark == EMPTY]


@lru_cache(maxsize=10_000)  # there are 5,478 boards
def worth(board: str) -> int:
    """What best play makes of a board for the seat to move: 1, 0 or -1."""
    if winner(board) is not None:
        return -1
    return max((-worth(moved(board, cell)) for cell in free(board)), default=0)


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Any of the best moves."""
    assert isinstance(env, TicTacToe)
    values = {cell: -worth(moved(env.board, cell)) for cell in free(env.board)}
    best = [cell for cell, found in values.items() if found == max(values.values())]
    return str(1 + best[rng.integers(len(best))])


class TicTacToe(Game):
    """Three in a row win. A seat sees the board, row by row, as "x...o....", and writes a cell's number from 1 to 9."""

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": random_move, "expert": _expert})
    rules = (
        "Tic-tac-toe: three in a row win. The board is shown row by row, as x...o....; x begins.\n"
        "Write the number of a free cell, 1 to 9. For any other text the first free one is taken."
    )
    board: str = EMPTY * 9

    def _deal(self) -> tuple[str, str]:
        self.board, self.turn = EMPTY * 9, 0
        return self.board, ""

    def _legal(self) -> list[str]:
        return [str(1 + cell) for cell in free(self.board)]

    def _played(self, move: str) -> Played:
        seat, self.board = self.turn, moved(self.board, int(move) - 1)
        won = winner(self.board)
        if won is None and EMPTY in self.board:
            return Played([self.board if other != seat else "" for other in (0, 1)], 1 - seat, {})
        outcome = (0.0, 0.0) if won is None else (1.0, -1.0) if won == 0 else (-1.0, 1.0)
        words = {1.0: "won", 0.0: "drawn", -1.0: "lost"}
        return Played([f"{self.board} {words[x]}" for x in outcome], None, {"outcome": outcome})
