"""A small Hanabi: two seats that see each other's cards and not their own build two fireworks together."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import Environment, Player
from agentrl_jax.games import Game, Played, random_move

COLOURS, RANKS = "ab", "12"
DECK = tuple(colour + rank for colour in COLOURS for rank in "11122")
HAND, HINTS, LIVES = 2, 4, 2
UNKNOWN = "??"


def _marked(hand: Sequence[str], told: Sequence[str], hint: str) -> list[str]:
    """What is known of a hand after a hint: ("a1", "b1"), ("??", "b?"), "1" -> "?1", "b1"."""
    return ["".join(x if x == hint else old for x, old in zip(card, mark)) for card, mark in zip(hand, told)]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Goes by what its seat sees: play what surely fits; else tell of what fits; else throw away what it knows least of."""
    assert isinstance(env, MiniHanabi)
    own, other = env.told[env.turn], 1 - env.turn
    for i, mark in enumerate(own, 1):
        if env.surely_fits(mark):
            return f"p{i}"
    legal = env._legal()
    best, most = "", 0.0
    for hint in (move for move in legal if move[0] == "h"):
        after = _marked(env.hands[other], env.told[other], hint[1])
        pairs = list(zip(env.hands[other], env.told[other], after))
        now = sum(env.surely_fits(new) and not env.surely_fits(old) for _, old, new in pairs)
        later = sum(env.fits(card) and old != new for card, old, new in pairs)
        if now + later / 4 > most:
            best, most = hint, now + later / 4
    if best:
        return best
    if legal[0][0] == "d":
        unknown = [i for i, mark in enumerate(own, 1) if mark == UNKNOWN]
        return f"d{(unknown or [1])[0]}"
    return legal[0]


class MiniHanabi(Game):
    """Ten cards, two colours with ranks 1, 1, 1, 2, 2; hands of two, four hints, two lives. Every card that fits earns both seats 1.

    A seat sees, as "a1b0 h4 l2 a2b1 ??a?": the height of each firework, the hints and lives left, the other's hand, and what it was told
    of its own. "p1" plays its first card, "d1" throws it away and brings a hint back, "ha" and "h2" tell the other which of its cards
    have that colour or rank. A card that does not fit costs a life. The game is over without lives, with both fireworks done, or once both
    have moved after the last card was drawn.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": random_move, "expert": _expert})
    context: ContextManager = LastMessages(1)  # what is seen is all that a seat knows
    payoffs = (0.0, 2.0)
    rules = (
        "Mini-Hanabi: build the fireworks a and b up to 2, together. You see the fireworks, the hints (h) and lives (l) left,\n"
        "the other's hand, and what you know of your own. Write p1 or p2 to play a card, d1 or d2 to throw one away for a hint,\n"
        "ha, hb, h1 or h2 to tell the other which of its cards are like that. A text that is no move makes the first legal one."
    )

    def _deal(self) -> list[str]:
        deck = [DECK[i] for i in self.np_random.permutation(len(DECK))]
        self.hands = [[deck.pop() for _ in range(HAND)] for _ in range(self.seats)]
        self.told = [[UNKNOWN] * HAND for _ in range(self.seats)]
        self.deck, self.height = deck, dict.fromkeys(COLOURS, 0)
        self.hints, self.lives, self.turn = HINTS, LIVES, 0
        self.left = self.seats  # moves once the deck is empty
        return [self._view(0), ""]

    @property
    def score(self) -> int:
        return sum(self.height.values())

    def fits(self, card: str) -> bool:
        return self.height[card[0]] + 1 == int(card[1])

    def surely_fits(self, mark: str) -> bool:
        """Whether every card that a mark ("b?") allows fits."""
        cards = (colour + rank for colour in COLOURS for rank in RANKS)
        return all(self.fits(card) for card in cards if all(x in ("?", y) for x, y in zip(mark, card)))

    def _succeeded(self, seat: int) -> bool:
        return self.score == len(COLOURS) * len(RANKS)

    def _legal(self) -> list[str]:
        own, other = range(1, 1 + len(self.hands[self.turn])), self.hands[1 - self.turn]
        discards = [f"d{i}" for i in own] if self.hints < HINTS else []
        hints = [f"h{x}" for x in COLOURS + RANKS if self.hints and any(x in card for card in other)]
        return [*discards, *hints, *(f"p{i}" for i in own)]

    def _played(self, move: str) -> Played:
        seat, gained = self.turn, 0.0
        self.left -= not self.deck
        if move[0] == "h":
            self.hints -= 1
            self.told[1 - seat] = _marked(self.hands[1 - seat], self.told[1 - seat], move[1])
        else:
            card = self._taken(seat, int(move[1]) - 1)
            if move[0] == "d":
                self.hints += 1
            elif self.fits(card):
                self.height[card[0]] += 1
                gained = 1.0
            else:
                self.lives -= 1
        over = self._succeeded(seat) or self.lives == 0 or self.left == 0
        news = [f"end {self.score}"] * 2 if over else [self._view(other) if other != seat else "" for other in (0, 1)]
        return Played(news, None if over else 1 - seat, {"outcome": (gained, gained)} if gained else {})

    def _taken(self, seat: int, i: int) -> str:
        """A card of a seat, out of its hand; the next of the deck comes to its end."""
        self.told[seat] = self.told[seat][:i] + self.told[seat][i + 1 :]
        card = self.hands[seat].pop(i)
        if self.deck:
            self.hands[seat].append(self.deck.pop())
            self.told[seat].append(UNKNOWN)
        return card

    def _view(self, seat: int) -> str:
        board = "".join(f"{colour}{height}" for colour, height in self.height.items())
        return f"{board} h{self.hints} l{self.lives} {''.join(self.hands[1 - seat])} {''.join(self.told[seat])}"
