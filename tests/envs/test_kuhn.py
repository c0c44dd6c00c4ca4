"""Kuhn poker: best responses by enumeration, known values, and its observations."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import make_env

from agentrl_jax.envs.games import kuhn
from agentrl_jax.envs.games.kuhn import (
    EQUILIBRIUM,
    INFORMATION_STATES,
    TERMINAL_HISTORIES,
    Kuhn,
    best_response_value,
    expected_value,
    exploitability,
    payoff,
)
from agentrl_jax.messages import texts

UNIFORM = dict.fromkeys(INFORMATION_STATES, 0.5)


def strategies() -> st.SearchStrategy[dict[str, float]]:
    return st.fixed_dictionaries({known: st.floats(0, 1) for known in INFORMATION_STATES})


def test_payoffs_by_hand():
    assert [payoff("KJ", end) for end in TERMINAL_HISTORIES] == [1, 1, 2, -1, 2]
    assert [payoff("QK", end) for end in TERMINAL_HISTORIES] == [-1, 1, -2, -1, -2]


def test_an_equilibrium_has_value_minus_one_eighteenth_and_is_not_exploitable():
    assert expected_value(EQUILIBRIUM, EQUILIBRIUM) == pytest.approx(-1 / 18)
    assert best_response_value(EQUILIBRIUM, 0) == pytest.approx(-1 / 18) and best_response_value(
        EQUILIBRIUM, 1
    ) == pytest.approx(1 / 18)
    assert exploitability(EQUILIBRIUM) == pytest.approx(0, abs=1e-12)


def test_uniform_play_is_exploitable_by_11_24_of_an_ante():
    """By hand.

    First player, always bet: K earns 3/2, Q 1/2, J -1/2. Second player, after a pass or a bet: K
    3/2 or 2, Q 1/2 or 0, J -1/2 or -1.
    """
    assert best_response_value(UNIFORM, 0) == pytest.approx((3 / 2 + 1 / 2 - 1 / 2) / 3)
    assert best_response_value(UNIFORM, 1) == pytest.approx((7 / 4 + 1 / 4 - 3 / 4) / 3)
    assert exploitability(UNIFORM) == pytest.approx(11 / 24)


@settings(max_examples=3, deadline=None)
@given(strategies())
def test_a_best_response_is_the_best_of_all_pure_strategies(bet: dict[str, float]):
    for seat in (0, 1):
        own_states = [known for known in INFORMATION_STATES if (len(known) - 1) % 2 == seat]
        pure = (
            dict(zip(own_states, choice))
            for choice in itertools.product((0.0, 1.0), repeat=len(own_states))
        )
        won = [
            expected_value({**bet, **pure_strategy}, bet)
            if seat == 0
            else -expected_value(bet, {**bet, **pure_strategy})
            for pure_strategy in pure
        ]
        assert len(won) == 64 and best_response_value(bet, seat) == pytest.approx(
            max(won), abs=1e-12
        )
    assert exploitability(bet) >= -1e-12


def test_observations_match_the_decision_texts():
    """All deals and all sequences of moves."""
    decision_views: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {}
    for seed, moves in itertools.product(range(40), itertools.product("pb", repeat=3)):
        env = make_env(Kuhn)
        opening, info = env.reset(seed=seed, options={"seats": [0, 1]})
        player_views: dict[int, tuple[str, tuple[tuple[str, str], ...]]] = {
            0: (texts(opening)[0], ())
        }
        for move in moves:
            seat = info["seat"]
            known = env.cards[seat] + env.history
            assert (
                decision_views.setdefault(known, player_views[seat])
                == player_views[seat]
                == kuhn.decision_texts(known)
            )
            messages, _, over, _, info = env.step(move)
            if over:
                break
            message_text, other = texts(messages)[0], info["seat"]
            first, turns = player_views.get(other, (message_text, ()))
            player_views[other] = (
                (first, (*turns, (env.history[0], message_text)))
                if other in player_views
                else (first, turns)
            )
    assert decision_views.keys() == set(INFORMATION_STATES)


@pytest.mark.parametrize(
    ("moves", "ends"),
    [
        ("pp", [("J+1\n", 1), ("K-1\n", -1)]),
        ("bp", [("+1\n", 1), ("-1\n", -1)]),
        ("bb", [("J+2\n", 2), ("K-2\n", -2)]),
        ("pbp", [("-1\n", -1), ("+1\n", 1)]),
        ("pbb", [("J+2\n", 2), ("K-2\n", -2)]),
    ],
)
def test_both_players_observe_the_end_with_cards_only_at_a_showdown(moves: str, ends: list):
    env = make_env(Kuhn)
    env.reset(seed=0, options={"seats": [0, 1]})
    env.cards = "KJ"
    for move in moves:
        reply = env.step(move)
    for seat, (text, amount) in enumerate(ends):
        assert (texts(reply[0])[-1], reply[1], reply[2], reply[4]["seat"]) == (
            text,
            amount,
            True,
            seat,
        )
        assert reply[4]["success"] == (amount > 0)
        if seat == 0:
            reply = env.step("")


def test_the_expert_plays_the_equilibrium_from_its_card():
    """800 games: the first player's mean is -1/18 within 4 standard errors."""
    env, rng, won = make_env(Kuhn), np.random.default_rng(1), []
    for seed in range(800):
        env.reset(seed=seed, options={"seats": [0, 1]})
        over = False
        while not over:
            _, reward, over, _, info = env.step(env.scripted_policies["expert"](env, rng))
        assert info["seat"] == 0
        won.append(reward)
    assert np.mean(won) == pytest.approx(-1 / 18, abs=4 * float(np.std(won)) / math.sqrt(len(won)))
