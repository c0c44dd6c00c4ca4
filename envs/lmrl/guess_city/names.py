"""Whether a text names a city or its country."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from agentrl_jax.envs.lmrl.guess_city.table import City, cities
from agentrl_jax.envs.lmrl.phrases import words

REFUSAL = "I can't answer that question."


def plain(text: str) -> list[str]:
    """The words of a text without accents and possessives; letters that stand alone are put together: "P a r i s" is one word."""
    bare = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    found, spelled = [], ""
    for word in [*(word.removesuffix("'s") for word in words(bare)), ""]:
        if len(word) == 1:
            spelled += word
            continue
        found += [spelled, word] if spelled else [word]
        spelled = ""
    return found[:-1]


def _holds(tokens: Sequence[str], name: Sequence[str]) -> bool:
    return any(list(tokens[place : place + len(name)]) == list(name) for place, word in enumerate(tokens) if word == name[0])


def names_one(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs in the text as a sequence of whole words."""
    tokens = plain(text)
    return any(_holds(tokens, plain(name)) for name in names)


def kept_secret(city: City, reply: str) -> str:
    """ArCHer's rule: a reply that names the city (here, or its country) is withheld."""
    return REFUSAL if names_one(reply, (*city.names, *city.countries)) else reply


@cache
def rows() -> dict[str, int]:
    """The row of each city by each of its names, and as LMRL-Gym lists it ("paris,france"), in lower case."""
    return {name.lower(): row for row, city in enumerate(cities()) for name in (*city.names, city.word)}
