"""The benchmarks of the search index: measures of a small one, cached results, tables."""

import json
from pathlib import Path

import pytest

from agentrl_jax.envs.page_index import Page, PageIndex
from agentrl_jax.envs.search.questions import Hop, Question
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.dense_search import DenseSearch, recall
from agentrl_jax.launch.benchmarks.search_index import SearchIndex, measure


def test_the_index_of_a_small_encyclopedia():
    result = measure(300, 40)
    assert result.agreement == 1.0 and 0.5 < result.recall <= 1.0
    assert result.file_mb is not None and 0 < result.file_mb < 10
    assert result.query_ms > 0 and result.memory_mb > 10


def test_cached_sizes_are_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cached = {
        "queries": 5,
        "write_seconds": 1.0,
        "index_seconds": 2.0,
        "file_mb": 30.4,
        "memory_mb": 400.0,
        "query_ms": 5.0,
        "recall": 0.875,
        "agreement": None,
    }
    (tmp_path / "fts5-1000.json").write_text(json.dumps(cached))
    report = SearchIndex(index=("fts5",), pages=("1000",), folder=str(tmp_path), page="").run()
    assert report["sizes"] == {"fts5": {1000: cached}}
    assert "| fts5 | 1,000 | 1.0 | 2.0 | 30 | 400 | 5.00 | 87.5 % | - |" in capsys.readouterr().out
    assert SearchIndex(pages=("9",), folder=str(tmp_path), page="", print_only=True).run() == {
        "bench": "search_index",
        "sizes": {"fts5": {}, "tantivy": {}},
    }


def test_an_unknown_index_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="fts5"):
        SearchIndex(index=("lucene",), folder=str(tmp_path), page="").run()


def test_an_index_in_a_file_finds_what_one_in_memory_does(tmp_path: Path):
    pages = [Page("Ox", "It pulls."), Page("Cow", "It gives milk."), Page("Cat", "It sleeps.")]
    path = tmp_path / "pages.sqlite"
    stored = PageIndex(pages, str(path))
    assert stored.scored("milk", 3) == PageIndex(pages).scored("milk", 3) != []
    assert path.stat().st_size > 0
    with pytest.raises(UserError, match="exists"):
        PageIndex(pages, str(path))


def test_recall_is_of_the_needed_page():
    pages = PageIndex([Page(name, f"{name} lies here.") for name in ("Ox", "Cow", "Cat", "Dog")])
    questions = [Question("", ("x",), "chain", (Hop((), (title,)),)) for title in ("Ox", "Cow")]
    assert recall(pages, ["Ox", "Ox"], questions) == 0.5


def test_the_table_of_the_retrievers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    row = {"build_seconds": 1.0, "query_ms": 2.0, "look_ups": 0.5, "questions": 0.25}
    (tmp_path / "dense-100-7.json").write_text(
        json.dumps({"bm25": row, "tantivy": row, "dense": row})
    )
    DenseSearch(pages=100, queries=7, folder=str(tmp_path), page="").run()
    output = capsys.readouterr().out
    assert all(f"| {name} | 1.0 | 2.0 | 50 % | 25 % |" in output for name in ("bm25", "tantivy"))
