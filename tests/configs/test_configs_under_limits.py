"""Every config of the repository trains with a limit of 20 tokens an episode, at the smallest
size.
"""

import dataclasses
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.cut_down import all_variants, cut_down, save_chat_model

from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.run_environments import environment_specs

CONFIGS = Path(__file__).parents[2] / "configs"
LIMIT = 20
# Different in context, strategy, algorithm and source.
REPRESENTATIVE = [
    ("chain_supo", "method"),
    pytest.param("dialogue_refuel", "refuel", marks=pytest.mark.slow),
    pytest.param("archer", "subset-archer", marks=pytest.mark.slow),
    pytest.param("chain_async", "method", marks=pytest.mark.slow),
    pytest.param("lookup_arpo", "tools", marks=pytest.mark.slow),
]


def load(name: str, variant: str) -> Experiment:
    get_config = importlib.import_module(f"agentrl_jax.configs.{name}").get_config
    experiment: Experiment = get_config(variant) if variant else get_config()
    return experiment


def limited_experiment(name: str, variant: str, folder: Path) -> Experiment:
    experiment = load(name, variant)
    if "Chess" in experiment.environment.name or "OpenSpiel" in experiment.environment.name:
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    if "Served" in experiment.environment.name:
        pytest.skip("it needs a server: tests/tool_servers/test_verl_python.py")
    if name == "agentgym_rl":
        pytest.importorskip("minigrid", reason="minigrid is not installed")
        pytest.importorskip("scienceworld", reason="scienceworld is not installed")
    if "Remote" in experiment.environment.name:
        pytest.importorskip("mcp", reason="the SDK of MCP is not installed")
    if isinstance(experiment.policy, LoraConfig):  # it names a model of the Hub
        path = str(save_chat_model(folder / "model"))
        policy = dataclasses.replace(experiment.policy, policy=PretrainedDecoder(path), rank=2)
        experiment = dataclasses.replace(experiment, policy=policy, tokenizer=FolderTokenizer(path))
    experiment = cut_down(experiment)
    experiment.agent.limits.tokens = LIMIT
    return experiment


def train(name: str, variant: str, folder: Path) -> list[dict[str, Any]]:
    """The metrics of each step of a run with the limit."""
    experiment = limited_experiment(name, variant, folder)
    run_dir = folder / "run"
    summaries = loop.train(experiment, run_dir, quiet=True)
    environments = experiment.evaluation.environments or ("its own",)
    rows = sum(len(phase.rows()) for phase in experiment.phases.values())
    assert len(summaries) == rows * len(environments)
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == sum(phase.steps for phase in experiment.phases.values())
    for line in lines:
        for metric in ("loss", "gradient_norm", "critic/loss"):
            assert line.get(metric, 0.0) is not None, (metric, line)
    return lines


@pytest.mark.parametrize(("name", "variant"), REPRESENTATIVE)
def test_episodes_of_a_run_are_cut(name: str, variant: str, tmp_path: Path):
    steps = [line for line in train(name, variant, tmp_path) if line["phase"] == "rl"]
    assert any(line["rollout/truncated"] > 0 for line in steps)
    assert any(line["rollout/stopped/tokens"] > 0 for line in steps)


@pytest.mark.skipif("ALL_LIMITS" not in os.environ, reason="make test-limits trains all configs")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), all_variants(CONFIGS))
def test_a_run_with_cut_episodes_ends_without_an_error(name: str, variant: str, tmp_path: Path):
    train(name, variant, tmp_path)


def test_a_label_stands_for_one_environment():
    for name, variant in all_variants(CONFIGS):
        assert environment_specs(load(name, variant)), (name, variant)


def test_no_config_is_left_out():
    pairs = all_variants(CONFIGS)
    assert len(pairs) == len(set(pairs)) > 150
    modules = {name for name, _ in pairs}
    files = {x.stem for x in CONFIGS.glob("*.py") if "def get_config" in x.read_text()}
    assert modules == files and {("lookup_arpo", "tools"), ("wordle431_grpo", "")} < set(pairs)
