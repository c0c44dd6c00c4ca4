"""`RetrievedPages`: pages that a function outside of the environments searches, such as by
embeddings, in place of BM25.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from agentrl_jax.envs.page_index import MAX_QUERY, Page, PageIndex
from agentrl_jax.envs.search.files import file_index, file_pages
from agentrl_jax.envs.search.index import generated_index, generated_pages
from agentrl_jax.errors import UserError

# (query, number of results) -> rows and scores, the best first
TextSearch = Callable[[str, int], Sequence[tuple[int, float]]]
Retriever = Callable[[Sequence[str]], TextSearch]  # from texts to their search


class RetrievedPages:
    """Pages in memory, searched by a retriever of their titles and texts.

    Args:
        pages: with different titles.
        retriever: makes the search of "title. text" of each page.
    """

    def __init__(self, pages: Sequence[Page], retriever: Retriever) -> None:
        self.pages = tuple(pages)
        self._by_title = {page.title: page for page in self.pages}
        self._search = retriever([f"{page.title}. {page.text}" for page in self.pages])

    def search(self, query: str, top_k: int) -> tuple[Page, ...]:
        """The first `top_k` pages; none for an empty query."""
        return tuple(page for page, _ in self.scored(query, top_k))

    def scored(self, query: str, top_k: int) -> list[tuple[Page, float]]:
        """The pages of `search` with their scores."""
        text = query[:MAX_QUERY].encode("utf-8", "ignore").decode().strip()
        return (
            [(self.pages[row], score) for row, score in self._search(text, top_k)] if text else []
        )

    def page(self, title: str) -> Page | None:
        """The page of exactly this title."""
        return self._by_title.get(title.strip())


def load_retriever(name: str) -> Retriever:
    """The function of a name like "package.module:function".

    Raises:
        UserError: there is none, or a package that it needs is missing.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"retriever must name a function as module:function: {error}") from error


@lru_cache(maxsize=2)
def generated_retrieved_pages(
    seed: int, pages: int, retriever: str, fillers: int = 3
) -> RetrievedPages:
    """The pages of a generated encyclopedia, prepared once a process."""
    return RetrievedPages(generated_pages(seed, pages, fillers), load_retriever(retriever))


@lru_cache(maxsize=2)
def file_retrieved_pages(folder: str, questions: str, retriever: str) -> RetrievedPages:
    """The pages of files, prepared once a process."""
    return RetrievedPages(file_pages(folder, questions), load_retriever(retriever))


def searched_pages(
    generated: tuple[int, int, int], retriever: str = "", folder: str = "", questions: str = ""
) -> PageIndex | RetrievedPages:
    """The pages that an environment searches, shared by all of the process.

    Args:
        generated: seed, pages and fillers of the encyclopedia, if no files are given.
        retriever: names a function; empty: BM25.
        folder, questions: files in place of the encyclopedia.
    """
    if questions and retriever:
        return file_retrieved_pages(folder, questions, retriever)
    if questions:
        return file_index(folder, questions)
    seed, pages, fillers = generated
    if retriever:
        return generated_retrieved_pages(seed, pages, retriever, fillers)
    return generated_index(seed, pages, fillers)
