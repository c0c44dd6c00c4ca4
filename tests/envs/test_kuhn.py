"""Kuhn poker: its tree against best responses tried out one by one, known values, and what is said at the table."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import fresh

from agentrl_jax.envs.games import kuhn
from agentrl_jax.envs.games.kuhn import ENDS, EQUILIBRIUM, KNOWN, Kuhn, best_response, exploitability, payoff, value
from agentrl_jax.messages import texts

UNIFORM = dict.fromkeys(KNOWN, 0.5)


def strategies() -> st.SearchStrategy[dict[str, float]]:
    return st.fixed_dictionaries({known: st.floats(0, 1) for known in KNOWN})


def test_payoffs_by_hand():
    assert [payoff("KJ", end) for end in ENDS] == [1, 1, 2, -1, 2]
    assert [payoff("QK", end) for end in ENDS] == [-1, 1, -2, -1, -2]


def test_an_equilibrium_loses_an_eighteenth_from_the_first_seat_and_nobody_can_exploit_it():
    assert value(EQUILIBRIUM, EQUILIBRIUM) == pytest.approx(-1 / 18)
    assert best_response(EQUILIBRIUM, 0) == pytest.approx(-1 / 18) and best_response(EQUILIBRIUM, 1) == pytest.approx(1 / 18)
    assert exploitability(EQUILIBRIUM) == pytest.approx(0, abs=1e-12)


def test_uniform_play_is_exploited_by_half_an_ante_and_five_twelfths():
    """By hand: first, all bet: K for 3/2, Q for 1/2, J for -1/2. Second, after a pass or a bet: K 3/2 or 2, Q 1/2 or 0, J -1/2 or -1."""
    assert best_response(UNIFORM, 0) == pytest.approx((3 / 2 + 1 / 2 - 1 / 2) / 3)
    assert best_response(UNIFORM, 1) == pytest.approx((7 / 4 + 1 / 4 - 3 / 4) / 3)
    assert exploitability(UNIFORM) == pytest.approx(11 / 24)


@settings(max_examples=3, deadline=None)
@given(strategies())
def test_a_best_response_is_the_best_of_all_pure_strategies(bet: dict[str, float]):
    for seat in (0, 1):
        own = [known for known in KNOWN if (len(known) - 1) % 2 == seat]
        pure = (dict(zip(own, choice)) for choice in itertools.product((0.0, 1.0), repeat=len(own)))
        won = [value({**bet, **one}, bet) if seat == 0 else -value(bet, {**bet, **one}) for one in pure]
        assert len(won) == 64 and best_response(bet, seat) == pytest.approx(max(won), abs=1e-12)
    assert exploitability(bet) >= -1e-12


def test_every_decision_looks_as_the_tree_says():
    """All deals, and all that can be done with them, at a table."""
    seen: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {}
    for seed, moves in itertools.product(range(40), itertools.product("pb", repeat=3)):
        env = fresh(Kuhn)
        opening, info = env.reset(seed=seed, options={"seats": [0, 1]})
        shown: dict[int, tuple[str, tuple[tuple[str, str], ...]]] = {0: (texts(opening)[0], ())}
        for move in moves:
            seat = info["seat"]
            known = env.cards[seat] + env.history
            assert seen.setdefault(known, shown[seat]) == shown[seat] == kuhn.seen(known)
            messages, _, over, _, info = env.step(move)
            if over:
                break
            heard, other = texts(messages)[0], info["seat"]
            first, turns = shown.get(other, (heard, ()))
            shown[other] = (first, (*turns, (env.history[0], heard))) if other in shown else (first, turns)
    assert seen.keys() == set(KNOWN)


@pytest.mark.parametrize(
    ("moves", "ends"),
    [
        ("pp", [("J+1\n", 1), ("K-1\n", -1)]), ("bp", [("+1\n", 1), ("-1\n", -1)]), ("bb", [("J+2\n", 2), ("K-2\n", -2)]),
        ("pbp", [("-1\n", -1), ("+1\n", 1)]), ("pbb", [("J+2\n", 2), ("K-2\n", -2)]),
    ],
)  # fmt: skip
def test_the_end_is_told_to_both_with_the_cards_only_where_they_are_shown(moves: str, ends: list):
    env = fresh(Kuhn)
    env.reset(seed=0, options={"seats": [0, 1]})
    env.cards = "KJ"
    for move in moves:
        reply = env.step(move)
    for seat, (text, amount) in enumerate(ends):
        assert (texts(reply[0])[-1], reply[1], reply[2], reply[4]["seat"]) == (text, amount, True, seat)
        assert reply[4]["success"] == (amount > 0)
        if seat == 0:
            reply = env.step("")


def test_the_expert_plays_the_equilibrium_with_its_own_card_alone():
    """800 hands of both: the first seat's mean is -1/18 within 4 standard errors."""
    env, rng, won = fresh(Kuhn), np.random.default_rng(1), []
    for seed in range(800):
        env.reset(seed=seed, options={"seats": [0, 1]})
        over = False
        while not over:
            _, reward, over, _, info = env.step(env.players["expert"](env, rng))
        assert info["seat"] == 0
        won.append(reward)
    assert np.mean(won) == pytest.approx(-1 / 18, abs=4 * float(np.std(won)) / math.sqrt(len(won)))
