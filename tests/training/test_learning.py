"""Small runs, whole loop, that must learn."""

import json
from pathlib import Path

import pytest

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import CharacterTokenizer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage.digests import forget_digest
from agentrl_jax.training import loop
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts


def letters(sft_steps: int, rl_steps: int, layers: int = 1) -> Experiment:
    def adam() -> AdamWConfig:
        return AdamWConfig(1e-2)

    return Experiment(
        name="letters",
        environment=EnvironmentConfig("support.letter_task:tests/Letters-v0", workers=0),
        agent=AgentConfig(budget=3),
        tokenizer=CharacterTokenizer(),
        policy=DecoderConfig(layers=layers, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=64),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(16),
                BehaviorCloningConfig(optimizer=adam(), bin_length=32, microbatch=8),
                steps=sft_steps,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(8, IndependentEpisodes(8)),
                grpo(optimizer=adam(), bin_length=32, microbatch=16),
                steps=rl_steps,
            ),
        },
        evaluation=EvaluationConfig(episodes=64, players=("random", "expert")),
        engine=EngineConfig(
            rows=64, positions=32, prefill_chunk=4, min_decode_steps=3, batching_delay=0.1
        ),
        mesh=MeshConfig(devices_per_process=1),
    )


@pytest.mark.slow
def test_grpo_learns_what_random_demonstrations_do_not_contain(tmp_path: Path) -> None:
    summaries = {
        s.name: s
        for s in loop.train(letters(sft_steps=30, rl_steps=40), tmp_path / "run", quiet=True)
    }
    assert 1.0 < summaries["SFT"].mean_return < 2.0  # a random guess is right half of the time
    assert summaries["GRPO"].mean_return > 2.7
    assert summaries["expert"].mean_return == 3.0
    difference = json.loads((tmp_path / "run" / "summary.json").read_text())["difference"]
    assert difference[0] - difference[1] > 0
    for name in (
        "metrics.jsonl",
        "trajectories",
        "curves.png",
        "tensorboard",
        "checkpoints/sft",
        "checkpoints/rl",
    ):
        assert (tmp_path / "run" / name).exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_architecture_is_named(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    loop.train(letters(sft_steps=1, rl_steps=1), run_dir, quiet=True)
    config = run_dir / "config.json"
    config.write_text(config.read_text().replace('"width": 16', '"width": 32'))
    forget_digest(config)
    with pytest.raises(UserError, match="another architecture"):
        load_policy(run_dir)
    wider = letters(sft_steps=2, rl_steps=1)
    assert isinstance(wider.policy, DecoderConfig)
    wider.policy.width = 32
    config.unlink()  # as if the checkpoints of another run had been copied here
    with pytest.raises(UserError, match="another architecture"):
        loop.train(wider, run_dir, quiet=True)
