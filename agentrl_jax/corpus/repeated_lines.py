"""`RepeatedLines`: texts that only a model that copies can predict."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.corpus.words import choice, integer


@dataclass(frozen=True)
class RepeatedLines:
    """Lines of random tokens that are not special, each two or three times: the task of induction
    heads.

    Args:
        tokenizer: makes the tokenizer, from no texts, whose tokens they are.
        documents: how many.
        tokens: of a line, at least and at most.
    """

    tokenizer: Callable[[Sequence[str]], Any]
    documents: int = 20_000
    tokens: tuple[int, int] = (6, 39)

    def __call__(self) -> Iterator[str]:
        tokenizer = self.tokenizer(())
        ordinary = ordinary_tokens(tokenizer)
        rng = np.random.default_rng(self.documents)
        for _ in range(self.documents):
            line = tokenizer.decode(rng.choice(ordinary, integer(rng, *self.tokens)).tolist())
            yield choice(rng, ("\n", " ", ". ")).join([line] * integer(rng, 2, 3))


def ordinary_tokens(tokenizer: Any) -> list[int]:
    """The ids of a tokenizer of transformers that are not those of added or special tokens."""
    return sorted({*range(len(tokenizer))} - {*tokenizer.added_tokens_decoder})
