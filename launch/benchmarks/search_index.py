"""`search_index`: the index of generated encyclopedias of several sizes. Generates a table of
docs/search.md.
"""

import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.envs.options import checked_choice
from agentrl_jax.envs.page_index import Page, PageIndex, query_words
from agentrl_jax.envs.search.facts import make_world
from agentrl_jax.envs.search.prose import write_pages
from agentrl_jax.envs.search.questions import KINDS, Hop, draw_question
from agentrl_jax.envs.search.retrieved_pages import RetrievedPages
from agentrl_jax.envs.search.tantivy_search import tantivy_search
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage.files import write_json

HEADS = (
    "index",
    "pages",
    "written, CPU s",
    "indexed, CPU s",
    "file, MB",
    "memory, MB",
    "CPU ms a query",
    "needed page in the first 3",
    "equal to BM25",
)
INDICES = ("fts5", "tantivy")
TOP_K = 3
REFERENCE_PAGES = 100_000  # of the largest encyclopedia that is also searched by `plain_bm25`


@dataclass(frozen=True)
class IndexResult:
    """What one size costs.

    Args:
        write_seconds, index_seconds: of the processor, for pages and index.
        file_mb: of the index; None: it is in memory.
        memory_mb: largest resident memory of the process, pages included.
        query_ms: of the processor, the mean of all queries.
        recall: the fraction of queries whose needed page is among the first results.
        agreement: the fraction of queries whose scores are those of FTS5's formula; None: the
            encyclopedia is too large for it, or the index has another one.
    """

    write_seconds: float
    index_seconds: float
    file_mb: float | None
    memory_mb: float
    query_ms: float
    recall: float
    agreement: float | None


def plain_bm25(
    pages: Sequence[Page], queries: Sequence[Sequence[str]], top_k: int
) -> list[np.ndarray]:
    """The highest scores of each query by BM25's formula (k1 1.2, b .75) over lists of pages by
    word, at most `top_k` above 0.

    Words on more than half of the pages weigh nothing.
    """
    query_vocabulary = {word for query in queries for word in query}
    postings = dict[str, dict[int, int]]()
    lengths = np.zeros(len(pages))
    for i, page in enumerate(pages):
        words = query_text_words(f"{page.title} {page.text}")
        lengths[i] = len(words)
        for word in words:
            if word in query_vocabulary:
                counts = postings.setdefault(word, {})
                counts[i] = counts.get(i, 0) + 1
    norm = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
    results = []
    for query in queries:
        scores = np.zeros(len(pages))
        for word in query:
            counts = postings.get(word, {})
            if not 0 < len(counts) <= len(pages) / 2:
                continue
            rows = np.fromiter(counts, np.int64, len(counts))
            f = np.fromiter(counts.values(), np.float64, len(counts))
            idf = np.log((len(pages) - len(counts) + 0.5) / (len(counts) + 0.5))
            scores[rows] += max(idf, 1e-6) * f * 2.2 / (f + norm[rows])
        best = np.sort(scores)[::-1][:top_k]
        results.append(best[best > 0])
    return results


def query_text_words(text: str) -> list[str]:
    """All words of a page's text, in lower case, repetitions included."""
    return "".join(c if c.isalnum() else " " for c in text.lower()).split()


def measure(pages: int, num_queries: int, kind: str = "fts5") -> IndexResult:
    """Write, index and search an encyclopedia, in a process of its own."""
    began = time.process_time()
    world = make_world(0, pages)
    texts = write_pages(world)
    written = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.sqlite"
        is_stored = kind == "fts5"
        index = PageIndex(texts, str(path)) if is_stored else RetrievedPages(texts, tantivy_search)
        indexed = time.process_time()
        file_mb = path.stat().st_size / 1e6 if is_stored else None
        hops, rng = list[Hop](), np.random.default_rng(0)
        while len(hops) < num_queries:
            hops += draw_question(rng, world, KINDS, range(1, 5), "train").hops
        hops = hops[:num_queries]
        start = time.process_time()
        results = [index.scored(hop.queries[0], TOP_K) for hop in hops]
        query_ms = (time.process_time() - start) / num_queries * 1e3
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    agreement = None
    if kind == "fts5" and pages <= REFERENCE_PAGES:
        best = plain_bm25(texts, [query_words(hop.queries[0]) for hop in hops], TOP_K)
        pairs = zip(best, ([score for _, score in row] for row in results))
        agreement = float(
            np.mean([len(a) == len(b) and np.allclose(a, b, rtol=1e-9) for a, b in pairs])
        )
    titles_of = ({page.title for page, _ in row} for row in results)
    recall = float(np.mean([bool(titles & {*hop.titles}) for titles, hop in zip(titles_of, hops)]))
    times = written - began, indexed - written
    return IndexResult(*times, file_mb, memory_mb, query_ms, recall, agreement)


@dataclass
class SearchIndex:
    """Time, size and memory of indices by their pages; a size's results are cached in a file."""

    index: tuple[str, ...] = option(INDICES, "fts5 or tantivy; may be repeated.")
    pages: tuple[str, ...] = option(("20000", "100000", "1000000"), "Sizes; may be repeated.")
    queries: int = option(1000, "Searches of each size.", 1)
    folder: str = option("benchmarks/results/search_index", "The folder of the cached results.")
    page: str = option("docs/search.md", "The page with the table; empty: none.")
    print_only: bool = option(False, "Measure nothing.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure the sizes that are missing, update the page after each, print and report."""
        for kind in self.index:
            checked_choice("index", kind, INDICES)
            for size in self._sizes:
                if not self._path(kind, size).exists() and not self.print_only:
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        result = pool.apply(measure, (size, self.queries, kind))
                    Path(self.folder).mkdir(parents=True, exist_ok=True)
                    content = {"queries": self.queries, **asdict(result)}
                    write_json(self._path(kind, size), content)
                if self.page:
                    doc_tables.replace_section(Path(self.page), "index", self.table())
        print(self.table())
        results: dict[str, dict[int, Any]] = {kind: {} for kind in self.index}
        for kind, size, path in self._cached():
            results[kind][size] = json.loads(path.read_text())
        return {"bench": "search_index", "sizes": results}

    @property
    def _sizes(self) -> list[int]:
        return sorted(map(int, self.pages))

    def _path(self, kind: str, size: int) -> Path:
        return Path(self.folder) / f"{kind}-{size}.json"

    def _cached(self) -> list[tuple[str, int, Path]]:
        places = [
            (kind, size, self._path(kind, size)) for kind in self.index for size in self._sizes
        ]
        return [place for place in places if place[2].exists()]

    def table(self) -> str:
        """A row for each index and size with results."""
        rows = []
        for kind, size, path in self._cached():
            x = json.loads(path.read_text())
            agreement = "-" if x["agreement"] is None else f"{100 * x['agreement']:.1f} %"
            rows.append(
                table_row(
                    kind,
                    f"{size:,}",
                    f"{x['write_seconds']:.1f}",
                    f"{x['index_seconds']:.1f}",
                    "-" if x["file_mb"] is None else f"{x['file_mb']:.0f}",
                    f"{x['memory_mb']:.0f}",
                    f"{x['query_ms']:.2f}",
                    f"{100 * x['recall']:.1f} %",
                    agreement,
                )
            )
        return "\n".join([*table_header(*HEADS), *rows])
