"""Conversations about pages of generated encyclopedias, on which a model learns to read."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from agentrl_jax.documents import ChatDocument, Document
from agentrl_jax.envs.page_index import Page
from agentrl_jax.envs.search.facts import World, make_world
from agentrl_jax.envs.search.prose import write_pages
from agentrl_jax.envs.search.questions import Question, draw_question
from agentrl_jax.envs.search.reader import UNKNOWN, page_text, reading_conversation

T = TypeVar("T", bound=Document)

DOCUMENTS_PER_WORLD = 50
QUESTIONS_PER_PAGE = 10  # that are drawn


@dataclass(frozen=True)
class EncyclopediaDocuments(Generic[T]):
    """Documents about generated encyclopedias: every fiftieth has another one, so that names can
    only be read.

    Args:
        documents: how many.
        first_world: the seed of the first encyclopedia; those of an experiment should not be among
            the `documents` / 50 from here on.
        pages: of an encyclopedia.
    """

    documents: int = 20_000
    first_world: int = 1_000
    pages: int = 200

    def __call__(self) -> Iterator[T]:
        starts = range(0, self.documents, DOCUMENTS_PER_WORLD)
        for seed, start in enumerate(starts, self.first_world):
            count = min(DOCUMENTS_PER_WORLD, self.documents - start)
            yield from itertools.islice(self._about_world(seed), count)

    def _about_world(self, seed: int) -> Iterator[T]:
        """Endless documents about the encyclopedia of that seed."""
        raise NotImplementedError(f"{type(self).__name__} must define _about_world")


@dataclass(frozen=True)
class ReadingDocuments(EncyclopediaDocuments[ChatDocument]):
    """Pages and questions about them with their answers, one question a turn; what the pages do not
    tell is "unknown". Questions are chains of the split "train".

    Args:
        topics: the pages of so many questions are shown.
        noise: and at most so many others.
        questions: turns of a conversation, fewer where the pages answer fewer.
        hops: numbers of hops of a question.
        unknown: how many questions in a hundred are about pages that are not shown.
    """

    topics: int = 2
    noise: int = 1
    questions: int = 7
    hops: tuple[int, ...] = (1, 1, 2)
    unknown: int = 15

    def _about_world(self, seed: int) -> Iterator[ChatDocument]:
        world = make_world(seed, self.pages)
        by_title = {page.title: page for page in write_pages(world, 0)}
        rng = np.random.default_rng((seed, 1))
        pool = self._questions(rng, world)
        while True:
            yield self._document(rng, by_title, pool)

    def _questions(self, rng: np.random.Generator, world: World) -> list[Question]:
        """Most of the different questions about an encyclopedia."""
        count = QUESTIONS_PER_PAGE * self.pages
        questions = (draw_question(rng, world, ["chain"], self.hops, "train") for _ in range(count))
        return list({question.text: question for question in questions}.values())

    def _document(
        self, rng: np.random.Generator, by_title: dict[str, Page], pool: Sequence[Question]
    ) -> ChatDocument:
        topics = rng.integers(len(pool), size=self.topics)
        titles = {title for index in topics for title in titles_of(pool[index])}
        titles |= set(rng.choice([*by_title], rng.integers(self.noise + 1), replace=False).tolist())
        documents = [page_text(by_title[title]) for title in rng.permutation(sorted(titles))]
        # Questions that the pages answer, and others, both in a random order.
        answerable: list[Question] = []
        unanswerable: list[Question] = []
        for index in rng.permutation(len(pool)):
            is_answerable = titles.issuperset(titles_of(pool[index]))
            (answerable if is_answerable else unanswerable).append(pool[index])
        turns: list[tuple[str, str]] = []
        for is_unknown in rng.integers(100, size=self.questions) < self.unknown:
            remaining = unanswerable if is_unknown else answerable
            if remaining:
                question = remaining.pop()
                turns.append((question.text, UNKNOWN if is_unknown else question.answers[0]))
        return reading_conversation(documents, turns)


def titles_of(question: Question) -> tuple[str, ...]:
    """The pages that its hops need."""
    return tuple(title for hop in question.hops for title in hop.titles)
