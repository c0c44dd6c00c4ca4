"""Tables of tasks and methods: what their cells measure, what their lines say, and that each cell can be run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.token_values import Expectile, MonteCarlo, TokenValuesConfig
from agentrl_jax.errors import UserError
from agentrl_jax.launch import pages
from agentrl_jax.launch.benches.boards import LMRL, Board, Hierarchical
from agentrl_jax.launch.boards import hierarchical, lmrl
from agentrl_jax.launch.boards.entries import Entry
from agentrl_jax.launch.boards.lmrl import scores_table, speed_table, with_speed
from agentrl_jax.launch.sweeps.grid import experiment_of
from agentrl_jax.run import write_json

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # ml_collections reads configs so


def keep(folder: Path, name: str, seed: int, score: float | None, value: float, before: float) -> None:
    task, method = name.split("-")
    [one] = [one for one in lmrl.ENTRIES[task, method].kept(folder) if one.cell.seed == seed]
    one.path.parent.mkdir(parents=True, exist_ok=True)
    imitated = {"return": before, "score": score and score - 10, "success": None}
    write_json(one.path, {**one.identity, "return": value, "score": score, "imitated": imitated, "tokens_per_second": 1000 * (seed + 1)})


def test_a_cell_measures_the_end_of_each_phase_and_the_speed_of_the_last(tmp_path: Path):
    phases = {"sft": {"fields": {"label": "SFT"}}, "rl": {"fields": {"label": "MC"}}}
    (tmp_path / "config.json").write_text(json.dumps({"fields": phases}))
    table = [{"name": name, "mean_return": x, "score": 10 * x, "win_rate": x} for name, x in (("SFT", 0.5), ("MC", 1.0))]
    (tmp_path / "summary.json").write_text(json.dumps({"table": table, "seconds": {"setup": 1.5, "rl": 2.0}}))
    lines = [{"phase": "rl", "step": i, "tokens": n, "time/update": t} for i, (n, t) in enumerate([(100, 9.0), (100, 0.5), (300, 1.0)])]
    lines = [{"phase": "sft", "step": 0, "tokens": 5.0, "time/update": 1.0}, *lines]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert with_speed(tmp_path) == {
        "return": 1.0, "score": 10.0, "success": 1.0, "imitated": {"return": 0.5, "score": 5.0, "success": 0.5},
        "tokens_per_second": 200, "seconds": 3.5,
    }  # fmt: skip


def test_a_line_gives_scores_with_intervals_returns_and_what_is_missing(tmp_path: Path):
    for seed, score in enumerate((80.0, 81.0, 82.0)):  # 81 ± 4.3027 x 1 / sqrt(3)
        keep(tmp_path, "wordle-mc", seed, score, -2.0, -3.0)
    keep(tmp_path, "wordle-ilql", 1, 90.0, -1.5, -3.0)
    keep(tmp_path, "city-mc", 0, None, -17.0, -18.0)
    lines = scores_table(tmp_path).splitlines()
    assert "| wordle | 71.0 ± 2.5 (-3.00) | missing | 81.0 ± 2.5 (-2.00) | 90.0 (-1.50) (2 missing) | missing | missing |" in lines
    assert lines[lines.index("| wordle, published | 79.9 | 79.1 | 94.9 | 97.7 | 84.2 | 95.2 |") - 1].startswith("| wordle |")
    assert "| city | (-18.00) | missing | (-17.00) | missing | missing | missing |" in lines
    assert "| wordle | missing | 2,000 | 2,000 | missing | missing |" in speed_table(tmp_path).splitlines()


@pytest.mark.parametrize("entry", LMRL.entries, ids=lambda entry: entry.name)
def test_a_cell_of_the_table_can_be_run_and_trains_what_its_column_says(entry: Entry, tmp_path: Path):
    cell = next(entry.kept(tmp_path, tmp_path)).cell
    config = experiment_of(cell)
    assert config.seed == cell.seed and config.name == f"lmrl-{entry.name}"
    assert (config.rl is None) == (entry.method == "filtered")
    if config.rl and isinstance(config.rl.algorithm, TokenValuesConfig):
        assert isinstance(config.rl.algorithm.goal, {"mc": MonteCarlo, "ilql": Expectile}[entry.method])


def test_what_is_asked_for_must_be_in_the_table(tmp_path: Path):
    (tmp_path / "lmrl.md").write_text("<!-- scores -->\n<!-- /scores -->\n<!-- speed -->\n<!-- /speed -->\n")
    bench = LMRL(print_only=True, folder=str(tmp_path / "kept"), docs=str(tmp_path))
    assert dataclasses.replace(bench, only="city-mc, nav_fo-ppo").run() == {"bench": "lmrl", "kept": 0, "cells": 2}
    assert bench.run()["cells"] == 5 * sum(map(len, lmrl.SEEDS.values()))
    with pytest.raises(UserError, match="'poker' is no task"):
        dataclasses.replace(bench, only="wordle,poker").run()


@pytest.mark.parametrize("board", [LMRL, Hierarchical])
def test_the_tables_of_the_pages_are_what_the_kept_cells_say(board: type[Board]):
    for (page, mark), table in board.tables.items():
        assert pages.between(ROOT / "docs" / page, mark) == table(ROOT / "benchmarks/results" / board.name)


@pytest.mark.parametrize("entry", Hierarchical.entries, ids=lambda entry: entry.name)
def test_a_cell_of_the_hierarchical_tables_can_be_run(entry: Entry, tmp_path: Path):
    config = experiment_of(next(entry.kept(tmp_path, tmp_path)).cell)
    assert (config.rl is None) == (entry.method == "filtered")
    task, _, turns = entry.task.partition("_")
    assert config.environment.options.get("horizon", 0) == {"turns": int(turns or 0), "iterations": 4}.get(task, 0)


def test_between_two_iterations_is_what_the_second_played(tmp_path: Path):
    for seed, (before, between, after) in enumerate([(0.3, 0.5, 0.8), (0.5, 0.5, 0.8), (0.4, 0.5, 0.8)]):
        [one] = [x for x in hierarchical.ENTRIES["iterations", "refuel_twice"].kept(tmp_path) if x.cell.seed == seed]
        one.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(one.path, {**one.identity, "return": after, "imitated": {"return": before}, "played": [before, between]})
    lines = hierarchical.iterations_table(tmp_path).splitlines()
    assert lines[2:] == ["| refuel | 0.40 ± 0.25 | 0.50 ± 0.00 | 0.80 ± 0.00 |", "| last_turn | missing | missing | missing |"]


def test_samples_are_counted_until_a_curve_is_as_high_as_the_other_at_its_best():
    def cells(*curves: list[float]) -> list[dict[str, Any] | None]:
        return [{"curve": [[10 * (i + 1), y] for i, y in enumerate(curve)]} for curve in curves]

    ppo = hierarchical.smooth(cells([0, 0, 0, 0, 4, 4, 4, 4, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0]))  # means of 4: at most 2, after 8 iterations
    archer = hierarchical.smooth(cells([0, 2, 2, 2, 2, 8], [0, 2, 2, 2, 2, 8]))  # 1.5, 2, 3.5
    assert ppo is not None and archer is not None
    assert hierarchical.compared(ppo, archer) == ["2.00", "80", "50", "1.6"]
    assert hierarchical.compared(archer, ppo)[2:] == ["not within 90 (at best 2.00)", "-"]
    assert hierarchical.smooth([*cells([0, 1, 2, 3]), None]) is None
