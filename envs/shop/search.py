"""`SearchIndex`: product search by BM25."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.shop.catalogue import Product, catalogue

K1, B = 0.9, 0.4
MAX_RESULTS = 50


def tokenize(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


@dataclass(frozen=True)
class SearchIndex:
    """For each word, the documents that hold it and its contribution to their scores.

    score(document, query) = sum over the query's words of idf f (K1 + 1) / (f + K1 (1 - B + B l /
    L)), with idf = log(1 + (N - n + .5) / (n + .5)), f the word's count in the document, l the
    document's length, L the mean length, and n of N documents holding the word.
    """

    num_documents: int
    postings: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def search(self, query: str) -> tuple[int, ...]:
        """Indices of at most 50 documents that hold a word of the query.

        They are sorted by score; ties keep the order of the catalogue.
        """
        scores = np.zeros(self.num_documents)
        for word in dict.fromkeys(tokenize(query)):
            if word in self.postings:
                numbers, weights = self.postings[word]
                scores[numbers] += weights
        best = np.argsort(-scores, kind="stable")[:MAX_RESULTS]
        return tuple(int(number) for number in best if scores[number] > 0)


def build_index(texts: Sequence[str]) -> SearchIndex:
    counts: dict[str, dict[int, int]] = {}
    lengths = np.zeros(len(texts))
    for number, text in enumerate(texts):
        words = tokenize(text)
        lengths[number] = len(words)
        for word in words:
            frequencies = counts.setdefault(word, {})
            frequencies[number] = frequencies.get(number, 0) + 1
    postings = {}
    for word, frequencies in counts.items():
        numbers, f = np.array([*frequencies]), np.array([*frequencies.values()])
        idf = np.log(1 + (len(texts) - len(frequencies) + 0.5) / (len(frequencies) + 0.5))
        postings[word] = (
            numbers,
            idf * f * (K1 + 1) / (f + K1 * (1 - B + B * lengths[numbers] / lengths.mean())),
        )
    return SearchIndex(len(texts), postings)


def searchable_text(product: Product) -> str:
    """The text of a product that the search covers."""
    return " ".join(
        [
            product.text,
            *product.category,
            *(value for values in product.options.values() for value in values),
        ]
    )


@lru_cache(maxsize=4)
def product_index(seed: int, count: int) -> SearchIndex:
    return build_index([searchable_text(product) for product in catalogue(seed, count)])
