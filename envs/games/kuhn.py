"""Kuhn poker (Kuhn 1950): three cards, two players, one bet; its game tree and best responses."""

from collections.abc import Mapping
from itertools import permutations
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.multi_agent import MoveResult, MultiAgentEnvironment, random_move

CARDS, MOVES = "JQK", "pb"  # pass, bet
TERMINAL_HISTORIES = ("pp", "bp", "bb", "pbp", "pbb")
# The moves before a decision; the second player decides after an odd number of moves.
DECISION_HISTORIES = ("", "p", "b", "pb")
# An information state is the player's card and the moves so far.
INFORMATION_STATES = tuple(card + history for history in DECISION_HISTORIES for card in CARDS)
# The probability of a bet in each information state. Kuhn's equilibria have alpha in [0, 1/3]; in
# each of them the first player loses 1/18 per game.
ALPHA = 0.2
EQUILIBRIUM: Mapping[str, float] = MappingProxyType({
    "J": ALPHA, "Q": 0.0, "K": 3 * ALPHA, "Jpb": 0.0, "Qpb": ALPHA + 1 / 3, "Kpb": 1.0,
    "Jp": 1 / 3, "Qp": 0.0, "Kp": 1.0, "Jb": 0.0, "Qb": 1 / 3, "Kb": 1.0,
})  # fmt: skip


def payoff(cards: str, history: str) -> float:
    """What the first player wins, in antes, in a finished game; `cards` are both players'."""
    if history in ("bp", "pbp"):  # a bet that was not called
        return 1.0 if history == "bp" else -1.0
    return (2.0 if "b" in history else 1.0) * (
        1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1
    )


def _move_probability(
    bet_probability: Mapping[str, float], information_state: str, move: str
) -> float:
    return (
        bet_probability[information_state]
        if move == "b"
        else 1 - bet_probability[information_state]
    )


def expected_value(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The first player's expected payoff.

    Args:
        first: the first player's probability of a bet in each of `INFORMATION_STATES`.
        second: the second player's.
    """

    def history_value(cards: str, history: str) -> float:
        if history in TERMINAL_HISTORIES:
            return payoff(cards, history)
        mover = len(history) % 2
        known, bet = cards[mover] + history, (first, second)[mover]
        return sum(
            _move_probability(bet, known, move) * history_value(cards, history + move)
            for move in MOVES
        )

    return sum(history_value(a + b, "") for a, b in permutations(CARDS, 2)) / 6


def best_response_value(bet_probability: Mapping[str, float], player: int) -> float:
    """The expected payoff of an exact best response.

    Args:
        bet_probability: the opponent's strategy.
        player: the index of the player that responds.
    """

    def history_value(card: str, history: str, reach_probability: Mapping[str, float]) -> float:
        """The sum over the opponent's cards of payoff x reach probability (deal and its moves)."""
        if history in TERMINAL_HISTORIES:
            return sum(
                p
                * (payoff(card + other, history) if player == 0 else -payoff(other + card, history))
                for other, p in reach_probability.items()
            )
        if len(history) % 2 == player:
            return max(history_value(card, history + move, reach_probability) for move in MOVES)
        reach_after = {
            move: {
                other: p * _move_probability(bet_probability, other + history, move)
                for other, p in reach_probability.items()
            }
            for move in MOVES
        }
        return sum(history_value(card, history + move, reach_after[move]) for move in MOVES)

    return sum(
        history_value(card, "", {other: 1 / 6 for other in CARDS if other != card})
        for card in CARDS
    )


def exploitability(bet_probability: Mapping[str, float]) -> float:
    """The mean of both players' best-response values against a strategy, in antes per game.

    It is 0 at an equilibrium and 11/24 for uniform play. NashConv is the sum over both players;
    OpenSpiel's exploitability is the mean, as here.
    """
    return (best_response_value(bet_probability, 0) + best_response_value(bet_probability, 1)) / 2


def decision_texts(information_state: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What a player has read at a decision: the opening, and (move, reply) for its own moves."""
    card, history = information_state[0], information_state[1:]
    if history == "pb":
        return f"{card}\n", (("p", "b\n"),)
    return f"{card}\n" + "".join(f"{move}\n" for move in history), ()


def _expert_action(env: "Kuhn", rng: np.random.Generator) -> str:
    return "b" if rng.random() < EQUILIBRIUM[env.cards[env.current_player] + env.history] else "p"


class Kuhn(MultiAgentEnvironment):
    """Both players ante one and get a card of J, Q, K; "p" checks or folds, "b" bets one or calls.

    A player observes its card, as "Q", and the opponent's moves; at the end the opponent's card if
    both are shown, and its own payoff: "K-2".

    Scripted policies: `random` (uniform over legal moves) and `expert` (an equilibrium). Options
    are those of `MultiAgentEnvironment`.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": random_move, "expert": _expert_action}
    )
    payoff_bounds = (-2.0, 2.0)
    rules = (
        "Kuhn poker: three cards, J, Q and K; both players ante one and get a card each.\n"
        "Write b to bet one or to call a bet, p to check or to fold. The higher card wins the "
        "pot. An illegal text passes."
    )
    cards: str = "JQ"
    history: str = ""

    def _start_game(self) -> tuple[str, str]:
        first, second = self.np_random.permutation(len(CARDS))[:2]
        self.cards, self.history, self.current_player = CARDS[first] + CARDS[second], "", 0
        return self.cards[0], self.cards[1]

    def _legal_moves(self) -> str:
        return MOVES

    def _apply_move(self, move: str) -> MoveResult:
        mover, self.history = self.current_player, self.history + move
        if self.history not in TERMINAL_HISTORIES:
            return MoveResult([move if player != mover else "" for player in (0, 1)], 1 - mover, {})
        winnings = payoff(self.cards, self.history)
        showdown = self.history[-2:] in ("pp", "bb")
        ends = [
            f"{self.cards[1 - player] if showdown else ''}{amount:+.0f}"
            for player, amount in enumerate((winnings, -winnings))
        ]
        return MoveResult(ends, None, {"outcome": (winnings, -winnings)})
