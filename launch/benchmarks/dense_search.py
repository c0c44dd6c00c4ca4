"""`dense_search`: recall of embeddings and of tantivy beside BM25. Generates a table of
docs/search.md.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.envs.page_index import PageIndex
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.prose import write_pages
from agentrl_jax.envs.search.questions import Question, draw_question
from agentrl_jax.envs.search.retrieved_pages import RetrievedPages, Retriever
from agentrl_jax.envs.search.tantivy_search import tantivy_search
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.models.dense_index import sentence_search
from agentrl_jax.storage.files import write_json

HEADS = ("retriever", "built, CPU s", "CPU ms a query", "look-ups", "questions")
# None: SQLite's FTS5.
RETRIEVERS: dict[str, Retriever | None] = {
    "bm25": None,
    "tantivy": tantivy_search,
    "dense": sentence_search,
}
TOP_K = 3


def recall(
    pages: PageIndex | RetrievedPages, queries: Sequence[str], questions: Sequence[Question]
) -> float:
    """The fraction of queries whose needed page is among the first results."""
    hits = [
        bool({page.title for page in pages.search(query, TOP_K)} & {*question.hops[0].titles})
        for query, question in zip(queries, questions, strict=True)
    ]
    return float(np.mean(hits))


def measure(pages: int, num_queries: int, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Retrievers on questions of one hop, as look-ups of the expert and as they are."""
    world, rng = make_world(0, pages), np.random.default_rng(0)
    texts = write_pages(world)
    questions = [draw_question(rng, world, ("chain",), (1,), "train") for _ in range(num_queries)]
    results = {}
    for name in names:
        began = time.process_time()
        retriever = RETRIEVERS[name]
        index = RetrievedPages(texts, retriever) if retriever else PageIndex(texts)
        built = time.process_time()
        look_ups = recall(index, [question.hops[0].queries[0] for question in questions], questions)
        as_text = recall(index, [question.text for question in questions], questions)
        spent = time.process_time() - built
        results[name] = {
            "build_seconds": built - began,
            "query_ms": spent / (2 * num_queries) * 1e3,
            "look_ups": look_ups,
            "questions": as_text,
        }
    return results


@dataclass
class DenseSearch:
    """Recall among the first three pages of BM25, of tantivy and of a sentence encoder; results are
    cached.
    """

    pages: int = option(2000, "Of the encyclopedia.", 100)
    queries: int = option(300, "Questions.", 1)
    folder: str = option("benchmarks/results/search_index", "The folder of the cached results.")
    page: str = option("docs/search.md", "The page with the table; empty: none.")
    print_only: bool = option(False, "Measure nothing.")

    def prepare(self) -> None:
        """Uses this process's devices as they are."""

    def run(self) -> dict[str, Any]:
        """Measure what is not cached, update the page, print the table and report."""
        path = Path(self.folder) / f"dense-{self.pages}-{self.queries}.json"
        results = json.loads(path.read_text()) if path.exists() else {}
        missing = [name for name in RETRIEVERS if name not in results]
        if missing and not self.print_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            results |= measure(self.pages, self.queries, missing)
            write_json(path, results)
        table = self.table(results)
        if self.page:
            doc_tables.replace_section(Path(self.page), "dense", table)
        print(table)
        return {"bench": "dense_search", "retrievers": results}

    def table(self, results: dict[str, dict[str, float]]) -> str:
        """A row for each retriever."""
        rows = (
            table_row(
                name,
                f"{x['build_seconds']:.1f}",
                f"{x['query_ms']:.1f}",
                f"{100 * x['look_ups']:.0f} %",
                f"{100 * x['questions']:.0f} %",
            )
            for name, x in ((name, results[name]) for name in RETRIEVERS if name in results)
        )
        return "\n".join([*table_header(*HEADS), *rows])
