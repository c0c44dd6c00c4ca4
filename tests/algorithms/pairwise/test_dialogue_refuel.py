"""The config of REFUEL and its baselines: each variant is a valid config, and those that read
demonstrations run to their end.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl_jax.algorithms.pairwise.algorithm import PairwiseConfig
from agentrl_jax.configs.dialogue_refuel import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.training.loop import train
from agentrl_jax.training.sources import Rollouts

ROLL_INS = ("refuel", "last_turn", "last_turn_mixed", "last_turn_offline", "multi_turn_mixed")


@pytest.mark.parametrize(
    "variant",
    [*ROLL_INS, *(f"{name}_dpo" for name in ROLL_INS), "horizon", "online", "judged", "rebel"],
)
def test_every_variant_is_read_back_unchanged(variant: str):
    config = get_config(variant)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_dpo_variants_differ_only_in_the_loss():
    for name in ROLL_INS:
        regression, other = (get_config(variant).phases["rl"] for variant in (name, f"{name}_dpo"))
        assert regression.source == other.source and isinstance(
            regression.algorithm, PairwiseConfig
        )
        assert isinstance(other.algorithm, PairwiseConfig)
        assert (
            dataclasses.replace(other.algorithm, loss=regression.algorithm.loss)
            == regression.algorithm
            != other.algorithm
        )
    with pytest.raises(UserError, match="no variant 'first_turn'"):
        get_config("first_turn")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["last_turn_offline", "multi_turn_mixed"])
def test_pairs_from_demonstrations_run_to_their_ends(variant: str, tmp_path: Path):
    config: Any = get_config(variant)
    phase = config.phases["rl"]
    assert isinstance(phase.source, Rollouts)
    config.phases, config.demonstrations.episodes = {"rl": phase}, 300
    phase.steps, phase.source.tasks, phase.algorithm.microbatch = 3, 8, 4
    config.policy = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
    config.evaluation.episodes, config.evaluation.players = 4, ()
    train(config, tmp_path, quiet=True)
    lines = [line for _, line in jsonl.read_lines(tmp_path / "metrics.jsonl")]
    assert [line["step"] for line in lines] == [0, 1, 2] and all(
        line["pairs"] + line["pairs/identical"] == 8 for line in lines
    )
    assert all(line["first/log_ratio"] == 0 and line["first/logp_gap"] < 1e-5 for line in lines)
    assert lines[-1]["time/compilations"] == 0
