"""Comparisons of methods: which runs they make and cache, the interval of a paired difference, and
the tables of docs/methods.md.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.claims import measures
from agentrl_jax.launch.benchmarks.claims.comparison import SIDES, Comparison, Side
from agentrl_jax.launch.benchmarks.claims.measures import (
    context_tokens_per_success,
    correction,
    failed_length,
    layout_collisions,
    log_turns_until_level,
    seconds_until_level,
    turns_until_level,
)
from agentrl_jax.launch.benchmarks.claims.registry import COMPARISONS
from agentrl_jax.launch.benchmarks.claims.table import configs_note, learning_table, methods_table
from agentrl_jax.launch.benchmarks.claims.verdicts import Verdict, judge
from agentrl_jax.launch.benchmarks.method_claims import Methods
from agentrl_jax.launch.sweeps import cached_cells, cells
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.grid import load_experiment
from agentrl_jax.storage import config_json
from agentrl_jax.trajectories import Trajectory
from tests.support.fixtures import make_call, make_trajectory, make_turn

ROOT = Path(__file__).parents[3]
WORDLE = "configs/wordle_grpo.py:smoke"
LONGER = Comparison(
    "longer",
    "arXiv 0000.00000",
    "More is better.",
    Side(WORDLE),
    Side(WORDLE, {"phases.rl.steps": "9"}),
    seeds=(1, 2, 3),
)


class Fake(Methods):
    comparisons: ClassVar = (LONGER,)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(
        cells,
        "TRAIN_COMMAND",
        (sys.executable, str(ROOT / "tests" / "support" / "fake_training.py")),
    )
    (tmp_path / "page.md").write_text(
        "before\n<!-- methods -->\nold\n<!-- /methods -->\n<!-- configs -->\n<!-- /configs -->\n"
        "<!-- learning -->\n<!-- /learning -->\n<!-- training -->\n<!-- /training -->\nafter\n"
    )
    return Fake(
        runs=str(tmp_path / "runs"), folder=str(tmp_path / "kept"), page=str(tmp_path / "page.md")
    )


def values(
    base: Sequence[float | int], method: Sequence[float | int]
) -> dict[str, list[float | None]]:
    return {"base": [float(x) for x in base], "method": [float(x) for x in method]}


def verdict_of(comparison: Comparison, base: Sequence[float], method: Sequence[float]) -> Verdict:
    return judge([comparison], {comparison.name: values(base, method)})[comparison.name]


@pytest.mark.parametrize(
    ("base", "method", "verdict"),
    [
        (
            [1, 2, 3],
            [2, 3.1, 3.9],
            "shown",
        ),  # differences 1, 1.1, .9: 1 ± 4.3027 x .1 / sqrt(3) = .25
        ([2, 3.1, 3.9], [1, 2, 3], "opposite"),
        ([1, 2, 3], [2, 2, 5], "not shown"),  # 1, 0, 2: 1 ± 2.48
        ([1, 2, 3], [1, 2, 3], "not shown"),  # 0 ± 0 contains zero
    ],
)
def test_a_paired_test_gives_the_verdict_of_a_single_comparison(
    base: Sequence[float], method: Sequence[float], verdict: str
):
    result = verdict_of(LONGER, base, method)
    assert result.text == verdict
    other = {"shown": "opposite", "opposite": "shown"}.get(verdict, verdict)
    flipped = verdict_of(dataclasses.replace(LONGER, higher_is_better=False), base, method)
    assert flipped == dataclasses.replace(result, text=other)


def test_verdicts_are_corrected_for_the_number_of_tested_comparisons():
    # 1 ± .25 over three pairs: p = .0033 alone, .0033 x 20 among twenty
    rows = [dataclasses.replace(LONGER, name=str(i)) for i in range(20)]
    clear, equal = values([1, 2, 3], [2, 3.1, 3.9]), values([1, 2, 3], [1, 2, 3])
    table = {"0": clear, **{row.name: equal for row in rows[1:]}}
    assert judge(rows[:10], table)["0"].text == "shown"
    assert judge(rows, table)["0"].text == "not shown"
    assert judge(rows, table)["0"].p_value == pytest.approx(20 * 0.003316, rel=1e-3)
    untested = [dataclasses.replace(row, by_construction=True) for row in rows[1:]]
    verdicts = judge([rows[0], *untested], table)
    assert verdicts["0"].text == "shown"
    assert verdicts["1"].text == "by construction" and verdicts["1"].p_value is None


def test_one_seed_shows_nothing_and_missing_cells_give_no_verdict():
    single = dataclasses.replace(LONGER, seeds=(1,))
    assert verdict_of(single, [0], [9]) == Verdict(9.0, math.inf, 1.0, "not shown")
    assert judge([LONGER], {"longer": {"base": [1.0, 2.0], "method": [9.0, None]}}) == {}


def test_a_seed_that_chose_the_settings_is_not_compared():
    with pytest.raises(UserError, match="longer: seed 2 chose the settings"):
        dataclasses.replace(LONGER, tuning_seeds=(2, 100))


def test_the_bench_caches_each_cell_and_writes_the_table(
    bench: Fake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    assert bench.run()["comparisons"] == {"longer": "shown"}
    # Rates .1, .2, .3 against .2, .3, .4: .1 more on every seed.
    table = (
        "| comparison | claim | measure | seeds | base | method | difference | p | verdict |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| longer (arXiv 0000.00000) | More is better. | final success rate | 3 | 0.2 ± 0.248 | "
        "0.3 ± 0.248 | +0.1 ± "
    )
    page = (tmp_path / "page.md").read_text()
    assert (
        page.startswith(f"before\n<!-- methods -->\n{table}")
        and " | shown |\n<!-- /methods -->\n" in page
    )
    assert capfd.readouterr().out.startswith(table)
    cached = json.loads((tmp_path / "kept" / "longer" / "method-2.json").read_text())
    command = f"agentrl-train --config={WORDLE} --config.phases.rl.steps=9 --config.seed=2"
    assert cached["end"] == cached["value"] == pytest.approx(0.3)
    assert {name: cached[name] for name in ("command", "measure", "seconds")} == {
        "command": command, "measure": "final success rate", "seconds": 3.5
    }  # fmt: skip
    assert cached["training"] == {"rollout/success": [0.0, 0.3]}
    row = "| longer | {} | 0 -> 0.3 |  |  |  |  |"
    assert all(row.format(side) in page.splitlines() for side in SIDES)
    bench.run()
    assert (tmp_path / "runs" / f"{LONGER.method.slug}-2" / "began").read_text().count("\n") == 1
    (tmp_path / "kept" / "longer" / "method-2.json").unlink()
    bench.print_only = True
    assert bench.run()["comparisons"] == {"longer": "missing"}
    assert (
        "| 0.2 ± 0.248 | 0.3 ± 1.27 (1 missing) | missing | missing | missing |"
        in (tmp_path / "page.md").read_text()
    )


def test_a_cached_cell_of_another_command_is_refused(bench: Fake, tmp_path: Path):
    bench.run()
    path = tmp_path / "kept" / "longer" / "base-1.json"
    path.write_text(path.read_text().replace("smoke", "quickstart"))
    with pytest.raises(
        UserError,
        match=r"base-1\.json is of agentrl-train .*quickstart.*, final success rate: delete",
    ):
        bench.run()
    path.write_text("{")
    with pytest.raises(UserError, match="damaged"):
        bench.run()


def test_a_cached_cell_of_a_config_that_changed_is_refused(
    bench: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tmp_path / "config.py"
    source = (ROOT / "configs" / "wordle_grpo.py").read_text()
    config.write_text(source)
    side = Side(f"{config}:smoke")
    comparison = dataclasses.replace(
        LONGER, base=side, method=Side(side.config, {"record_groups": "3"})
    )
    monkeypatch.setattr(Fake, "comparisons", (comparison,))
    bench.run()
    note = "Every figure was measured with the config of today."
    assert doc_tables.read_section(tmp_path / "page.md", "configs") == note
    config.write_text(source.replace("Experiment(", "Experiment(record_groups=5, ", 1))
    cached_cells._config_digest.cache_clear()
    with pytest.raises(UserError, match=r"base-1\.json was measured before .* changed: delete it"):
        bench.run()
    for path in (tmp_path / "kept" / "longer").iterdir():
        path.write_text(json.dumps({**json.loads(path.read_text()), "config_digest": None}))
    bench.run()
    note = "Every figure was measured with an earlier config, of which no digest was kept."
    assert doc_tables.read_section(tmp_path / "page.md", "configs") == note


def test_rows_of_an_earlier_config_are_named():
    known, earlier = {"config_digest": "ab"}, {"config_digest": None}
    note = cached_cells.earlier_configs_note({"a": [known], "b": [earlier, None], "c": [None]})
    assert note == "Measured with an earlier config, of which no digest was kept: b."
    assert "Every figure" in cached_cells.earlier_configs_note({"b": [earlier], "c": [None]})


def test_a_failed_cell_is_reported_after_the_table_is_written(
    bench: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Fake, "comparisons", (dataclasses.replace(LONGER, seeds=(1, 7)),))
    with pytest.raises(UserError, match="2 cells failed"):
        bench.run()
    assert (
        "| 0.1 ± ? (1 missing) | 0.2 ± ? (1 missing) | missing | missing | missing |"
        in (tmp_path / "page.md").read_text()
    )


def test_an_unknown_comparison_and_a_missing_page_are_named(bench: Fake, tmp_path: Path):
    with pytest.raises(UserError, match="no comparison 'shorter', only longer"):
        dataclasses.replace(bench, only="longer,shorter").run()
    with pytest.raises(UserError, match="no page with one pair of markers"):
        dataclasses.replace(bench, page=str(tmp_path / "nowhere.md"), print_only=True).run()


def test_the_tables_of_the_page_are_those_of_the_cached_cells():
    cached, page = ROOT / "benchmarks/results/methods", ROOT / "docs" / "methods.md"
    assert doc_tables.read_section(page, "methods") == methods_table(COMPARISONS, cached)
    assert doc_tables.read_section(page, "learning") == learning_table(COMPARISONS, cached)
    assert doc_tables.read_section(page, "configs") == configs_note(COMPARISONS, cached)


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda comparison: comparison.name)
def test_a_declared_comparison_can_be_run(comparison: Comparison, tmp_path: Path):
    assert [single.name for single in COMPARISONS].count(comparison.name) == 1
    base, method = (load_experiment(cell) for _, cell in [*comparison.cells(tmp_path)][:2])
    assert base.seed == method.seed
    if not comparison.base.phase:
        assert base != method
        return
    assert config_json.to_json(base) == config_json.to_json(method)  # functions are loaded anew
    sides = [base.phases[side.phase] for side in (comparison.base, comparison.method)]
    assert [phase.start for phase in sides] == ["sft", "sft"]
    assert dataclasses.replace(sides[0], label="method") != sides[1]


def test_the_two_phases_of_a_paired_comparison_share_a_run_and_are_measured_apart(
    bench: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pair = dataclasses.replace(
        LONGER, base=Side(WORDLE, phase="sft"), method=Side(WORDLE, phase="rl"), seeds=(1,)
    )
    monkeypatch.setattr(Fake, "comparisons", (pair,))
    bench.run()
    cells = [json.loads((tmp_path / "kept/longer" / f"{x}-1.json").read_text()) for x in SIDES]
    assert [cell["phase"] for cell in cells] == ["sft", "rl"]
    assert cells[0]["command"] == cells[1]["command"]
    assert cells[0]["value"] == cells[1]["start"] != cells[1]["value"] == cells[1]["end"]
    assert (tmp_path / "runs" / f"{pair.method.slug}-1" / "began").read_text().count("\n") == 1


def test_a_flag_for_one_config_leaves_the_next_one_alone(tmp_path: Path):
    overrides = {
        "phases.rl.algorithm.optimizer.learning_rate": "0.5",
        "phases.rl.algorithm.critic.head.scale": "7",
    }
    cells_of_config = (Cell("configs/chain_vapo.py", x, 0, tmp_path) for x in (overrides, {}))
    settings = []
    for cell in cells_of_config:
        fields = config_json.to_json(load_experiment(cell).phases["rl"].algorithm)["fields"]
        head = fields["critic"]["fields"]["head"]["fields"]
        settings.append((fields["optimizer"]["fields"]["learning_rate"], head["scale"]))
    assert settings == [(0.5, 7.0), (1e-3, 3.0)]


@pytest.mark.parametrize(("level", "turns"), [(0.2, 50.0), (0.5, 80.0), (0.9, 100.0)])
def test_turns_until_a_level_is_reached_by_the_mean_of_three_steps(
    level: float, turns: float, tmp_path: Path
):
    successes, lengths = (0.0, 0.9, 0.0, 0.3, 0.6, 0.6, 0.6, 0.6), (10, 20, 20, 10, 10, 10, 10, 10)
    lines = [
        {"phase": "rl", "rollout/success": x, "rollout/turns_played": n}
        for x, n in zip(successes, lengths)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert turns_until_level("rollout/success", level).compute(tmp_path) == turns
    logarithm = log_turns_until_level("rollout/success", level).compute(tmp_path)
    assert logarithm == pytest.approx(math.log(turns))


def test_a_correction_is_the_second_attempts_success_less_the_firsts(tmp_path: Path):
    attempts = [(0.5, 0.25), (0.5, 0.75), (0.0, 0.75)]
    lines = [
        {"phase": "rl", "rollout/success": second, "rollout/return": first + second}
        for first, second in attempts
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert correction.compute(tmp_path) == pytest.approx((-0.25 + 0.25 + 0.75) / 3)


def test_failed_episodes_are_measured_in_lengths_of_successful_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def episode(success: bool, *tokens: int) -> Trajectory:
        turns = (make_turn([make_call([0], [1] * n)]) for n in tokens)
        return make_trajectory(*turns).replace(success=success)

    episodes = [episode(True, 2, 2), episode(True, 4), episode(False, 3, 3), episode(False, 10)]
    monkeypatch.setattr(measures, "evaluation_trajectories", lambda run_dir, phase: episodes)
    assert failed_length.compute(tmp_path) == pytest.approx(math.log(2))
    episodes = episodes[:2]
    assert math.isnan(failed_length.compute(tmp_path))


def test_a_malformed_last_layout_counts_as_one_that_collides_everywhere(
    monkeypatch: pytest.MonkeyPatch,
):
    def episode(*infos: dict[str, float]) -> Trajectory:
        turns = [dataclasses.replace(make_turn([make_call([0], [1])]), info=x) for x in infos]
        return make_trajectory(*turns)

    last = {"format": 1.0, "collision": 0.25}
    episodes = [episode({"format": 0.5}, last), episode(last, {"format": 0.5})]
    monkeypatch.setattr(measures, "evaluation_trajectories", lambda run_dir, phase: episodes)
    assert layout_collisions.compute(Path()) == (0.25 + 1) / 2


def test_tokens_per_success_are_a_ratio_of_means_over_the_last_steps(tmp_path: Path):
    lines = [
        {"phase": "rl", "rollout/length": length, "rollout/success": success}
        for length, success in ((90.0, 0.9), (30.0, 0.5), (10.0, 0.3))
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert context_tokens_per_success(2).compute(tmp_path) == pytest.approx(20 / 0.4)


def test_seconds_are_counted_until_a_mean_of_steps_reaches_a_level(tmp_path: Path):
    steps = [(0.5, 100.0), (1.0, 1.0), (0.2, 2.0), (1.0, 4.0), (1.0, 8.0)]
    lines = [
        {"phase": "rl", "step": i, "rollout/success": value, "time/seconds": took}
        for i, (value, took) in enumerate(steps)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert (
        seconds_until_level("rollout/success", 0.5).compute(tmp_path) == 3.0
    )  # the first step compiles and is not counted
    assert seconds_until_level("rollout/success", 0.7).compute(tmp_path) == 7.0
    assert (
        seconds_until_level("rollout/success", 2.0).compute(tmp_path) == 15.0
    )  # never: the sum over all steps
