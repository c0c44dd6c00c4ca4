"""Kuhn poker (Kuhn 1950): three cards, two players, one bet; its whole tree, and what a best response to a strategy earns."""

from collections.abc import Mapping
from itertools import permutations
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.games import Game, Played, random_move

CARDS, MOVES = "JQK", "pb"  # pass, bet
ENDS = ("pp", "bp", "bb", "pbp", "pbb")
DECISIONS = ("", "p", "b", "pb")  # what was done before a decision; of odd length: the second player's
# What a player knows when it decides: its card and what was done so far.
KNOWN = tuple(card + history for history in DECISIONS for card in CARDS)
# The probability of a bet wherever one decides. Kuhn's equilibria have alpha from 0 to 1/3; with any of them the first player
# loses 1/18 a game.
ALPHA = 0.2
EQUILIBRIUM: Mapping[str, float] = MappingProxyType({
    "J": ALPHA, "Q": 0.0, "K": 3 * ALPHA, "Jpb": 0.0, "Qpb": ALPHA + 1 / 3, "Kpb": 1.0,
    "Jp": 1 / 3, "Qp": 0.0, "Kp": 1.0, "Jb": 0.0, "Qb": 1 / 3, "Kb": 1.0,
})  # fmt: skip


def payoff(cards: str, history: str) -> float:
    """What the first player wins, in antes, of a game that is over; `cards` are both players'."""
    if history in ("bp", "pbp"):  # a bet that was not called
        return 1.0 if history == "bp" else -1.0
    return (2.0 if "b" in history else 1.0) * (1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1)


def _share(bet: Mapping[str, float], known: str, move: str) -> float:
    return bet[known] if move == "b" else 1 - bet[known]


def value(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """What the first player wins in the mean; a strategy is the probability of a bet by `KNOWN`."""

    def after(cards: str, history: str) -> float:
        if history in ENDS:
            return payoff(cards, history)
        mover = len(history) % 2
        known, bet = cards[mover] + history, (first, second)[mover]
        return sum(_share(bet, known, move) * after(cards, history + move) for move in MOVES)

    return sum(after(a + b, "") for a, b in permutations(CARDS, 2)) / 6


def best_response(bet: Mapping[str, float], seat: int) -> float:
    """What the best strategy of a seat wins in the mean against `bet` in the other, exactly."""

    def after(card: str, history: str, reach: Mapping[str, float]) -> float:
        """The sum over the other's cards of what is won with each, times how likely the deal and the other's moves are."""
        if history in ENDS:
            return sum(p * (payoff(card + other, history) if seat == 0 else -payoff(other + card, history)) for other, p in reach.items())
        if len(history) % 2 == seat:
            return max(after(card, history + move, reach) for move in MOVES)
        shares = {move: {other: p * _share(bet, other + history, move) for other, p in reach.items()} for move in MOVES}
        return sum(after(card, history + move, shares[move]) for move in MOVES)

    return sum(after(card, "", {other: 1 / 6 for other in CARDS if other != card}) for card in CARDS)


def exploitability(bet: Mapping[str, float]) -> float:
    """What a best response wins of a strategy, the mean of both seats, in antes a game: 0 at an equilibrium, 11/24 for uniform play.

    The sum of both seats' is NashConv; OpenSpiel's exploitability is the mean, as here.
    """
    return (best_response(bet, 0) + best_response(bet, 1)) / 2


def seen(known: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """How a decision looks to its player: the opening, and its own earlier moves with what it was told after them, as texts."""
    card, history = known[0], known[1:]
    if history == "pb":
        return f"{card}\n", (("p", "b\n"),)
    return f"{card}\n" + "".join(f"{move}\n" for move in history), ()


def _expert(env: Environment, rng: np.random.Generator) -> str:
    assert isinstance(env, Kuhn)
    return "b" if rng.random() < EQUILIBRIUM[env.cards[env.turn] + env.history] else "p"


class Kuhn(Game):
    """Both ante one and get a card of J, Q and K; "p" passes (checks or folds), "b" bets one or calls.

    A seat sees its card, as "Q", and the other's moves; in the end the other's card where both are shown, and what it won: "K-2".
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": random_move, "expert": _expert})
    payoffs = (-2.0, 2.0)
    rules = (
        "Kuhn poker: three cards, J, Q and K; both players ante one and get a card each.\n"
        "Write b to bet one or to call a bet, p to check or to fold. The higher card wins the pot. An illegal text passes."
    )
    cards: str = "JQ"
    history: str = ""

    def _deal(self) -> tuple[str, str]:
        first, second = self.np_random.permutation(len(CARDS))[:2]
        self.cards, self.history, self.turn = CARDS[first] + CARDS[second], "", 0
        return self.cards[0], self.cards[1]

    def _legal(self) -> str:
        return MOVES

    def _played(self, move: str) -> Played:
        mover, self.history = self.turn, self.history + move
        if self.history not in ENDS:
            return Played([move if seat != mover else "" for seat in (0, 1)], 1 - mover, {})
        won = payoff(self.cards, self.history)
        shown = self.history[-2:] in ("pp", "bb")
        ends = [f"{self.cards[1 - seat] if shown else ''}{amount:+.0f}" for seat, amount in enumerate((won, -won))]
        return Played(ends, None, {"outcome": (won, -won)})
