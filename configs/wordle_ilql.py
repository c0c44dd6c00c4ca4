"""ILQL (arXiv 2206.11871) on Wordle as LMRL-Gym has it (arXiv 2311.18232), at a size for a CPU: imitate, learn values, steer by them.

Published: 1M games of a policy that plays a consistent word or any, gamma .99, tau .7, CQL's weight .01, values that start at -4.4, beta
32 (1 to 128 were swept), GPT-2 small. Here 16 words (`:full`: all 431), 4,000 games, 60 thousand weights, and rates to match;
`:monte_carlo` regresses Q on the games' returns. Raw means that were published: BC -2.81, MC -2.16, ILQL -2.04, of at best -1.94.

Expected effect: steered by its values the policy does better than imitation alone (the row SFT of the table).

agentrl-train --config=configs/wordle_ilql.py[:monte_carlo|full]
"""

from agentrl_jax.algorithms.methods.lmrl import ilql, monte_carlo
from agentrl_jax.configs.small import Task, pick, small
from agentrl_jax.experiment import Demonstrations, Experiment
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.steered import SteeredConfig
from agentrl_jax.optimizer import AdamWConfig


def get_config(variant: str = "method") -> Experiment:
    settings = {"optimizer": AdamWConfig(1e-3, warmup_steps=20, b2=0.95), "bin_length": 96, "microbatch": 16}
    algorithm, words, twins = pick(
        variant, "wordle_ilql",
        method=(ilql(**settings), 16, 2), full=(ilql(**settings), 431, 2), monte_carlo=(monte_carlo(**settings), 16, 1),
    )  # fmt: skip
    task = Task("Wordle-v0", "mixture", 96, 12, {"words": words})
    config = small("wordle-ilql", task, algorithm, Demonstrations(batch=32), steps=300, label="ILQL")
    assert isinstance(config.policy, DecoderConfig)
    q, v = HeadConfig(bias=-4.4), HeadConfig(bias=-4.4)
    config.policy = SteeredConfig(config.policy, q, v, twins, beta=8.0)
    return config
