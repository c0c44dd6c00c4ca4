"""`look_up_steps`: a small measurement, cached rows, tables."""

import json
from pathlib import Path

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.look_up_steps import WORLDS, LookUpSteps

ROW = {"inline": 1234.0, "one": 5.0, "two": 9.0, "cores": 2, "load": 1.5}
SECTION = "<!-- look-up-steps -->\n<!-- /look-up-steps -->\n"


def test_cached_rows_make_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("sqlite", "fts5"):
        (tmp_path / f"{name}.json").write_text(json.dumps(ROW))
    for page in ("sql.md", "search.md"):
        (tmp_path / page).write_text(SECTION)
    bench = LookUpSteps(folder=str(tmp_path), pages=str(tmp_path), print_only=True)
    assert bench.run()["worlds"] == {"sqlite": ROW, "fts5": ROW}
    assert "| SQLite | 1,234 | 5 | 9 |" in (tmp_path / "sql.md").read_text()
    assert "FTS5" in capsys.readouterr().out and "FTS5" not in (tmp_path / "sql.md").read_text()


def test_a_world_is_measured(tmp_path: Path):
    options = {"folder": str(tmp_path), "pages": "", "seconds": 0.05, "num_envs": 1}
    (row,) = LookUpSteps(world=("sqlite",), **options).run()["worlds"].values()
    assert min(row["inline"], row["one"], row["two"]) > 0
    assert json.loads((tmp_path / "sqlite.json").read_text()) == row
    with pytest.raises(UserError, match="sqlite"):
        LookUpSteps(world=("oracle",), **options).run()


def test_pages_have_a_section_for_each_table():
    for page in {world.page for world in WORLDS.values()}:
        assert "<!-- look-up-steps -->" in Path("docs", page).read_text()
