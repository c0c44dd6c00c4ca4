"""The built-in player: material, where it stands, and how to mate a bare king, searched a few plies deep."""

from functools import cache, lru_cache

import numpy as np

from agentrl_jax.envs.lmrl.chess.rules import WHITE, State

MATE, SOONER = 100_000, 1000  # a mate's worth, and that of one ply less to it: more than any noise
VALUES = {"p": 100, "n": 310, "b": 325, "r": 500, "q": 900, "k": 0}
# What a step towards the centre is worth to a piece; a pawn is drawn forwards instead.
CENTRAL = {"p": 2, "n": 8, "b": 5, "r": 1, "q": 2, "k": -6}
ADVANCE = 6
EDGE, NEAR = 20, 8  # mating: the bare king away from the centre, the other king near it


def _central(row: int, column: int) -> int:
    """0 in the corners to 6 on the four squares of the centre."""
    return min(row, 7 - row) + min(column, 7 - column)


@lru_cache(maxsize=1 << 16)
def _rank(text: str, row: int) -> tuple[int, int, int, int, int]:
    """One rank of a FEN, `row` from the top: its worth to White, White's and Black's pieces but the kings, the kings' columns (or -1)."""
    worth, column, counts, kings = 0, 0, [0, 0], [-1, -1]
    for mark in text:
        if mark.isdigit():
            column += int(mark)
            continue
        kind, black = mark.lower(), mark.islower()
        value = VALUES[kind] + CENTRAL[kind] * _central(row, column)
        if kind == "p":
            value += ADVANCE * (row - 1 if black else 6 - row)
        worth += -value if black else value
        if kind == "k":
            kings[black] = column
        else:
            counts[black] += 1
        column += 1
    return worth, counts[0], counts[1], kings[0], kings[1]


@cache
def _mating(bare: tuple[int, int], other: tuple[int, int]) -> int:
    """How near a bare king is to being mated: at the edge, the other king close."""
    distance = abs(bare[0] - other[0]) + abs(bare[1] - other[1])
    return EDGE * (6 - _central(*bare)) + NEAR * (14 - distance)


def evaluate(state: State) -> int:
    """Centipawns for White of a position where the game goes on."""
    worth = white = black = 0
    kings = [(0, 0), (0, 0)]
    for row, text in enumerate(str(state).split(" ", 1)[0].split("/")):
        here, whites, blacks, king, other = _rank(text, row)
        worth, white, black = worth + here, white + whites, black + blacks
        if king >= 0:
            kings[0] = (row, king)
        if other >= 0:
            kings[1] = (row, other)
    if white and not black:
        return worth + _mating(kings[1], kings[0])
    if black and not white:
        return worth - _mating(kings[0], kings[1])
    return worth


def _value(state: State, depth: int, low: int, high: int) -> int:
    """What the position is worth to who is to move, within (low, high), after `depth` plies of best play."""
    if state.is_terminal():
        return -(MATE + SOONER * depth) if any(state.returns()) else 0  # whoever is to move was mated
    side = 1 if state.current_player() == WHITE else -1
    if depth == 0:
        return side * evaluate(state)
    children = (state.child(action) for action in state.legal_actions())
    if depth > 1:
        children = sorted(children, key=lambda child: -side * evaluate(child))
    best = -2 * MATE
    for child in children:
        best = max(best, -_value(child, depth - 1, -high, -max(low, best)))
        if best >= high:
            break
    return best


def best_move(state: State, depth: int, rng: np.random.Generator, noise: float = 0.0) -> int:
    """The move of the greatest worth after `depth` plies, give or take a uniform `noise` in centipawns."""
    side = 1 if state.current_player() == WHITE else -1
    children = [(state.child(action), action) for action in state.legal_actions()]
    children.sort(key=lambda pair: -side * evaluate(pair[0]))
    best, chosen = -2.0 * MATE, children[0][1]
    for child, action in children:
        extra = noise * rng.random()
        low = int(np.floor(best - extra))
        worth = -_value(child, depth - 1, -2 * MATE, -low) + extra
        if worth > best:
            best, chosen = worth, action
    return chosen
