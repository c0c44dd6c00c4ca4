"""Buyers: the scripted one, and a language model in its place."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

from agentrl_jax.envs.lmrl.car_dealer.brief import BRANDS, FEATURES, PERSONALITIES, TYPES, Brief
from agentrl_jax.envs.lmrl.car_dealer.decision import Decision
from agentrl_jax.envs.lmrl.oracles import Ask
from agentrl_jax.envs.lmrl.phrases import LONGEST, Phrases, stem, words

# "$48,000", "48000", "$48k", "48.5 thousand"; a number of more digits is none.
PRICE = re.compile(r"(?<![\d.,])(\$ ?)?(\d[\d,]{0,9})(\.\d{1,2})?(?![\d,.]*\d)( ?k\b| thousand\b)?", re.IGNORECASE | re.ASCII)
AGREEMENT = frozenset(["deal", "accept", "accepted", "agree", "agreed", "sold"])
REFUSAL = frozenset(["not", "no", "never", "can't", "cannot", "don't", "won't", "couldn't", "if"])
LARGEST = 1000  # letters of a language model's text that are heard


@runtime_checkable
class Buyer(Protocol):
    """What a buyer says: a function of the brief and of the texts so far, seller first; a text that holds a decision line ends the
    talk. With `opening` the text begins with it, and only what follows is returned."""

    def reply(self, brief: Brief, talk: Sequence[str], opening: str = "") -> str: ...


@cache
def _goods() -> Phrases[str]:
    return Phrases(([stem(word) for word in words(name)], name) for name in (*BRANDS, *TYPES, *FEATURES))


def goods(text: str) -> set[str]:
    """The brands, types and features that a text names."""
    return set(_goods().within([stem(word) for word in words(text[:LONGEST])]))


def price(text: str) -> int | None:
    """The last price in the text: a number with "$" or "k", or one of at least 1,000."""
    found = None
    for dollars, digits, cents, thousands in PRICE.findall(text[:LONGEST]):
        number = float(digits.replace(",", "") + cents) * (1000 if thousands else 1)
        if number >= 1 and (dollars or thousands or number >= 1000):
            found = int(number)
    return found


def agrees(text: str) -> bool:
    """Whether the seller takes the buyer's offer: a word of agreement, no price, no negation, no question."""
    said = set(words(text[:LONGEST]))
    return bool(said & AGREEMENT) and not said & REFUSAL and price(text) is None and "?" not in text


def told(brief: Brief, sellers: Sequence[str]) -> int:
    """How many of the wished-for features the seller has named."""
    return len(set().union(*(goods(text) for text in sellers)) & set(brief.features))


def offer(brief: Brief, sellers: Sequence[str]) -> int | None:
    """What the seller now asks for the car that the buyer came for, their own last offer where the seller agrees to it, or None."""
    text, named = sellers[-1], goods(sellers[-1])
    others = named & {*BRANDS, *TYPES} - {brief.brand, brief.type}
    if others and not named & {brief.brand, brief.type}:
        return None
    if len(sellers) > 1 and agrees(text):
        return brief.counter(len(sellers) - 1, told(brief, sellers[:-1]))
    return price(text)


@dataclass(frozen=True)
class ScriptedBuyer:
    """Bargains by the rules of the brief's personality, and tells neither the budget nor the limit.

    An asking price of no more than their next counter-offer is accepted. When their patience ends, a price within their limit is
    accepted too; without one they leave.
    """

    def reply(self, brief: Brief, talk: Sequence[str], opening: str = "") -> str:
        """See `Buyer.reply`."""
        sellers, who = talk[::2], PERSONALITIES[brief.personality]
        turn, heard = len(sellers), told(brief, sellers)
        asked, mine = offer(brief, sellers), brief.counter(turn, heard)
        last = turn >= who.patience or bool(opening)
        if asked is not None and asked <= (brief.limit(heard) if last else mine):
            return "You have a deal. " * (not opening) + _after(opening, Decision(True, brief.msrp, asked).line)
        if last:
            return "I will look somewhere else. " * (not opening) + _after(opening, Decision(False, brief.msrp, 0).line)
        return " ".join([*([who.manner] if turn == 1 or turn % 3 == 0 else []), _pressed(brief, sellers, asked, mine)])


def _after(opening: str, line: str) -> str:
    """The decision line, without the beginning that was said already."""
    return line.split("Decision=", 1)[1] if opening.endswith("Decision=") else line


def _pressed(brief: Brief, sellers: Sequence[str], asked: int | None, mine: int) -> str:
    turn, named = len(sellers), goods(sellers[-1])
    pick = zlib.crc32(f"{brief.variety} {turn}".encode())
    if turn == 1 and asked is None:
        wish = brief.features[pick % len(brief.features)]
        return f"I came for the {brief.brand} {brief.type} listed at ${brief.msrp:,}. With {wish}, please. What can you do for me?"
    if named & {*BRANDS, *TYPES} - {brief.brand, brief.type} and not named & {brief.brand, brief.type}:
        return f"I only want the {brief.brand} {brief.type} listed at ${brief.msrp:,}."
    if asked is None:
        missing = [feature for feature in brief.features if feature not in set().union(*(goods(text) for text in sellers))]
        return f"Does it have {missing[0]}? And what is your price?" if missing else f"What is your price? I could pay ${mine:,}."
    choices = (f"${asked:,} is too much for me. I offer ${mine:,}.", f"I can do ${mine:,}.", f"How about ${mine:,}?")
    return choices[pick % len(choices)]


@dataclass(frozen=True)
class AskedBuyer:
    """A language model as the buyer: it is given LMRL-Gym's line of conditions and the talk so far, and says what comes next."""

    ask: Ask

    def reply(self, brief: Brief, talk: Sequence[str], opening: str = "") -> str:
        """See `Buyer.reply`; heard as one line."""
        said = self.ask(brief.line + "Start\n" + "".join(text.rstrip("\n") + "\n" for text in talk) + opening)
        return " ".join(said[:LARGEST].split())
