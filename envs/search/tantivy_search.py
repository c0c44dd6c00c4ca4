"""`tantivy_search`: a search of texts by BM25 in tantivy, a library in Rust."""

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

from agentrl_jax.envs.page_index import query_words
from agentrl_jax.errors import UserError

_WORDS = r"[\p{L}\p{N}]+"
_HEAP = 2 * 10**9  # bytes that the writer may fill; of as much as it needs it makes one segment


def _library() -> ModuleType:
    """The package. Raises UserError where it is not installed."""
    try:
        return importlib.import_module("tantivy")
    except ModuleNotFoundError as error:
        raise UserError(
            "tantivy_search needs the package tantivy: pip install 'agentrl_jax[tantivy]'"
        ) from error


def tantivy_search(texts: Sequence[str]) -> Callable[[str, int], list[tuple[int, float]]]:
    """A search of texts by any of a query's words.

    score = sum over words of ln(1 + (N - n + .5) / (n + .5)) f (k1 + 1) / (f + k1 (1 - b +
    b l / L)), with the symbols of `PageIndex`; l is rounded to one of 256 lengths. A query is never
    an expression of tantivy's language. The index is in memory.

    A `Retriever` of `SearchQuestions`.

    Raises:
        UserError: the package tantivy is not installed.
    """
    tantivy = _library()
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", fast=True)
    builder.add_text_field("text", tokenizer_name="words", index_option="freq")
    schema = builder.build()
    index = tantivy.Index(schema)
    words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(_WORDS))
    index.register_tokenizer("words", words.filter(tantivy.Filter.lowercase()).build())
    writer = index.writer(_HEAP, 1)
    for row, text in enumerate(texts):
        document = tantivy.Document()
        document.add_unsigned("row", row)
        document.add_text("text", text.encode(errors="replace").decode())
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str, k: int) -> list[tuple[int, float]]:
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", word, "freq"))
            for word in query_words(query)
        ]
        if not terms:
            return []
        hits = searcher.search(tantivy.Query.boolean_query(terms), k, count=False).hits
        rows = searcher.fast_field_values("row", [address for _, address in hits])
        return [(row, score) for row, (score, _) in zip(rows, hits, strict=True)]

    return search
