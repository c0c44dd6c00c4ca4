"""An environment of each adapter, taken from its package, trained on by a config of 15 lines."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.small import SmallTask, rollouts, small_experiment, training_settings
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.training import loop
from agentrl_jax.training.config import DemonstrationConfig, Experiment

# id, options, and the module that it needs
ENVIRONMENTS = {
    "pig": ("OpenSpiel-v0", {"game": "pig(winscore=10)", "horizon": 12}, "pyspiel"),
    "rock, paper, scissors": ("PettingZoo-v0", {"name": "classic/rps-v2"}, "pygame"),
    "Nim": ("TextArena-v0", {"name": "Nim-v0-raw"}, "textarena"),
    "treasure hunter": (
        "TextWorld-v0",
        {"kind": "treasure_hunter", "games": 2, "horizon": 2},
        "textworld",
    ),
    "BabyAI": ("BabyAI-v0", {"level": "GoToObjS4", "horizon": 3}, "minigrid"),
    "CartPole": (
        "GymnasiumText-v0",
        {"name": "CartPole-v1", "parts": ["x", "v", "angle", "spin"], "horizon": 6},
        "gymnasium",
    ),
}


def get_config(environment: str, options: dict[str, Any]) -> Experiment:
    task = SmallTask(environment, "random", 1024, 24, options, sft_steps=5)
    source = rollouts(tasks=2, group_size=2)
    config = small_experiment(
        "adapter", task, grpo(**training_settings(task)), source, 2, players=()
    )
    config.demonstrations = DemonstrationConfig("random", 40)
    config.policy = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
    config.engine.rows = 4
    config.evaluation.episodes = 2
    return config


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_it_is_trained_on_for_a_few_steps(name: str, tmp_path: Path):
    environment, options, module = ENVIRONMENTS[name]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make test-extras does it")
    loop.train(get_config(environment, options), tmp_path / "run", quiet=True)
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["phase"] == "rl"]
    assert len(steps) == 2 and all(step["rollout/turns"] > 0 for step in steps)
    assert all(step["rollout/dropped"] == 0 for step in steps)
