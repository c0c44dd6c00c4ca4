"""Wordle as LMRL-Gym has it, all 431 words: the quickstart's recipe with a larger policy and a longer run.

    agentrl-train --config=configs/wordle431_grpo.py

The result of the run is in docs/wordle.md.
"""

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.configs.wordle_grpo import LONGEST
from agentrl_jax.configs.wordle_grpo import get_config as quickstart
from agentrl_jax.experiment import DemonstrationConfig, Demonstrations, Experiment, Phase, Rollouts
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent


def get_config() -> Experiment:
    config = quickstart()
    config.name = "wordle431"
    config.environment.options = {}
    config.policy = DecoderConfig(layers=3, width=96, hidden=288, heads=4, kv_heads=2, head_size=24)
    config.demonstrations = DemonstrationConfig("consistent", episodes=100_000)
    config.sft = Phase(
        "SFT",
        Demonstrations(batch=48),
        SupervisedConfig(
            optimizer=AdamWConfig(3e-3, warmup_steps=100, final_fraction=0.1, weight_decay=0.01), bin_length=LONGEST, microbatch=24
        ),
        steps=3500,
        checkpoint_every=500,
    )
    config.rl = Phase(
        "GRPO",
        Rollouts(tasks=32, strategy=Independent(group_size=8)),
        grpo(optimizer=AdamWConfig(1e-3, warmup_steps=10, final_fraction=0.1), minibatches=2, bin_length=LONGEST, microbatch=32),
        steps=150,
        checkpoint_every=25,
    )
    return config
