"""The benches of the base model: their tables, and which learning rates are compared."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.corpus.domains import DOMAINS
from agentrl_jax.corpus.exercise import text_exercise
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.base_model import BaseModel
from agentrl_jax.launch.benchmarks.fine_tuning import RATES, SEEDS, STARTS, FineTuning
from agentrl_jax.launch.benchmarks.language_model import DomainResult, LanguageModel
from agentrl_jax.launch.sweeps.grid import load_experiment
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.reporting.statistics import mean_interval

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "base_model.md"


def test_a_row_of_the_table_has_the_loss_per_token_and_per_byte():
    result = DomainResult(4, tokens=100, text_bytes=250, nats=50.0, unigram_nats=500.0, right=3)
    bits = f"{50 / math.log(2) / 250:.3f}"
    assert result.cells("sql", 14) == ("sql", "14 %", "100", "0.500", "5.000", bits, "3 of 4")


def test_the_tables_of_the_page_are_those_of_the_cached_results():
    bench = BaseModel(folder=str(ROOT / "benchmarks/results/base_model"))
    assert doc_tables.read_section(PAGE, "domains") == bench.table()
    assert bench.table().count("\n") == len(DOMAINS) + 1
    tuning = FineTuning(folder=str(ROOT / "benchmarks/results/fine_tuning"))
    assert doc_tables.read_section(PAGE, "tuning") == tuning._tuning_table()
    assert doc_tables.read_section(PAGE, "fine_tuning") == tuning._tested_table()


def test_results_of_another_model_are_refused(tmp_path: Path):
    bench = BaseModel(folder=str(tmp_path), print_only=True)
    data = {"weights_digest": "other", "exercises": bench.exercises}
    (tmp_path / "sql.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"sql\.json is of another model"):
        bench.table()


def write_cells(bench: FineTuning, values: dict[tuple[str, str, int], float]) -> None:
    for key, value in values.items():
        cached = bench.cell(*key)
        cached.path.parent.mkdir(exist_ok=True)
        digest = {"config_digest": cached.config_digest}
        cached.path.write_text(json.dumps({**cached.identity, **digest, "value": value}))


def test_each_start_is_compared_at_its_best_learning_rate(tmp_path: Path):
    bench = FineTuning(folder=str(tmp_path / "cells"))
    assert bench.best_rates() == {} and bench._tested_table().count("\n") == 1
    tuned = {("base model", rate, 0): x for rate, x in zip(RATES, (0.5, 0.75, 0.75))}
    tuned |= {("from scratch", rate, 0): x for rate, x in zip(RATES, (0.0, 0.0, 0.25))}
    write_cells(bench, tuned)
    assert bench.best_rates() == {"base model": RATES[1], "from scratch": RATES[2]}
    assert "missing" in bench._tested_table() and "difference" not in bench._tested_table()
    write_cells(bench, {("base model", RATES[1], seed): 0.75 + seed / 100 for seed in SEEDS})
    write_cells(bench, {("from scratch", RATES[2], seed): 0.25 for seed in SEEDS})
    assert bench.tested()["from scratch"] == [0.25] * len(SEEDS)
    differences = [0.5 + seed / 100 for seed in SEEDS]
    mean, half_width = mean_interval(differences)
    difference = f"| {mean:+.3f} ± {half_width:.3f} |"
    assert bench._tested_table().splitlines()[-1].endswith(difference)


def test_the_starts_differ_in_their_weights_alone():
    base, scratch = (
        load_experiment(FineTuning().cell(start, RATES[0], 1).cell) for start in STARTS
    )
    assert dataclasses.replace(base, name="", policy=scratch.policy) == dataclasses.replace(
        scratch, name=""
    )
    assert isinstance(base.policy, PretrainedDecoder) and isinstance(scratch.policy, DecoderConfig)
    fields = {"layers", "width", "hidden", "heads", "kv_heads", "head_size", "qk_norm", "tied_head"}
    built = base.policy.build(4014)
    assert all(
        getattr(built.config, name) == getattr(scratch.policy, name) for name in sorted(fields)
    )


def test_an_answer_ends_where_its_exercise_does():
    model = object.__new__(LanguageModel)
    model.tokenizer = _Words()
    exercise = text_exercise("2 + 2 = ?\n", "= 4")
    assert model._answer(np.array([0, 1, 2])) == exercise.answer.text


class _Words:
    """A tokenizer of whole pieces."""

    def decode(self, ids: np.ndarray, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(("= 4", "\n\n", "3 + 3 = ?")[i] for i in ids)
