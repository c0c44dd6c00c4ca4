"""Wordle (LMRL-Gym, arXiv 2311.18232): demonstrations -> fine-tuning -> GRPO (arXiv 2402.03300), from scratch.

agentrl-train --config=configs/wordle_grpo.py            128 words, about three and a half minutes on 2 CPU cores
agentrl-train --config=configs/wordle_grpo.py:smoke      the same in under a minute, learns little
"""

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
)
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent

LONGEST = 80  # tokens of a whole game, with room to spare


def get_config(variant: str = "quickstart") -> Experiment:
    if variant not in ("quickstart", "smoke"):
        raise UserError(f"configs/wordle_grpo.py has no variant {variant!r}, only smoke")
    config = Experiment(
        name="quickstart",
        environment=EnvironmentConfig("agentrl_jax.envs:agentrl/Wordle-v0", {"words": 128}, workers=2),
        agent=AgentConfig(budget=12),
        tokenizer=BytePairs(vocab_size=128, all_bytes=False),
        policy=DecoderConfig(layers=3, width=64, hidden=192, heads=4, kv_heads=2, head_size=16),
        demonstrations=DemonstrationConfig("consistent", episodes=30_000),
        sft=Phase(
            "SFT",
            Demonstrations(batch=32),
            SupervisedConfig(
                optimizer=AdamWConfig(4e-3, warmup_steps=50, final_fraction=0.1, weight_decay=0.01), bin_length=LONGEST, microbatch=16
            ),
            steps=2000,
            checkpoint_every=500,
        ),
        rl=Phase(
            "GRPO",
            Rollouts(tasks=32, strategy=Independent(group_size=8)),
            grpo(optimizer=AdamWConfig(1e-3, warmup_steps=5), minibatches=2, bin_length=LONGEST, microbatch=32),
            steps=120,
            checkpoint_every=40,
        ),
        evaluation=EvaluationConfig(episodes=512, players=("random", "consistent", "expert")),
        engine=EngineConfig(rows=256, positions=LONGEST, chunk=8, burst=6, patience=0.1),
    )
    if variant == "smoke":
        config.name = "quickstart-smoke"
        assert config.demonstrations and config.sft and config.rl
        config.demonstrations.episodes, config.evaluation.episodes = 1000, 64
        config.sft.steps, config.rl.steps = 20, 5
        config.rl.source = Rollouts(tasks=8, strategy=Independent(group_size=8))
    return config
