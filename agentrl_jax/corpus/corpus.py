"""`Corpus`: the documents that a model is pretrained on, and those that are held out."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agentrl_jax.corpus.domains import DOMAINS
from agentrl_jax.corpus.exercise import (
    Exercise,
    sample_held_out_exercise,
    sample_training_exercise,
)
from agentrl_jax.corpus.words import integer
from agentrl_jax.documents import Document, document_text

TRAINING, HELD_OUT = 0, 2  # the first part of a seed
SEPARATOR = "\n\n"  # between the exercises of a text


@dataclass(frozen=True)
class Corpus:
    """So many training documents; any of them depends on its number alone.

    The seeds of training documents and of held-out exercises differ, and no training document
    holds the answer to a prompt that `is_held_out`.
    """

    documents: int = 100_000

    def __call__(self) -> Iterator[Document]:
        for number in range(self.documents):
            yield training_document(number)


def training_document(number: int) -> Document:
    """The document of a number, of a domain that is drawn by its share."""
    rng = np.random.default_rng((TRAINING, number))
    names = list(DOMAINS)
    shares = np.array([DOMAINS[name].percent for name in names])
    share = DOMAINS[names[rng.choice(len(names), p=shares / shares.sum())]]
    first = sample_training_exercise(share.domain, rng).document
    if not isinstance(first, str):
        return first
    texts = [first]
    for _ in range(integer(rng, 1, share.most) - 1):
        more = sample_training_exercise(share.domain, rng).document
        texts += [more] if isinstance(more, str) else []
    return SEPARATOR.join(texts)


def held_out_exercises(name: str, count: int) -> list[Exercise]:
    """Exercises of a domain with prompts that differ and that no training document has."""
    by_prompt: dict[str, Exercise] = {}
    rng = np.random.default_rng((HELD_OUT, list(DOMAINS).index(name)))
    while len(by_prompt) < count:
        exercise = sample_held_out_exercise(DOMAINS[name].domain, rng)
        by_prompt.setdefault(document_text(exercise.prompt), exercise)
    return list(by_prompt.values())
