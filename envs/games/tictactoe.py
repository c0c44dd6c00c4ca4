"""Tic-tac-toe."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.multi_agent import MoveResult, MultiAgentEnvironment, random_move

EMPTY_CELL, PLAYER_MARKS = ".", "xo"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def player_to_move(board: str) -> int:
    return 9 - board.count(EMPTY_CELL) & 1


def place_mark(board: str, cell: int) -> str:
    """The board after the player to move marks a cell, counted from 0."""
    return board[:cell] + PLAYER_MARKS[player_to_move(board)] + board[cell + 1 :]


def winner(board: str) -> int | None:
    """The player with three in a row, or None."""
    return next(
        (
            PLAYER_MARKS.index(board[a])
            for a, b, c in LINES
            if board[a] == board[b] == board[c] != EMPTY_CELL
        ),
        None,
    )


def free_cells(board: str) -> list[int]:
    return [cell for cell, mark in enumerate(board) if mark == EMPTY_CELL]


@lru_cache(maxsize=10_000)  # there are 5,478 boards
def minimax_value(board: str) -> int:
    """The value of a board under optimal play for the player to move: 1, 0 or -1."""
    if winner(board) is not None:
        return -1
    return max((-minimax_value(place_mark(board, cell)) for cell in free_cells(board)), default=0)


def _expert_action(env: "TicTacToe", rng: np.random.Generator) -> str:
    """A uniform optimal move."""
    values = {cell: -minimax_value(place_mark(env.board, cell)) for cell in free_cells(env.board)}
    best = [cell for cell, value in values.items() if value == max(values.values())]
    return str(1 + best[rng.integers(len(best))])


class TicTacToe(MultiAgentEnvironment):
    """Three in a row win; an observation is the board by rows, "x...o....", an action 1 to 9.

    Scripted policies: `random` (uniform over legal moves) and `expert` (optimal play). Options are
    those of `MultiAgentEnvironment`.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": random_move, "expert": _expert_action}
    )
    rules = (
        "Tic-tac-toe: three in a row win. The board is shown row by row, as x...o....; x begins.\n"
        "Write the number of a free cell, 1 to 9. For any other text the first free one is taken."
    )
    board: str = EMPTY_CELL * 9

    def _start_game(self) -> tuple[str, str]:
        self.board, self.current_player = EMPTY_CELL * 9, 0
        return self.board, ""

    def _legal_moves(self) -> list[str]:
        return [str(1 + cell) for cell in free_cells(self.board)]

    def _apply_move(self, move: str) -> MoveResult:
        player, self.board = self.current_player, place_mark(self.board, int(move) - 1)
        winning_player = winner(self.board)
        if winning_player is None and EMPTY_CELL in self.board:
            return MoveResult(
                [self.board if other != player else "" for other in (0, 1)], 1 - player, {}
            )
        outcome = (
            (0.0, 0.0)
            if winning_player is None
            else (1.0, -1.0)
            if winning_player == 0
            else (-1.0, 1.0)
        )
        words = {1.0: "won", 0.0: "drawn", -1.0: "lost"}
        return MoveResult([f"{self.board} {words[x]}" for x in outcome], None, {"outcome": outcome})
