"""An independent implementation of chess on a padded board of 120 squares, as a reference for
tests.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

N, S, E, W = -10, 10, 1, -1
PIECE_STEPS = {
    "n": (N + N + E, N + N + W, S + S + E, S + S + W, E + E + N, E + E + S, W + W + N, W + W + S),
    "b": (N + E, N + W, S + E, S + W),
    "r": (N, S, E, W),
    "q": (N, S, E, W, N + E, N + W, S + E, S + W),
    "k": (N, S, E, W, N + E, N + W, S + E, S + W),
}
ROOK_CASTLING_RIGHTS = {
    21: "q",
    28: "k",
    91: "Q",
    98: "K",
}  # the right is lost when a piece leaves or enters one of these squares
KING_CASTLING_RIGHTS = {25: "kq", 95: "KQ"}


def square_name(cell: int) -> str:
    return "abcdefgh"[cell % 10 - 1] + str(10 - cell // 10)


def cell_of(square: str) -> int:
    return (10 - int(square[1])) * 10 + "abcdefgh".index(square[0]) + 1


@dataclass(frozen=True)
class Move:
    start: int
    end: int
    promotion: str = ""


@dataclass(frozen=True)
class Board:
    """`cells` is a string of 120: piece letters, "." for empty, "#" for the padding."""

    cells: str
    white_to_move: bool
    castling_rights: str
    en_passant: int
    halfmove_clock: int
    fullmove_number: int
    previous_keys: tuple[str, ...] = field(default=(), compare=False)

    @staticmethod
    def from_fen(fen: str) -> "Board":
        placement, side, rights, passed, quiet, number = fen.split()
        rows = [
            "".join("." * int(c) if c.isdigit() else c for c in row) for row in placement.split("/")
        ]
        cells = "#" * 20 + "".join(f"#{row}#" for row in rows) + "#" * 20
        return Board(
            cells,
            side == "w",
            rights.strip("-"),
            cell_of(passed) if passed != "-" else 0,
            int(quiet),
            int(number),
        )

    def fen(self) -> str:
        rows = []
        for top in range(21, 100, 10):
            row, empty = "", 0
            for c in self.cells[top : top + 8]:
                if c == ".":
                    empty += 1
                    continue
                row, empty = row + (str(empty) if empty else "") + c, 0
            rows.append(row + (str(empty) if empty else ""))
        takers = (
            [
                m
                for m in self.legal_moves
                if m.end == self.en_passant and self.cells[m.start] in "Pp"
            ]
            if self.en_passant
            else []
        )
        passed = square_name(self.en_passant) if takers else "-"
        return (
            f"{'/'.join(rows)} {'w' if self.white_to_move else 'b'} "
            f"{self.castling_rights or '-'} {passed} {self.halfmove_clock} {self.fullmove_number}"
        )

    def belongs_to(self, c: str, white: bool) -> bool:
        return c.isalpha() and c.isupper() == white

    def is_attacked(self, cell: int, by_white: bool) -> bool:
        """Whether a piece of that color attacks the square."""
        for kind, steps in PIECE_STEPS.items():
            for step in steps:
                at = cell + step
                while kind in "brq" and self.cells[at] == ".":
                    at += step
                if self.belongs_to(self.cells[at], by_white) and self.cells[at].lower() == kind:
                    return True
        back = S if by_white else N
        return any(self.cells[cell + back + side] == ("P" if by_white else "p") for side in (E, W))

    def in_check(self, white: bool) -> bool:
        return self.is_attacked(self.cells.index("K" if white else "k"), not white)

    def pseudo_legal_moves(self):
        ahead, home, last = (N, 8, 2) if self.white_to_move else (S, 3, 9)
        for start in range(21, 99):
            piece = self.cells[start]
            if not self.belongs_to(piece, self.white_to_move):
                continue
            if piece in "Pp":
                ends = [start + ahead + side for side in (E, W)]
                ends = [
                    e
                    for e in ends
                    if self.belongs_to(self.cells[e], not self.white_to_move)
                    or (e == self.en_passant and e)
                ]
                if self.cells[start + ahead] == ".":
                    ends.append(start + ahead)
                    if start // 10 == home and self.cells[start + 2 * ahead] == ".":
                        ends.append(start + 2 * ahead)
                for end in ends:
                    for promotion in "qrbn" if end // 10 == last else ("",):
                        yield Move(start, end, promotion)
                continue
            for step in PIECE_STEPS[piece.lower()]:
                end = start + step
                while True:
                    if self.cells[end] == "." or self.belongs_to(
                        self.cells[end], not self.white_to_move
                    ):
                        yield Move(start, end)
                    if self.cells[end] != "." or piece in "KkNn":
                        break
                    end += step
        king = 95 if self.white_to_move else 25
        for right, way, between in (("k", E, (1, 2)), ("q", W, (1, 2, 3))):
            has = (right.upper() if self.white_to_move else right) in self.castling_rights
            free = has and all(self.cells[king + way * b] == "." for b in between)
            if free and not any(
                self.is_attacked(king + way * b, not self.white_to_move) for b in (0, 1, 2)
            ):
                yield Move(king, king + 2 * way)

    def apply_move(self, move: Move) -> "Board":
        cells, piece = list(self.cells), self.cells[move.start]
        pawn, taken = piece in "Pp", cells[move.end] != "."
        cells[move.start], cells[move.end] = ".", piece
        if move.promotion:
            cells[move.end] = move.promotion.upper() if self.white_to_move else move.promotion
        if pawn and move.end == self.en_passant and not taken:
            cells[move.end + (S if self.white_to_move else N)] = "."
        if piece in "Kk" and abs(move.start - move.end) == 2:
            corner = move.end + 1 if move.end > move.start else move.end - 2
            cells[corner], cells[(move.start + move.end) // 2] = ".", cells[corner]
        lost = "".join(
            ROOK_CASTLING_RIGHTS.get(c, "") + KING_CASTLING_RIGHTS.get(c, "")
            for c in (move.start, move.end)
        )
        passed = (move.start + move.end) // 2 if pawn and abs(move.start - move.end) == 20 else 0
        quiet = 0 if pawn or taken else self.halfmove_clock + 1
        rights = "".join(r for r in self.castling_rights if r not in lost)
        return Board(
            "".join(cells),
            not self.white_to_move,
            rights,
            passed,
            quiet,
            self.fullmove_number + (not self.white_to_move),
        )

    def apply_and_remember(self, move: Move) -> "Board":
        """`apply_move`, with the current position added to `previous_keys`."""
        return replace(
            self.apply_move(move), previous_keys=(*self.previous_keys, self.repetition_key())
        )

    def repetition_key(self) -> str:
        return " ".join(self.fen().split()[:4])

    @cached_property
    def legal_moves(self) -> list[Move]:
        return [
            m
            for m in self.pseudo_legal_moves()
            if not self.apply_move(m).in_check(self.white_to_move)
        ]

    def san(self, move: Move) -> str:
        piece = self.cells[move.start].upper()
        if piece == "K" and abs(move.start - move.end) == 2:
            text = "O-O" if move.end > move.start else "O-O-O"
        else:
            takes = self.cells[move.end] != "." or (
                piece == "P" and move.start % 10 != move.end % 10
            )
            if piece == "P":
                text = (
                    (square_name(move.start)[0] + "x" if takes else "")
                    + square_name(move.end)
                    + ("=" + move.promotion.upper() if move.promotion else "")
                )
            else:
                rivals = [
                    m.start for m in self.legal_moves if m.end == move.end and m.start != move.start
                ]
                rivals = [r for r in rivals if self.cells[r] == self.cells[move.start]]
                file, rank = square_name(move.start)
                hint = ""
                if rivals:
                    same_file, same_rank = (
                        any(square_name(r)[i] == (file, rank)[i] for r in rivals) for i in (0, 1)
                    )
                    hint = file if not same_file else rank if not same_rank else file + rank
                text = piece + hint + ("x" if takes else "") + square_name(move.end)
        then = self.apply_move(move)
        return text + (
            ("+" if then.legal_moves else "#") if then.in_check(then.white_to_move) else ""
        )

    def game_result(self) -> str:
        """ "" if the game is not over, "mate" (the side to move is mated), or "draw"."""
        if not self.legal_moves:
            return "mate" if self.in_check(self.white_to_move) else "draw"
        pieces = [
            (c.lower(), (i // 10 + i) % 2)
            for i, c in enumerate(self.cells)
            if c.isalpha() and c not in "Kk"
        ]
        bare = pieces in ([], [("n", 0)], [("n", 1)]) or set(pieces) in (
            {("b", 0)},
            {("b", 1)},
        )  # bishops on squares of one color
        return (
            "draw"
            if bare
            or self.halfmove_clock >= 100
            or self.previous_keys.count(self.repetition_key()) >= 2
            else ""
        )


def perft(board: Board, depth: int) -> int:
    return (
        1 if depth == 0 else sum(perft(board.apply_move(m), depth - 1) for m in board.legal_moves)
    )
