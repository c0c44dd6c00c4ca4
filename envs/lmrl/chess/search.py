"""The built-in engine: a shallow search over material, piece squares and mating progress."""

from functools import cache, lru_cache

import numpy as np

from agentrl_jax.envs.lmrl.chess.rules import WHITE, Position

# The value of a mate, and of one ply less to it: more than any noise.
MATE_VALUE, MATE_PLY_BONUS = 100_000, 1000
PIECE_VALUES = {"p": 100, "n": 310, "b": 325, "r": 500, "q": 900, "k": 0}
# Centipawns for a step of a piece towards the center; a pawn gets a bonus for advancing instead.
CENTER_BONUS = {"p": 2, "n": 8, "b": 5, "r": 1, "q": 2, "k": -6}
PAWN_ADVANCE_BONUS = 6
# Mating: the bare king away from the center, the other king near it.
EDGE_BONUS, KING_PROXIMITY_BONUS = 20, 8


def _centrality(row: int, column: int) -> int:
    """0 in the corners to 6 on the four center squares."""
    return min(row, 7 - row) + min(column, 7 - column)


@lru_cache(maxsize=1 << 16)
def _evaluate_rank(text: str, row: int) -> tuple[int, int, int, int, int]:
    """The value and contents of one rank of a FEN, `row` counted from the top.

    (value for White, White's and Black's pieces except kings, columns of both kings or -1)
    """
    worth, column, counts, kings = 0, 0, [0, 0], [-1, -1]
    for mark in text:
        if mark.isdigit():
            column += int(mark)
            continue
        kind, black = mark.lower(), mark.islower()
        value = PIECE_VALUES[kind] + CENTER_BONUS[kind] * _centrality(row, column)
        if kind == "p":
            value += PAWN_ADVANCE_BONUS * (row - 1 if black else 6 - row)
        worth += -value if black else value
        if kind == "k":
            kings[black] = column
        else:
            counts[black] += 1
        column += 1
    return worth, counts[0], counts[1], kings[0], kings[1]


@cache
def _mating_progress(bare_king: tuple[int, int], other_king: tuple[int, int]) -> int:
    """How close a bare king is to mate: at the edge, with the other king near."""
    distance = abs(bare_king[0] - other_king[0]) + abs(bare_king[1] - other_king[1])
    return EDGE_BONUS * (6 - _centrality(*bare_king)) + KING_PROXIMITY_BONUS * (14 - distance)


def evaluate(state: Position) -> int:
    """The static value of a position for White, in centipawns."""
    worth = white = black = 0
    kings = [(0, 0), (0, 0)]
    for row, text in enumerate(str(state).split(" ", 1)[0].split("/")):
        rank_worth, whites, blacks, king, other = _evaluate_rank(text, row)
        worth, white, black = worth + rank_worth, white + whites, black + blacks
        if king >= 0:
            kings[0] = (row, king)
        if other >= 0:
            kings[1] = (row, other)
    if white and not black:
        return worth + _mating_progress(kings[1], kings[0])
    if black and not white:
        return worth - _mating_progress(kings[0], kings[1])
    return worth


def _negamax(state: Position, depth: int, low: int, high: int) -> int:
    """The value for the side to move after `depth` plies, clipped to (low, high)."""
    if state.is_terminal():
        # A decisive end means that the side to move was mated.
        return -(MATE_VALUE + MATE_PLY_BONUS * depth) if any(state.returns()) else 0
    side = 1 if state.current_player() == WHITE else -1
    if depth == 0:
        return side * evaluate(state)
    children = (state.child(action) for action in state.legal_actions())
    if depth > 1:
        children = sorted(children, key=lambda child: -side * evaluate(child))
    best = -2 * MATE_VALUE
    for child in children:
        best = max(best, -_negamax(child, depth - 1, -high, -max(low, best)))
        if best >= high:
            break
    return best


def best_move(state: Position, depth: int, rng: np.random.Generator, noise: float = 0.0) -> int:
    """The move with the largest value after `depth` plies.

    Each value is perturbed by up to `noise` centipawns, uniformly.
    """
    side = 1 if state.current_player() == WHITE else -1
    children = [(state.child(action), action) for action in state.legal_actions()]
    children.sort(key=lambda pair: -side * evaluate(pair[0]))
    best, chosen = -2.0 * MATE_VALUE, children[0][1]
    for child, action in children:
        extra = noise * rng.random()
        low = int(np.floor(best - extra))
        worth = -_negamax(child, depth - 1, -2 * MATE_VALUE, -low) + extra
        if worth > best:
            best, chosen = worth, action
    return chosen
