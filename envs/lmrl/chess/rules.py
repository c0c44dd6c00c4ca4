"""The rules of chess, which are OpenSpiel's: positions, moves, their texts, and which FEN may start a game."""

import importlib
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from agentrl_jax.errors import UserError

# A position of OpenSpiel with its history. It is never changed: `child` makes the next one.
State = Any
WHITE = 1  # OpenSpiel's number of the player
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
STRAIGHT = ((0, 1), (0, -1), (1, 0), (-1, 0))
DIAGONAL = ((1, 1), (1, -1), (-1, 1), (-1, -1))
LEAPS = tuple((a, b) for a in (-2, -1, 1, 2) for b in (-2, -1, 1, 2) if abs(a) != abs(b))
# Which pieces move that way, and how far.
REACHES = (("rq", STRAIGHT, 7), ("bq", DIAGONAL, 7), ("n", LEAPS, 1), ("k", STRAIGHT + DIAGONAL, 1))
FIELDS = re.compile(r"([1-8KQRBNPkqrbnp/]+) w (-|K?Q?k?q?) (-|[a-h]6) (\d{1,2}) ([1-9]\d{0,3})")
HOMES = {"K": ("e1", "h1"), "Q": ("e1", "a1"), "k": ("e8", "h8"), "q": ("e8", "a8")}  # where king and rook stand that may castle


@cache
def spiel() -> Any:
    """The module `pyspiel`. Raises UserError where it is not installed."""
    try:
        return importlib.import_module("pyspiel")
    except ImportError as error:
        raise UserError("chess needs OpenSpiel: pip install 'agentrl_jax[chess]'") from error


@cache
def game() -> Any:
    """OpenSpiel's chess. A third repetition, fifty moves of each side without progress and bare material end a game as draws."""
    return spiel().load_game("chess")


def squares(placement: str) -> dict[str, str]:
    """Which piece stands where: "8/8/8/8/8/8/8/K6k" -> {"a1": "K", "h1": "k"}. Raises ValueError unless it is eight ranks of eight."""
    ranks = [re.sub(r"\d", lambda digit: " " * int(digit[0]), rank) for rank in placement.split("/")]
    if [len(rank) for rank in ranks] != [8] * 8:
        raise ValueError("a board has eight ranks of eight squares")
    return {f"{'abcdefgh'[x]}{8 - y}": mark for y, rank in enumerate(ranks) for x, mark in enumerate(rank) if mark != " "}


def placement(board: Mapping[str, str]) -> str:
    """The other way round: {"a1": "K", "h1": "k"} -> "8/8/8/8/8/8/8/K6k"."""
    ranks = ["".join(board.get(file + rank, " ") for file in "abcdefgh") for rank in "87654321"]
    return "/".join(re.sub(" +", lambda gap: str(len(gap[0])), rank) for rank in ranks)


def _first(board: Mapping[str, str], square: str, way: tuple[int, int], far: int) -> str:
    """The first piece that one meets going that way, at most so far; empty where there is none."""
    for step in range(1, far + 1):
        at = f"{chr(ord(square[0]) + step * way[0])}{int(square[1]) + step * way[1]}"
        if at in board:
            return board[at]
    return ""


def attacks(board: Mapping[str, str], square: str, white: bool) -> bool:
    """Whether a piece of White's (of Black's) attacks the square."""
    back = -1 if white else 1
    for kinds, ways, far in (*REACHES, ("p", ((-1, back), (1, back)), 1)):
        marks = kinds.upper() if white else kinds
        if any((mark := _first(board, square, way, far)) and mark in marks for way in ways):
            return True
    return False


def _fault(fen: str) -> str:
    """Why no game can start there with White to move; empty where one can."""
    fields = FIELDS.fullmatch(fen)
    if fields is None:
        return "it is no FEN with White to move"
    pieces, castling, passed, quiet, _ = fields.groups()
    try:
        board = squares(pieces)
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
        king, rook = (board.get(square) for square in HOMES[right])
        if (king, rook) != (("K", "R") if right.isupper() else ("k", "r")):
            return f"{right} may not castle from there"
    if castling == "":
        return "its castling rights are missing"
    if passed != "-" and (board.get(passed[0] + "5") != "p" or passed in board or passed[0] + "7" in board):
        return f"no pawn has just passed {passed}"
    if attacks(board, next(square for square, mark in board.items() if mark == "k"), white=True):
        return "Black is in check and White to move"
    if int(quiet) > 99 or position(fen).is_terminal():
        return "the game is over there"
    return ""


def check(fen: Any) -> str:
    """The FEN itself. Raises UserError unless a game can start there, White to move."""
    fault = _fault(fen) if isinstance(fen, str) else "it is no text"
    if fault:
        raise UserError(f"no game can start at {fen!r}: {fault}")
    return fen


def position(fen: str) -> State:
    """A position with no history, from a FEN that is known to be right."""
    return game().new_initial_state(fen)


def unmarked(san: str) -> str:
    """A move without its mark of check or mate, which says nothing that the move does not: "Qh5+" -> "Qh5"."""
    return san[:-1] if san.endswith(("+", "#")) else san


def moves(state: State) -> Mapping[str, int]:
    """The legal moves: SAN to OpenSpiel's number."""
    return MappingProxyType({state.action_to_string(action): action for action in state.legal_actions()})


def lan(state: State, action: int) -> str:
    """A move as engines write it: "e2e4", "e7e8q"."""
    return spiel().chess.action_to_move(action, state.board()).to_lan()


def record(state: State) -> str:
    """The game so far as engines are told it: "fen <where it began> moves e2e4 e7e5"."""
    start, played = state.start_fen(), []
    at = position(start)
    for action in state.history():
        played.append(lan(at, action))
        at.apply_action(action)
    return " ".join(["fen", start, "moves", *played])


def fen(state: State) -> str:
    """The position's FEN; the square that a pawn passed is named only where it can be taken there."""
    fields = str(state).split(" ")
    passed = fields[3]
    if passed != "-" and not any(re.match(rf"[a-h]x{passed}", san) for san in moves(state)):
        fields[3] = "-"
    return " ".join(fields)
