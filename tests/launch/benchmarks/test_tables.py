"""Tables of tasks and methods: what their cells measure, what their rows show, and that each cell
can be run.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.offline.ilql import TokenValueTrainerConfig
from agentrl_jax.algorithms.offline.token_value_targets import ExpectileTarget, MonteCarloTarget
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.reproduction import LMRL, Hierarchical, TableBench
from agentrl_jax.launch.benchmarks.tables import archer_refuel, lmrl_gym
from agentrl_jax.launch.benchmarks.tables.entries import TableEntry
from agentrl_jax.launch.benchmarks.tables.lmrl_gym import (
    measure_with_speed,
    scores_table,
    speed_table,
)
from agentrl_jax.launch.sweeps.grid import load_experiment
from agentrl_jax.storage.files import write_json
from agentrl_jax.storage.format_version import RUN_FORMAT_VERSION, VERSION_KEY

ROOT = Path(__file__).parents[3]


def cache_cell(
    folder: Path, name: str, seed: int, score: float | None, value: float, before: float
) -> None:
    task, method = name.split("-")
    [cached] = [
        cached
        for cached in lmrl_gym.ENTRIES[task, method].cached_cells(folder)
        if cached.cell.seed == seed
    ]
    cached.path.parent.mkdir(parents=True, exist_ok=True)
    imitated = {"return": before, "score": score and score - 10, "success": None}
    write_json(
        cached.path,
        {
            **cached.identity,
            "config_digest": None,
            "return": value,
            "score": score,
            "imitated": imitated,
            "tokens_per_second": 1000 * (seed + 1),
        },
    )


def test_a_cell_measures_the_end_of_each_phase_and_the_speed_of_the_last(tmp_path: Path):
    phases = {"sft": {"fields": {"label": "SFT"}}, "rl": {"fields": {"label": "MC"}}}
    config = {VERSION_KEY: RUN_FORMAT_VERSION, "fields": {"phases": {"dict": phases}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    table = [
        {"name": name, "mean_return": x, "score": 10 * x, "win_rate": x}
        for name, x in (("SFT", 0.5), ("MC", 1.0))
    ]
    (tmp_path / "summary.json").write_text(
        json.dumps({"table": table, "seconds": {"setup": 1.5, "rl": 2.0}})
    )
    lines = [
        {"phase": "rl", "step": i, "tokens": n, "time/update": t}
        for i, (n, t) in enumerate([(100, 9.0), (100, 0.5), (300, 1.0)])
    ]
    lines = [{"phase": "sft", "step": 0, "tokens": 5.0, "time/update": 1.0}, *lines]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measure_with_speed(tmp_path) == {
        "return": 1.0,
        "score": 10.0,
        "success": 1.0,
        "imitated": {"return": 0.5, "score": 5.0, "success": 0.5},
        "tokens_per_second": 200,
        "seconds": 3.5,
    }


def test_a_row_shows_scores_with_intervals_returns_and_what_is_missing(tmp_path: Path):
    for seed, score in enumerate((80.0, 81.0, 82.0)):  # 81 ± 4.3027 x 1 / sqrt(3)
        cache_cell(tmp_path, "wordle-mc", seed, score, -2.0, -3.0)
    cache_cell(tmp_path, "wordle-ilql", 1, 90.0, -1.5, -3.0)
    cache_cell(tmp_path, "city-mc", 0, None, -17.0, -18.0)
    lines = scores_table(tmp_path).splitlines()
    assert (
        "| wordle | 71.0 ± 2.5 (-3.00) | missing | 81.0 ± 2.5 (-2.00) | 90.0 (-1.50) (2 "
        "missing) | missing | missing |" in lines
    )
    assert lines[
        lines.index("| wordle, published | 79.9 | 79.1 | 94.9 | 97.7 | 84.2 | 95.2 |") - 1
    ].startswith("| wordle |")
    assert "| city | (-18.00) | missing | (-17.00) | missing | missing | missing |" in lines
    assert (
        "| wordle | missing | 2,000 | 2,000 | missing | missing |"
        in speed_table(tmp_path).splitlines()
    )


@pytest.mark.parametrize("entry", LMRL.entries, ids=lambda entry: entry.name)
def test_a_cell_of_the_table_can_be_run_and_trains_the_method_of_its_column(
    entry: TableEntry, tmp_path: Path
):
    cell = next(entry.cached_cells(tmp_path, tmp_path)).cell
    config = load_experiment(cell)
    assert config.seed == cell.seed and config.name == f"lmrl-{entry.name}"
    assert ("rl" in config.phases) == (entry.method != "filtered")
    algorithm = list(config.phases.values())[-1].algorithm
    if isinstance(algorithm, TokenValueTrainerConfig):
        assert isinstance(
            algorithm.target,
            {"mc": MonteCarloTarget, "ilql": ExpectileTarget}[entry.method],
        )


def test_only_tasks_and_methods_of_the_table_can_be_selected(tmp_path: Path):
    (tmp_path / "lmrl.md").write_text(
        "".join(f"<!-- {x} -->\n<!-- /{x} -->\n" for x in ("scores", "configs", "speed"))
    )
    bench = LMRL(print_only=True, folder=str(tmp_path / "kept"), docs=str(tmp_path))
    assert dataclasses.replace(bench, only="city-mc, nav_fo-ppo").run() == {
        "bench": "lmrl",
        "kept": 0,
        "cells": 2,
    }
    assert bench.run()["cells"] == 5 * sum(map(len, lmrl_gym.TASK_SEEDS.values()))
    with pytest.raises(UserError, match="'poker' is no task"):
        dataclasses.replace(bench, only="wordle,poker").run()


@pytest.mark.parametrize("bench", [LMRL, Hierarchical])
def test_the_tables_of_the_pages_are_those_of_the_cached_cells(bench: type[TableBench]):
    for (page, mark), table in bench.tables.items():
        assert doc_tables.read_section(ROOT / "docs" / page, mark) == table(
            ROOT / "benchmarks/results" / bench.name
        )


@pytest.mark.parametrize("entry", Hierarchical.entries, ids=lambda entry: entry.name)
def test_a_cell_of_the_hierarchical_tables_can_be_run(entry: TableEntry, tmp_path: Path):
    config = load_experiment(next(entry.cached_cells(tmp_path, tmp_path)).cell)
    assert ("rl" in config.phases) == (entry.method != "filtered")
    task, _, turns = entry.task.partition("_")
    assert config.environment.options.get("horizon", 0) == {
        "turns": int(turns or 0),
        "iterations": 4,
    }.get(task, 0)


def test_the_column_between_two_iterations_is_the_return_of_the_seconds_rollouts(tmp_path: Path):
    for seed, (before, between, after) in enumerate(
        [(0.3, 0.5, 0.8), (0.5, 0.5, 0.8), (0.4, 0.5, 0.8)]
    ):
        [cached] = [
            x
            for x in archer_refuel.ENTRIES["iterations", "refuel_twice"].cached_cells(tmp_path)
            if x.cell.seed == seed
        ]
        cached.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            cached.path,
            {
                **cached.identity,
                "config_digest": None,
                "return": after,
                "imitated": {"return": before},
                "played": [before, between],
            },
        )
    lines = archer_refuel.iterations_table(tmp_path).splitlines()
    assert lines[2:] == [
        "| refuel | 0.40 ± 0.25 | 0.50 ± 0.00 | 0.80 ± 0.00 |",
        "| last_turn | missing | missing | missing |",
    ]


def test_samples_are_counted_until_a_curve_reaches_the_best_of_the_other():
    def cells(*curves: list[float]) -> list[dict[str, Any] | None]:
        return [{"curve": [[10 * (i + 1), y] for i, y in enumerate(curve)]} for curve in curves]

    ppo = archer_refuel.smoothed_curve(
        cells([0, 0, 0, 0, 4, 4, 4, 4, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0])
    )  # means of 4: at most 2, after 8 iterations
    archer = archer_refuel.smoothed_curve(
        cells([0, 2, 2, 2, 2, 8], [0, 2, 2, 2, 2, 8])
    )  # 1.5, 2, 3.5
    assert ppo is not None and archer is not None
    assert archer_refuel.compare_sample_efficiency(ppo, archer) == ["2.00", "80", "50", "1.6"]
    assert archer_refuel.compare_sample_efficiency(archer, ppo)[2:] == [
        "not within 90 (at best 2.00)",
        "-",
    ]
    assert archer_refuel.smoothed_curve([*cells([0, 1, 2, 3]), None]) is None
