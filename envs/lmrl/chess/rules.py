"""The rules of chess, from OpenSpiel: positions, moves, their notation, and valid start FENs."""

import importlib
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from agentrl_jax.errors import UserError

# An OpenSpiel state with its history; it is never modified: `child` returns the next one.
Position = Any
WHITE = 1  # OpenSpiel's number of the player
START_FEN = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
ROOK_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0))
BISHOP_DIRECTIONS = ((1, 1), (1, -1), (-1, 1), (-1, -1))
KNIGHT_STEPS = tuple((a, b) for a in (-2, -1, 1, 2) for b in (-2, -1, 1, 2) if abs(a) != abs(b))
# (pieces, directions, maximal distance)
PIECE_MOVES = (
    ("rq", ROOK_DIRECTIONS, 7),
    ("bq", BISHOP_DIRECTIONS, 7),
    ("n", KNIGHT_STEPS, 1),
    ("k", ROOK_DIRECTIONS + BISHOP_DIRECTIONS, 1),
)
FEN_PATTERN = re.compile(
    r"([1-8KQRBNPkqrbnp/]+) w (-|K?Q?k?q?) (-|[a-h]6) (\d{1,2}) ([1-9]\d{0,3})"
)
# The squares of king and rook for each castling right.
CASTLING_SQUARES = {
    "K": ("e1", "h1"),
    "Q": ("e1", "a1"),
    "k": ("e8", "h8"),
    "q": ("e8", "a8"),
}


@cache
def import_pyspiel() -> Any:
    """The module `pyspiel`.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("pyspiel")
    except ImportError as error:
        raise UserError("chess needs OpenSpiel: pip install 'agentrl_jax[chess]'") from error


@cache
def chess_game() -> Any:
    """OpenSpiel's chess.

    A third repetition, fifty moves of each side without progress, and insufficient material are
    draws.
    """
    return import_pyspiel().load_game("chess")


def parse_placement(placement: str) -> dict[str, str]:
    """The pieces by square: "8/8/8/8/8/8/8/K6k" -> {"a1": "K", "h1": "k"}.

    Raises:
        ValueError: it is not eight ranks of eight squares.
    """
    ranks = [
        re.sub(r"\d", lambda digit: " " * int(digit[0]), rank) for rank in placement.split("/")
    ]
    if [len(rank) for rank in ranks] != [8] * 8:
        raise ValueError("a board has eight ranks of eight squares")
    return {
        f"{'abcdefgh'[x]}{8 - y}": mark
        for y, rank in enumerate(ranks)
        for x, mark in enumerate(rank)
        if mark != " "
    }


def format_placement(board: Mapping[str, str]) -> str:
    """The inverse: {"a1": "K", "h1": "k"} -> "8/8/8/8/8/8/8/K6k"."""
    ranks = ["".join(board.get(file + rank, " ") for file in "abcdefgh") for rank in "87654321"]
    return "/".join(re.sub(" +", lambda gap: str(len(gap[0])), rank) for rank in ranks)


def _first_piece(
    board: Mapping[str, str], square: str, direction: tuple[int, int], max_distance: int
) -> str:
    """The first piece in a direction, up to `max_distance` squares away; empty if there is none."""
    for step in range(1, max_distance + 1):
        at = f"{chr(ord(square[0]) + step * direction[0])}{int(square[1]) + step * direction[1]}"
        if at in board:
            return board[at]
    return ""


def is_attacked(board: Mapping[str, str], square: str, by_white: bool) -> bool:
    """Whether a piece of White (of Black) attacks the square."""
    back = -1 if by_white else 1
    for kinds, ways, far in (*PIECE_MOVES, ("p", ((-1, back), (1, back)), 1)):
        marks = kinds.upper() if by_white else kinds
        if any((mark := _first_piece(board, square, way, far)) and mark in marks for way in ways):
            return True
    return False


def _fen_error(fen: str) -> str:
    """Why no game can start there with White to move; empty where one can."""
    fields = FEN_PATTERN.fullmatch(fen)
    if fields is None:
        return "it is no FEN with White to move"
    pieces, castling, passed, quiet, _ = fields.groups()
    try:
        board = parse_placement(pieces)
    except ValueError as error:
        return str(error)
    marks = "".join(board.values())
    if marks.count("K") != 1 or marks.count("k") != 1:
        return "each side has one king"
    if any(sum(mark.isupper() == white for mark in marks) > 16 for white in (True, False)):
        return "a side has at most 16 pieces"
    if any(mark in "Pp" and square[1] in "18" for square, mark in board.items()):
        return "no pawn stands on a first or last rank"
    for right in castling.strip("-"):
        king, rook = (board.get(square) for square in CASTLING_SQUARES[right])
        if (king, rook) != (("K", "R") if right.isupper() else ("k", "r")):
            return f"{right} may not castle from there"
    if castling == "":
        return "its castling rights are missing"
    if passed != "-" and (
        board.get(passed[0] + "5") != "p" or passed in board or passed[0] + "7" in board
    ):
        return f"no pawn has just passed {passed}"
    if is_attacked(
        board, next(square for square, mark in board.items() if mark == "k"), by_white=True
    ):
        return "Black is in check and White to move"
    if int(quiet) > 99 or position_from_fen(fen).is_terminal():
        return "the game is over there"
    return ""


def validate_fen(fen: Any) -> str:
    """The FEN itself.

    Raises:
        UserError: no game can start there with White to move.
    """
    fault = _fen_error(fen) if isinstance(fen, str) else "it is no text"
    if fault:
        raise UserError(f"no game can start at {fen!r}: {fault}")
    return fen


def position_from_fen(fen: str) -> Position:
    """A position without history, from a valid FEN."""
    return chess_game().new_initial_state(fen)


def strip_check_mark(san: str) -> str:
    """The SAN without its redundant mark of check or mate: "Qh5+" -> "Qh5"."""
    return san[:-1] if san.endswith(("+", "#")) else san


def legal_moves(state: Position) -> Mapping[str, int]:
    """The legal moves: SAN to OpenSpiel's action."""
    return MappingProxyType(
        {state.action_to_string(action): action for action in state.legal_actions()}
    )


def move_to_lan(state: Position, action: int) -> str:
    """A move in long algebraic notation: "e2e4", "e7e8q"."""
    return import_pyspiel().chess.action_to_move(action, state.board()).to_lan()


def uci_position(state: Position) -> str:
    """The game so far as an argument of UCI's position: "fen <start> moves e2e4 e7e5"."""
    start, lan_moves = state.start_fen(), []
    position = position_from_fen(start)
    for action in state.history():
        lan_moves.append(move_to_lan(position, action))
        position.apply_action(action)
    return " ".join(["fen", start, "moves", *lan_moves])


def position_fen(state: Position) -> str:
    """The position's FEN.

    Its en passant square is given only where a capture there is legal.
    """
    fields = str(state).split(" ")
    passed = fields[3]
    if passed != "-" and not any(re.match(rf"[a-h]x{passed}", san) for san in legal_moves(state)):
        fields[3] = "-"
    return " ".join(fields)
