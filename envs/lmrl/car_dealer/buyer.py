"""Buyers: the scripted one and a language model."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

from agentrl_jax.envs.lmrl.car_dealer.buyer_profile import (
    BRANDS,
    CAR_TYPES,
    FEATURES,
    PERSONALITIES,
    BuyerProfile,
)
from agentrl_jax.envs.lmrl.car_dealer.decision import Decision
from agentrl_jax.envs.lmrl.oracles import CompletionFunction
from agentrl_jax.envs.lmrl.phrases import MAX_TEXT_LENGTH, PhraseMatcher, split_words, stem

# "$48,000", "48000", "$48k", "48.5 thousand"; longer numbers do not match.
PRICE_PATTERN = re.compile(
    r"(?<![\d.,])(\$ ?)?(\d[\d,]{0,9})(\.\d{1,2})?(?![\d,.]*\d)( ?k\b| thousand\b)?",
    re.IGNORECASE | re.ASCII,
)
AGREEMENT_WORDS = frozenset(["deal", "accept", "accepted", "agree", "agreed", "sold"])
REFUSAL_WORDS = frozenset(
    ["not", "no", "never", "can't", "cannot", "don't", "won't", "couldn't", "if"]
)
MAX_REPLY_LENGTH = 1000  # characters of a language model's reply that are used


@runtime_checkable
class Buyer(Protocol):
    """A buyer's reply, a function of the profile and the texts so far (seller first).

    A text with a decision line ends the dialogue. With `opening` the text begins with it, and only
    its continuation is returned.
    """

    def reply(self, profile: BuyerProfile, dialogue: Sequence[str], opening: str = "") -> str: ...


@cache
def _attribute_phrases() -> PhraseMatcher[str]:
    return PhraseMatcher(
        ([stem(word) for word in split_words(name)], name)
        for name in (*BRANDS, *CAR_TYPES, *FEATURES)
    )


def mentioned_attributes(text: str) -> set[str]:
    """The brands, types and features that a text names."""
    return set(
        _attribute_phrases().all_matches(
            [stem(word) for word in split_words(text[:MAX_TEXT_LENGTH])]
        )
    )


def last_price(text: str) -> int | None:
    """The last price in the text: a number with "$" or "k", or one of at least 1,000; or None."""
    price = None
    for dollars, digits, cents, thousands in PRICE_PATTERN.findall(text[:MAX_TEXT_LENGTH]):
        number = float(digits.replace(",", "") + cents) * (1000 if thousands else 1)
        if number >= 1 and (dollars or thousands or number >= 1000):
            price = int(number)
    return price


def is_agreement(text: str) -> bool:
    """Whether a text accepts an offer: a word of agreement, no price, negation or question."""
    words = set(split_words(text[:MAX_TEXT_LENGTH]))
    return (
        bool(words & AGREEMENT_WORDS)
        and not words & REFUSAL_WORDS
        and last_price(text) is None
        and "?" not in text
    )


def count_named_features(profile: BuyerProfile, seller_texts: Sequence[str]) -> int:
    """How many of the wished features the seller has named."""
    return len(
        set().union(*(mentioned_attributes(text) for text in seller_texts)) & set(profile.features)
    )


def seller_price(profile: BuyerProfile, seller_texts: Sequence[str]) -> int | None:
    """The seller's price for the buyer's car, or None.

    Where the seller agrees to the buyer's last offer, it is that offer.
    """
    text, named = seller_texts[-1], mentioned_attributes(seller_texts[-1])
    other_cars = named & {*BRANDS, *CAR_TYPES} - {profile.brand, profile.type}
    if other_cars and not named & {profile.brand, profile.type}:
        return None
    if len(seller_texts) > 1 and is_agreement(text):
        return profile.counter_offer(
            len(seller_texts) - 1, count_named_features(profile, seller_texts[:-1])
        )
    return last_price(text)


@dataclass(frozen=True)
class ScriptedBuyer:
    """Bargains by the profile's personality, and reveals neither budget nor reservation price.

    A price of at most the next counter-offer is accepted. In the decision turn a price up to the
    reservation price is accepted too; without one the buyer leaves.
    """

    def reply(self, profile: BuyerProfile, dialogue: Sequence[str], opening: str = "") -> str:
        """See `Buyer.reply`."""
        seller_texts, personality = dialogue[::2], PERSONALITIES[profile.personality]
        turn, features_named = len(seller_texts), count_named_features(profile, seller_texts)
        asking_price, counter_offer = (
            seller_price(profile, seller_texts),
            profile.counter_offer(turn, features_named),
        )
        last = turn >= personality.decision_turn or bool(opening)
        if asking_price is not None and asking_price <= (
            profile.reservation_price(features_named) if last else counter_offer
        ):
            return "You have a deal. " * (not opening) + _without_opening(
                opening, Decision(True, profile.msrp, asking_price).line
            )
        if last:
            return "I will look somewhere else. " * (not opening) + _without_opening(
                opening, Decision(False, profile.msrp, 0).line
            )
        return " ".join(
            [
                *([personality.catchphrase] if turn == 1 or turn % 3 == 0 else []),
                _bargaining_text(profile, seller_texts, asking_price, counter_offer),
            ]
        )


def _without_opening(opening: str, line: str) -> str:
    """The decision line without its beginning, where that is given already."""
    return line.split("Decision=", 1)[1] if opening.endswith("Decision=") else line


def _bargaining_text(
    profile: BuyerProfile, seller_texts: Sequence[str], asking_price: int | None, counter_offer: int
) -> str:
    turn, named = len(seller_texts), mentioned_attributes(seller_texts[-1])
    pick = zlib.crc32(f"{profile.wording_seed} {turn}".encode())
    if turn == 1 and asking_price is None:
        wish = profile.features[pick % len(profile.features)]
        return (
            f"I came for the {profile.brand} {profile.type} listed at ${profile.msrp:,}. With "
            f"{wish}, please. What can you do for me?"
        )
    if named & {*BRANDS, *CAR_TYPES} - {profile.brand, profile.type} and not named & {
        profile.brand,
        profile.type,
    }:
        return f"I only want the {profile.brand} {profile.type} listed at ${profile.msrp:,}."
    if asking_price is None:
        missing = [
            feature
            for feature in profile.features
            if feature not in set().union(*(mentioned_attributes(text) for text in seller_texts))
        ]
        return (
            f"Does it have {missing[0]}? And what is your price?"
            if missing
            else f"What is your price? I could pay ${counter_offer:,}."
        )
    choices = (
        f"${asking_price:,} is too much for me. I offer ${counter_offer:,}.",
        f"I can do ${counter_offer:,}.",
        f"How about ${counter_offer:,}?",
    )
    return choices[pick % len(choices)]


@dataclass(frozen=True)
class LLMBuyer:
    """A language model as the buyer: it continues LMRL-Gym's conditions and the dialogue."""

    complete: CompletionFunction

    def reply(self, profile: BuyerProfile, dialogue: Sequence[str], opening: str = "") -> str:
        """See `Buyer.reply`; the reply is joined to one line."""
        reply = self.complete(
            profile.prompt_line
            + "Start\n"
            + "".join(text.rstrip("\n") + "\n" for text in dialogue)
            + opening
        )
        return " ".join(reply[:MAX_REPLY_LENGTH].split())
