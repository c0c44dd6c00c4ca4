"""A small Hanabi: two players, who see each other's cards but not their own, cooperate."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.multi_agent import MoveResult, MultiAgentEnvironment, random_move

COLOURS, RANKS = "ab", "12"
DECK = tuple(colour + rank for colour in COLOURS for rank in "11122")
HAND_SIZE, MAX_HINTS, MAX_LIVES = 2, 4, 2
UNKNOWN_CARD = "??"


def _apply_hint(hand: Sequence[str], known_cards: Sequence[str], hint: str) -> list[str]:
    """The known marks of a hand after a hint: ("a1", "b1"), ("??", "b?"), "1" -> "?1", "b1"."""
    return [
        "".join(x if x == hint else old for x, old in zip(card, mark))
        for card, mark in zip(hand, known_cards)
    ]


def _expert_action(env: "MiniHanabi", rng: np.random.Generator) -> str:
    """Plays a card that surely fits, else gives the most useful hint, else discards.

    It reads what its player sees, and discards a card it knows nothing of.
    """
    known_cards, other = env.known_cards[env.current_player], 1 - env.current_player
    for i, mark in enumerate(known_cards, 1):
        if env.is_surely_playable(mark):
            return f"p{i}"
    legal = env._legal_moves()
    best, best_value = "", 0.0
    for hint in (move for move in legal if move[0] == "h"):
        after = _apply_hint(env.hands[other], env.known_cards[other], hint[1])
        pairs = list(zip(env.hands[other], env.known_cards[other], after))
        now = sum(
            env.is_surely_playable(new) and not env.is_surely_playable(old) for _, old, new in pairs
        )
        later = sum(env.is_playable(card) and old != new for card, old, new in pairs)
        if now + later / 4 > best_value:
            best, best_value = hint, now + later / 4
    if best:
        return best
    if legal[0][0] == "d":
        unknown = [i for i, mark in enumerate(known_cards, 1) if mark == UNKNOWN_CARD]
        return f"d{(unknown or [1])[0]}"
    return legal[0]


class MiniHanabi(MultiAgentEnvironment):
    """Ten cards in two colours with ranks 1, 1, 1, 2, 2; every card that fits earns both players 1.

    Hands have two cards; there are four hints and two lives. A player sees, as "a1b0 h4 l2 a2b1
    ??a?": the height of each firework, the hints and lives left, the partner's hand, and the known
    marks of its own. "p1" plays the first card, "d1" discards it and restores a hint, "ha" and "h2"
    mark the partner's cards of that colour or rank. A card that does not fit costs a life. The game
    ends when no life is left, when both fireworks are complete, or once both players have moved
    after the last card was taken from the deck.

    Scripted policies: `random` (uniform over legal moves) and `expert` (a rule of hints and safe
    plays). Options are those of `MultiAgentEnvironment`.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": random_move, "expert": _expert_action}
    )
    context: ContextManager = LastMessages(1)  # an observation holds all that its player knows
    payoff_bounds = (0.0, 2.0)
    rules = (
        "Mini-Hanabi: build the fireworks a and b up to 2, together. You see the fireworks, the "
        "hints (h) and lives (l) left,\n"
        "the other's hand, and what you know of your own. Write p1 or p2 to play a card, d1 or d2 "
        "to throw one away for a hint,\n"
        "ha, hb, h1 or h2 to tell the other which of its cards are like that. A text that is no "
        "move makes the first legal one."
    )

    def _start_game(self) -> list[str]:
        deck = [DECK[i] for i in self.np_random.permutation(len(DECK))]
        self.hands = [[deck.pop() for _ in range(HAND_SIZE)] for _ in range(self.num_players)]
        self.known_cards = [[UNKNOWN_CARD] * HAND_SIZE for _ in range(self.num_players)]
        self.deck, self.firework_heights = deck, dict.fromkeys(COLOURS, 0)
        self.hints, self.lives, self.current_player = MAX_HINTS, MAX_LIVES, 0
        self.moves_left = self.num_players  # moves once the deck is empty
        return [self._view(0), ""]

    @property
    def score(self) -> int:
        return sum(self.firework_heights.values())

    def is_playable(self, card: str) -> bool:
        return self.firework_heights[card[0]] + 1 == int(card[1])

    def is_surely_playable(self, mark: str) -> bool:
        """Whether every card that a mark such as "b?" allows fits."""
        cards = (colour + rank for colour in COLOURS for rank in RANKS)
        return all(
            self.is_playable(card)
            for card in cards
            if all(x in ("?", y) for x, y in zip(mark, card))
        )

    def _has_won(self, player: int) -> bool:
        return self.score == len(COLOURS) * len(RANKS)

    def _legal_moves(self) -> list[str]:
        card_numbers = range(1, 1 + len(self.hands[self.current_player]))
        partner_hand = self.hands[1 - self.current_player]
        discards = [f"d{i}" for i in card_numbers] if self.hints < MAX_HINTS else []
        hints = [
            f"h{x}"
            for x in COLOURS + RANKS
            if self.hints and any(x in card for card in partner_hand)
        ]
        return [*discards, *hints, *(f"p{i}" for i in card_numbers)]

    def _apply_move(self, move: str) -> MoveResult:
        player, reward = self.current_player, 0.0
        self.moves_left -= not self.deck
        if move[0] == "h":
            self.hints -= 1
            self.known_cards[1 - player] = _apply_hint(
                self.hands[1 - player], self.known_cards[1 - player], move[1]
            )
        else:
            card = self._remove_card(player, int(move[1]) - 1)
            if move[0] == "d":
                self.hints += 1
            elif self.is_playable(card):
                self.firework_heights[card[0]] += 1
                reward = 1.0
            else:
                self.lives -= 1
        over = self._has_won(player) or self.lives == 0 or self.moves_left == 0
        observations = (
            [f"end {self.score}"] * 2
            if over
            else [self._view(other) if other != player else "" for other in (0, 1)]
        )
        return MoveResult(
            observations,
            None if over else 1 - player,
            {"outcome": (reward, reward)} if reward else {},
        )

    def _remove_card(self, player: int, card_index: int) -> str:
        """Take a card out of a player's hand and append the next card of the deck to it."""
        self.known_cards[player] = (
            self.known_cards[player][:card_index] + self.known_cards[player][card_index + 1 :]
        )
        card = self.hands[player].pop(card_index)
        if self.deck:
            self.hands[player].append(self.deck.pop())
            self.known_cards[player].append(UNKNOWN_CARD)
        return card

    def _view(self, player: int) -> str:
        board = "".join(f"{colour}{height}" for colour, height in self.firework_heights.items())
        return (
            f"{board} h{self.hints} l{self.lives} {''.join(self.hands[1 - player])} "
            f"{''.join(self.known_cards[player])}"
        )
