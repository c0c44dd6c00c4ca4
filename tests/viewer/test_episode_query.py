"""Filters and sorting, by the table of cases that the page's own filters are tested by too."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.viewer.episode_index import EpisodeIndex, EpisodeTable
from agentrl_jax.viewer.episode_query import EpisodeQuery, parse_query, select, window

TABLE = json.loads((Path(__file__).parents[1] / "support/viewer_queries.json").read_text())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> EpisodeTable:
    folder = tmp_path_factory.mktemp("queries")
    lines = [line_of_row(row) for row in TABLE["rows"]]
    (folder / "0-000000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = EpisodeIndex(folder)
    index.refresh()
    return index.table()


def line_of_row(row: dict[str, Any]) -> dict[str, Any]:
    if row["damage"]:
        return {"damaged": True}
    success = None if row["success"] is None else bool(row["success"])
    return {"schema": 2, "turns": [], **row, "success": success, "return": row["total_reward"]}


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: json.dumps(case["query"]))
def test_the_rows_of_a_query(case: dict[str, Any], table: EpisodeTable):
    values = {"descending": "1", **case["query"]}
    query = parse_query({**values, "descending": values["descending"] or "0"})
    assert select(table, query).tolist() == case["rows"]


def test_a_window_is_a_part_of_the_rows(table: EpisodeTable):
    rows = select(table, EpisodeQuery())
    assert window(rows, EpisodeQuery(offset=1, limit=2)) == [0, 1]
    assert window(rows, EpisodeQuery(offset=4, limit=2)) == [4]
    assert window(rows, EpisodeQuery(offset=9)) == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"step_from": "x"}, "step_from is a number"),
        ({"limit": "1.5"}, "limit is a whole number"),
        ({"limit": "1001"}, "limit from 1 to 1000"),
        ({"offset": "-1"}, "offset is at least 0"),
        ({"outcome": "x"}, "outcome is one of success"),
        ({"sort": "__class__"}, "sort is one of step"),
        ({"descending": "yes"}, "descending is 0 or 1"),
    ],
)
def test_a_wrong_parameter_is_named(values: dict[str, str], sentence: str):
    with pytest.raises(UserError, match=sentence):
        parse_query(values)


def test_other_parameters_are_ignored():
    assert parse_query({"run": "0", "unknown": "x", "text": "maze"}) == EpisodeQuery(text="maze")
