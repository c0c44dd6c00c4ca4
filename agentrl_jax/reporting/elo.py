"""Elo ratings of players from the games between them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agentrl_jax.errors import UserError

FIRST_RATING = 1000.0  # of the first player, from which the others are counted
RESAMPLES = 1000
MAX_ITERATIONS = 100_000
TOLERANCE = 1e-4  # of a rating, from one iteration to the next

Points = Mapping[tuple[int, int], np.ndarray]


@dataclass(frozen=True)
class EloRating:
    """A player's rating with its 95 % interval; the first player's is exact by definition."""

    rating: float
    low: float
    high: float


def elo_ratings(points: np.ndarray, games: np.ndarray) -> np.ndarray:
    """The ratings R that maximize sum_ij s_ij log P(i beats j), [..., n].

    P(i beats j) = 1 / (1 + 10^((R_j - R_i) / 400)), by the iteration p_i = s_i / sum_j n_ij /
    (p_i + p_j) with R_i = 400 log10 p_i (Hunter, Annals of Statistics 32, 2004). To each pair that
    has played one drawn game is added, so that a player that wins all its games is rated, too.

    Args:
        points: s_ij, of i in its games with j: 1 for a game won, 1/2 for one drawn, [..., n, n].
        games: n_ij, between i and j, [..., n, n].
    """
    connected = (games > 0).astype(np.float64)
    score, count = (points + connected / 2).sum(-1), games + connected
    strength = np.ones_like(score)
    for _ in range(MAX_ITERATIONS):
        before = strength
        strength = score / (count / (before[..., :, None] + before[..., None, :])).sum(-1)
        strength /= strength[..., :1]
        if np.abs(400 * np.log10(strength / before)).max() < TOLERANCE:
            break
    return FIRST_RATING + 400 * np.log10(strength)


def rate(points: Points, num_players: int, seed: int = 0) -> list[EloRating]:
    """The rating of each player, with percentiles of those from resampled games.

    Args:
        points: by (i, j) those of player i in its games with player j, [rows, games of a row];
            rows are resampled, such as the two games of a deal with changed seats.
        num_players: that are rated.
        seed: of the resampling.

    Raises:
        UserError: not all players are connected by games.
    """
    points = {pair: rows for pair, rows in points.items() if rows.size}
    _check_connected([*points], num_players)
    rng = np.random.default_rng(seed)
    won = np.zeros((1 + RESAMPLES, num_players, num_players))
    games = np.zeros((num_players, num_players))
    for (i, j), rows in points.items():
        chosen = rng.integers(len(rows), size=(RESAMPLES, len(rows)))
        totals = np.concatenate([[rows.sum()], rows.sum(1)[chosen].sum(1)])
        won[:, i, j] += totals
        won[:, j, i] += rows.size - totals
        games[i, j] += rows.size
        games[j, i] += rows.size
    ratings = elo_ratings(won, np.broadcast_to(games, won.shape))
    low, high = np.percentile(ratings[1:], (2.5, 97.5), axis=0)
    return [EloRating(*map(float, values)) for values in zip(ratings[0], low, high)]


def _check_connected(pairs: list[tuple[int, int]], num_players: int) -> None:
    reached, frontier = {0}, [0]
    while frontier:
        player = frontier.pop()
        others = {i + j - player for i, j in pairs if player in (i, j)} - reached
        reached |= others
        frontier += others
    if len(reached) < num_players:
        raise UserError(
            f"players {sorted(set(range(num_players)) - reached)} have played no game that "
            "connects them with player 0: their ratings cannot be compared"
        )
