"""Chess once more, on a board of 120 cells with a rim: for tests to hold the environment against."""

from dataclasses import dataclass, field, replace
from functools import cached_property

N, S, E, W = -10, 10, 1, -1
STEPS = {
    "n": (N + N + E, N + N + W, S + S + E, S + S + W, E + E + N, E + E + S, W + W + N, W + W + S),
    "b": (N + E, N + W, S + E, S + W),
    "r": (N, S, E, W),
    "q": (N, S, E, W, N + E, N + W, S + E, S + W),
    "k": (N, S, E, W, N + E, N + W, S + E, S + W),
}
ROOKS = {21: "q", 28: "k", 91: "Q", 98: "K"}  # a right to castle is lost when anything leaves or comes to one of these cells
KINGS = {25: "kq", 95: "KQ"}


def name(cell: int) -> str:
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
    """`cells` is a string of 120: piece letters, "." for empty, "#" for the rim."""

    cells: str
    white: bool
    rights: str
    passed: int
    quiet: int
    number: int
    seen: tuple[str, ...] = field(default=(), compare=False)

    @staticmethod
    def read(fen: str) -> "Board":
        placement, side, rights, passed, quiet, number = fen.split()
        rows = ["".join("." * int(c) if c.isdigit() else c for c in row) for row in placement.split("/")]
        cells = "#" * 20 + "".join(f"#{row}#" for row in rows) + "#" * 20
        return Board(cells, side == "w", rights.strip("-"), cell_of(passed) if passed != "-" else 0, int(quiet), int(number))

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
        takers = [m for m in self.legal if m.end == self.passed and self.cells[m.start] in "Pp"] if self.passed else []
        passed = name(self.passed) if takers else "-"
        return f"{'/'.join(rows)} {'w' if self.white else 'b'} {self.rights or '-'} {passed} {self.quiet} {self.number}"

    def mine(self, c: str, white: bool) -> bool:
        return c.isalpha() and c.isupper() == white

    def attacked(self, cell: int, white: bool) -> bool:
        """By a piece of `white`'s."""
        for kind, steps in STEPS.items():
            for step in steps:
                at = cell + step
                while kind in "brq" and self.cells[at] == ".":
                    at += step
                if self.mine(self.cells[at], white) and self.cells[at].lower() == kind:
                    return True
        back = S if white else N
        return any(self.cells[cell + back + side] == ("P" if white else "p") for side in (E, W))

    def checked(self, white: bool) -> bool:
        return self.attacked(self.cells.index("K" if white else "k"), not white)

    def candidates(self):
        ahead, home, last = (N, 8, 2) if self.white else (S, 3, 9)
        for start in range(21, 99):
            piece = self.cells[start]
            if not self.mine(piece, self.white):
                continue
            if piece in "Pp":
                ends = [start + ahead + side for side in (E, W)]
                ends = [e for e in ends if self.mine(self.cells[e], not self.white) or (e == self.passed and e)]
                if self.cells[start + ahead] == ".":
                    ends.append(start + ahead)
                    if start // 10 == home and self.cells[start + 2 * ahead] == ".":
                        ends.append(start + 2 * ahead)
                for end in ends:
                    for promotion in "qrbn" if end // 10 == last else ("",):
                        yield Move(start, end, promotion)
                continue
            for step in STEPS[piece.lower()]:
                end = start + step
                while True:
                    if self.cells[end] == "." or self.mine(self.cells[end], not self.white):
                        yield Move(start, end)
                    if self.cells[end] != "." or piece in "KkNn":
                        break
                    end += step
        king = 95 if self.white else 25
        for right, way, between in (("k", E, (1, 2)), ("q", W, (1, 2, 3))):
            has = (right.upper() if self.white else right) in self.rights
            free = has and all(self.cells[king + way * b] == "." for b in between)
            if free and not any(self.attacked(king + way * b, not self.white) for b in (0, 1, 2)):
                yield Move(king, king + 2 * way)

    def after(self, move: Move) -> "Board":
        cells, piece = list(self.cells), self.cells[move.start]
        pawn, taken = piece in "Pp", cells[move.end] != "."
        cells[move.start], cells[move.end] = ".", piece
        if move.promotion:
            cells[move.end] = move.promotion.upper() if self.white else move.promotion
        if pawn and move.end == self.passed and not taken:
            cells[move.end + (S if self.white else N)] = "."
        if piece in "Kk" and abs(move.start - move.end) == 2:
            corner = move.end + 1 if move.end > move.start else move.end - 2
            cells[corner], cells[(move.start + move.end) // 2] = ".", cells[corner]
        lost = "".join(ROOKS.get(c, "") + KINGS.get(c, "") for c in (move.start, move.end))
        passed = (move.start + move.end) // 2 if pawn and abs(move.start - move.end) == 20 else 0
        quiet = 0 if pawn or taken else self.quiet + 1
        rights = "".join(r for r in self.rights if r not in lost)
        return Board("".join(cells), not self.white, rights, passed, quiet, self.number + (not self.white))

    def play(self, move: Move) -> "Board":
        """`after`, and what was seen before is remembered."""
        return replace(self.after(move), seen=(*self.seen, self.key()))

    def key(self) -> str:
        return " ".join(self.fen().split()[:4])

    @cached_property
    def legal(self) -> list[Move]:
        return [m for m in self.candidates() if not self.after(m).checked(self.white)]

    def san(self, move: Move) -> str:
        piece = self.cells[move.start].upper()
        if piece == "K" and abs(move.start - move.end) == 2:
            text = "O-O" if move.end > move.start else "O-O-O"
        else:
            takes = self.cells[move.end] != "." or (piece == "P" and move.start % 10 != move.end % 10)
            if piece == "P":
                text = (
                    (name(move.start)[0] + "x" if takes else "") + name(move.end) + ("=" + move.promotion.upper() if move.promotion else "")
                )
            else:
                rivals = [m.start for m in self.legal if m.end == move.end and m.start != move.start]
                rivals = [r for r in rivals if self.cells[r] == self.cells[move.start]]
                file, rank = name(move.start)
                hint = ""
                if rivals:
                    same_file, same_rank = (any(name(r)[i] == (file, rank)[i] for r in rivals) for i in (0, 1))
                    hint = file if not same_file else rank if not same_rank else file + rank
                text = piece + hint + ("x" if takes else "") + name(move.end)
        then = self.after(move)
        return text + (("+" if then.legal else "#") if then.checked(then.white) else "")

    def verdict(self) -> str:
        """ "" while the game goes on, "mate" (of the side to move), or "draw"."""
        if not self.legal:
            return "mate" if self.checked(self.white) else "draw"
        pieces = [(c.lower(), (i // 10 + i) % 2) for i, c in enumerate(self.cells) if c.isalpha() and c not in "Kk"]
        bare = pieces in ([], [("n", 0)], [("n", 1)]) or set(pieces) in ({("b", 0)}, {("b", 1)})  # bishops of one colour of square
        return "draw" if bare or self.quiet >= 100 or self.seen.count(self.key()) >= 2 else ""


def perft(board: Board, depth: int) -> int:
    return 1 if depth == 0 else sum(perft(board.after(m), depth - 1) for m in board.legal)
