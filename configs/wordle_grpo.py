"""Wordle (LMRL-Gym, arXiv 2311.18232): demonstrations, fine-tuning, then GRPO, all from scratch.

The method is GRPO (arXiv 2402.03300), on 128 words; the policy has no pretrained weights. `:smoke`
is the same in under a minute and learns little.

Hardware: 2 CPU cores; time: about 3.5 minutes; score: return -2.4, 3 seeds (docs/wordle.md)

    agentrl-train --config=configs/wordle_grpo.py
    agentrl-train --config=configs/wordle_grpo.py:smoke
"""

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts

MAX_LENGTH = 80  # tokens of a whole game, with room to spare


def get_config(variant: str = "quickstart") -> Experiment:
    if variant not in ("quickstart", "smoke"):
        raise UserError(f"configs/wordle_grpo.py has no variant {variant!r}, only smoke")
    config = Experiment(
        name="quickstart",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/Wordle-v0", {"words": 128}, workers=2
        ),
        agent=AgentConfig(budget=12),
        tokenizer=BPETokenizer(vocab_size=128, all_bytes=False),
        policy=DecoderConfig(layers=3, width=64, hidden=192, heads=4, kv_heads=2, head_size=16),
        demonstrations=DemonstrationConfig("consistent", episodes=30_000),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(batch=32),
                BehaviorCloningConfig(
                    optimizer=AdamWConfig(
                        4e-3, warmup_steps=50, final_fraction=0.1, weight_decay=0.01
                    ),
                    bin_length=MAX_LENGTH,
                    microbatch=16,
                ),
                steps=2000,
                checkpoint_every=500,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(tasks=32, strategy=IndependentEpisodes(group_size=8)),
                grpo(
                    optimizer=AdamWConfig(1e-3, warmup_steps=5),
                    minibatches=2,
                    bin_length=MAX_LENGTH,
                    microbatch=32,
                ),
                steps=120,
                checkpoint_every=40,
            ),
        },
        evaluation=EvaluationConfig(episodes=512, players=("random", "consistent", "expert")),
        engine=EngineConfig(
            rows=256, positions=MAX_LENGTH, prefill_chunk=8, min_decode_steps=6, batching_delay=0.1
        ),
    )
    if variant == "smoke":
        config.name = "quickstart-smoke"
        assert config.demonstrations
        config.demonstrations.episodes, config.evaluation.episodes = 1000, 64
        config.phases["sft"].steps, config.phases["rl"].steps = 20, 5
        config.phases["rl"].source = Rollouts(tasks=8, strategy=IndependentEpisodes(group_size=8))
    return config
