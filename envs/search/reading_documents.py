"""Conversations about pages of generated encyclopedias, on which a model learns to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.documents import ChatDocument
from agentrl_jax.envs.page_index import Page
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.prose import write_pages
from agentrl_jax.envs.search.questions import Question, draw_question
from agentrl_jax.envs.search.reader import UNKNOWN, page_text, reading_prompt
from agentrl_jax.messages import Message, assistant

DOCUMENTS_PER_WORLD = 50


@dataclass(frozen=True)
class ReadingDocuments:
    """Pages and questions about them with their answers, one question a turn; what the pages do not
    tell is "unknown".

    Every fiftieth document has another encyclopedia, so that names can only be read. Questions are
    chains of the split "train".

    Args:
        documents: how many.
        first_world: the seed of the first encyclopedia; those of an experiment should not be among
            the `documents` / 50 from here on.
        pages: of an encyclopedia.
        questions: turns of a conversation.
        hops: numbers of hops of a question.
        noise: at most so many further pages are shown.
        unknown: how many questions in a hundred are about other pages.
    """

    documents: int = 20_000
    first_world: int = 1_000
    pages: int = 500
    questions: int = 4
    hops: tuple[int, ...] = (1, 1, 2)
    noise: int = 1
    unknown: int = 15

    def __call__(self) -> Iterator[ChatDocument]:
        for number in range(self.documents):
            if number % DOCUMENTS_PER_WORLD == 0:
                seed = self.first_world + number // DOCUMENTS_PER_WORLD
                world = make_world(seed, self.pages)
                by_title = {page.title: page for page in write_pages(world, 0)}
                rng = np.random.default_rng((seed, 1))
            questions = [
                draw_question(rng, world, ["chain"], self.hops, "train")
                for _ in range(self.questions)
            ]
            yield self._document(rng, by_title, questions)

    def _document(
        self, rng: np.random.Generator, by_title: dict[str, Page], questions: Sequence[Question]
    ) -> ChatDocument:
        is_unknown = rng.integers(100, size=len(questions)) < self.unknown
        titles = {
            title
            for question, is_other in zip(questions, is_unknown)
            if not is_other
            for title in titles_of(question)
        }
        titles |= set(rng.choice([*by_title], rng.integers(self.noise + 1), replace=False).tolist())
        order = rng.permutation(sorted(titles)).tolist()
        documents = [page_text(by_title[title]) for title in order]
        messages: list[Message] = []
        for question in questions:
            known = set(titles_of(question)) <= titles
            prompt = reading_prompt(question.text, documents if not messages else ())
            messages += [*prompt, assistant(question.answers[0] if known else UNKNOWN)]
        return ChatDocument(tuple(messages))


def titles_of(question: Question) -> tuple[str, ...]:
    """The pages that its hops need."""
    return tuple(title for hop in question.hops for title in hop.titles)
