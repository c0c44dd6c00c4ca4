"""Pairs of names and questions about them, on which a model learns to recall what it has read."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agentrl_jax.documents import ChatDocument, Document
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.reader import reading_conversation
from agentrl_jax.envs.search.reading_documents import EncyclopediaDocuments

_SEPARATORS = ": ", " - ", " is ", " has "


@dataclass(frozen=True)
class PairDocuments(EncyclopediaDocuments[Document]):
    """Two to six pairs of names of a generated encyclopedia, which the text does not explain; half
    of the documents repeat pairs as lines, and half are chats that ask for the second name by the
    first.

    Args:
        numbers: in how many pairs of a hundred a number of three or four digits is the second.
    """

    first_world: int = 20_000
    pages: int = 300
    numbers: int = 0

    def _about_world(self, seed: int) -> Iterator[Document]:
        titles = np.array(make_world(seed, self.pages).titles)
        rng = np.random.default_rng((seed, 2))
        while True:
            count = int(rng.integers(2, 7))
            names = rng.choice(titles, 2 * count, replace=False).tolist()
            seconds = names[count:]
            if self.numbers:
                is_number = rng.integers(100, size=count) < self.numbers
                numbers = rng.integers(100, 2100, size=count)
                seconds = np.where(is_number, numbers.astype(str), seconds).tolist()
            pairs = [*zip(names[:count], seconds)]
            yield (_as_lines if rng.integers(2) else _as_chat)(rng, pairs)


def _lines(rng: np.random.Generator, pairs: list[tuple[str, str]]) -> list[str]:
    separator = _SEPARATORS[rng.integers(len(_SEPARATORS))]
    return [separator.join(pair) for pair in pairs]


def _as_lines(rng: np.random.Generator, pairs: list[tuple[str, str]]) -> str:
    lines = _lines(rng, pairs)
    return "\n".join([*lines, *rng.choice(lines, 2 * len(lines))])


def _as_chat(rng: np.random.Generator, pairs: list[tuple[str, str]]) -> ChatDocument:
    documents = _lines(rng, pairs)
    order = rng.permutation(len(pairs))
    turns = [(f"{pairs[index][0]}?", pairs[index][1]) for index in order]
    return reading_conversation(documents, turns)
