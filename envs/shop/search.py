"""`Index`: which products a few words find, by BM25."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.shop.catalogue import Product, catalogue

K1, B = 0.9, 0.4
MOST = 50  # products that a search finds


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


@dataclass(frozen=True)
class Index:
    """For each word the numbers of the products that hold it, and what it adds to their score.

    score(product, query) = sum over the query's words of idf * f * (K1 + 1) / (f + K1 * (1 - B + B * length / mean length)),
    idf = log(1 + (N - n + .5) / (n + .5)), with f how often the product's text holds the word and n how many of N texts do.
    """

    size: int
    postings: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def find(self, query: str) -> tuple[int, ...]:
        """The numbers of at most 50 products, best first, in catalogue order on a tie; each holds a word of the query."""
        scores = np.zeros(self.size)
        for word in dict.fromkeys(words_of(query)):
            if word in self.postings:
                numbers, weights = self.postings[word]
                scores[numbers] += weights
        best = np.argsort(-scores, kind="stable")[:MOST]
        return tuple(int(number) for number in best if scores[number] > 0)


def index_of(texts: Sequence[str]) -> Index:
    counts: dict[str, dict[int, int]] = {}
    lengths = np.zeros(len(texts))
    for number, text in enumerate(texts):
        words = words_of(text)
        lengths[number] = len(words)
        for word in words:
            held = counts.setdefault(word, {})
            held[number] = held.get(number, 0) + 1
    postings = {}
    for word, held in counts.items():
        numbers, f = np.array([*held]), np.array([*held.values()])
        idf = np.log(1 + (len(texts) - len(held) + 0.5) / (len(held) + 0.5))
        postings[word] = numbers, idf * f * (K1 + 1) / (f + K1 * (1 - B + B * lengths[numbers] / lengths.mean()))
    return Index(len(texts), postings)


def document(product: Product) -> str:
    """What of a product can be found."""
    return " ".join([product.text, *product.category, *(value for values in product.options.values() for value in values)])


@lru_cache(maxsize=4)
def index(seed: int, count: int) -> Index:
    return index_of([document(product) for product in catalogue(seed, count)])
