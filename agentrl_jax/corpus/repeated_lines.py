"""`RepeatedLines`: texts that only a model that copies can predict."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.corpus.words import choice, integer
from agentrl_jax.models.tokenizers import FolderTokenizer


@dataclass(frozen=True)
class RepeatedLines:
    """Lines of random tokens, each two or three times: an induction head's task.

    Args:
        tokenizer: whose tokens.
        documents: how many.
        tokens: of a line, at least and at most.
    """

    tokenizer: str
    documents: int = 20_000
    tokens: tuple[int, int] = (6, 39)

    def __call__(self) -> Iterator[str]:
        tokenizer: Any = FolderTokenizer(self.tokenizer)(())
        rng = np.random.default_rng(self.documents)
        for _ in range(self.documents):
            line = tokenizer.decode(random_tokens(tokenizer, rng, integer(rng, *self.tokens)))
            yield choice(rng, ("\n", " ", ". ")).join([line] * integer(rng, 2, 3))


def random_tokens(tokenizer: Any, rng: np.random.Generator, count: int) -> list[int]:
    """So many tokens that are not special."""
    ordinary = sorted({*range(len(tokenizer))} - {*tokenizer.added_tokens_decoder})
    return rng.choice(ordinary, count).tolist()
