"""Elo ratings by hand, against a general optimizer, and from games of known strengths."""

import numpy as np
import pytest
from scipy.optimize import minimize

from agentrl_jax.errors import UserError
from agentrl_jax.reporting.elo import FIRST_RATING, elo_ratings, rate


def win_probability(difference: float) -> float:
    return 1 / (1 + 10 ** (-difference / 400))


def drawn_rows(rng: np.random.Generator, probability: float, rows: int) -> np.ndarray:
    return (rng.random((rows, 2)) < probability).astype(float)


def test_two_players_by_hand():
    """With the drawn game that is added 75.5 of 101 points: 400 log10(75.5 / 25.5)."""
    rows = np.array(
        [[1.0, 1.0], [1.0, 0.0], [1.0, 0.5], [1.0, 0.5]] * 12 + [[1.0, 1.0], [1.0, 0.0]]
    )
    assert rows.sum() == 75 and rows.size == 100
    first, second = rate({(0, 1): rows}, 2)
    assert first.rating == first.low == first.high == FIRST_RATING
    assert second.rating == pytest.approx(FIRST_RATING - 400 * np.log10(75.5 / 25.5), abs=1e-6)
    assert second.low < second.rating < second.high


def test_all_games_won_is_a_finite_rating_and_none_played_alone_an_error():
    _, second = rate({(0, 1): np.zeros((10, 2))}, 2)
    assert second.rating == pytest.approx(FIRST_RATING + 400 * np.log10(20.5 / 0.5), abs=1e-6)
    assert second.low == second.high == second.rating
    assert rate({(0, 1): np.zeros((10, 2)), (1, 0): np.zeros((0, 2))}, 2)[1] == second
    with pytest.raises(UserError, match=r"\[2\] have played no game"):
        rate({(0, 1): np.ones((3, 2)), (1, 2): np.zeros((0, 2))}, 3)


def test_the_ratings_maximize_the_likelihood():
    rng = np.random.default_rng(0)
    games = np.triu(rng.integers(0, 30, size=(5, 5)), 1)
    games[0, 1:] += 1
    points = games * rng.random((5, 5))
    games = games + games.T
    points = np.triu(points, 1) + np.tril(games - np.triu(points, 1).T, -1)

    def loss(free: np.ndarray) -> float:
        ratings = np.concatenate([[0.0], free])
        log_p = -np.logaddexp(0, -(ratings[:, None] - ratings[None]))
        return -((points + (games > 0) / 2) * log_p).sum()

    best = minimize(loss, np.zeros(4), tol=1e-12).x * 400 / np.log(10)
    np.testing.assert_allclose(elo_ratings(points, games) - FIRST_RATING, [0, *best], atol=0.05)


def test_known_strengths_are_recovered_within_their_intervals():
    rng, strengths = np.random.default_rng(1), [1000.0, 1200.0, 900.0]
    pairs = [(i, j) for i in range(3) for j in range(i + 1, 3)]
    points = {
        (i, j): drawn_rows(rng, win_probability(strengths[i] - strengths[j]), 800) for i, j in pairs
    }
    for rating, strength in zip(rate(points, 3), strengths):
        assert rating.low <= strength <= rating.high and rating.high - rating.low < 60


def test_the_order_of_a_pair_does_not_matter():
    rows = drawn_rows(np.random.default_rng(2), 0.7, 50)
    forward, backward = rate({(0, 1): rows}, 2), rate({(1, 0): 1 - rows}, 2)
    assert forward[1] == pytest.approx(backward[1])
