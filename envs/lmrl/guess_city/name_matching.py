"""Whether a text names a city or its country."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from agentrl_jax.envs.lmrl.guess_city.knowledge import City, cities
from agentrl_jax.envs.lmrl.phrases import split_words

REFUSAL_TEXT = "I can't answer that question."


def plain_words(text: str) -> list[str]:
    """The words of a text without accents and possessives.

    Single letters in a row are joined: "P a r i s" is one word.
    """
    bare = "".join(
        letter
        for letter in unicodedata.normalize("NFKD", text)
        if not unicodedata.combining(letter)
    )
    words, spelled = [], ""
    for word in [*(word.removesuffix("'s") for word in split_words(bare)), ""]:
        if len(word) == 1:
            spelled += word
            continue
        words += [spelled, word] if spelled else [word]
        spelled = ""
    return words[:-1]


def _contains(tokens: Sequence[str], name: Sequence[str]) -> bool:
    return any(
        list(tokens[start : start + len(name)]) == list(name)
        for start, word in enumerate(tokens)
        if word == name[0]
    )


def mentions_name(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs in the text as whole words."""
    tokens = plain_words(text)
    return any(_contains(tokens, plain_words(name)) for name in names)


def censor_reply(city: City, reply: str) -> str:
    """The reply, or a refusal where it names the city (ArCHer's rule) or its country."""
    return REFUSAL_TEXT if mentions_name(reply, (*city.names, *city.countries)) else reply


@cache
def row_by_name() -> dict[str, int]:
    """The row of each city by its names and its listed name ("paris,france"), in lower case."""
    return {
        name.lower(): row
        for row, city in enumerate(cities())
        for name in (*city.names, city.listed_name)
    }
