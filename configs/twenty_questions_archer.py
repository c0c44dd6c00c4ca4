"""ArCHer (arXiv 2402.19446) on its ten words of Twenty Questions, at a size for a CPU: critics of questions, a policy of their tokens.

Published: GPT-2, a RoBERTa-base critic, 128 episodes and 50 critic and 3 actor steps of 256 an iteration, 10 iterations of warm-up,
replay of 10,000 turns, gamma .95, Polyak .1. Here 64 episodes, 30 critic steps of 32 and 3 actor steps of 64, 4 iterations of warm-up,
120 thousand weights in all, and rates to match.

Variants: `:shared` (the critic's encoder starts as the policy's trunk), `:clipped` (PPO's clip as the low level, 2 steps on the same
questions), `:baseline` (of tokens), `:monte_carlo` (critics of returns), `:chai` (a frozen policy's best question of 5), `:offline` (IQL
and AWR on the demonstrations), and beside them `:ppo` (over tokens) and `:filtered` (online filtered behaviour cloning).

Expected effect: fewer questions than after imitation alone (the row SFT of the table). Advantages are less their mean (`centred`), and
there are 16 iterations: more of them drift back, as the policy's entropy falls before so small a critic tells its questions apart.

agentrl-train --config=configs/twenty_questions_archer.py[:shared|clipped|baseline|monte_carlo|chai|offline|ppo|filtered]
"""

from typing import Any

from agentrl_jax.algorithms.archer import centred
from agentrl_jax.algorithms.methods import archer, critics, lmrl
from agentrl_jax.configs.small import HEAD, pick, rates, rollouts, small
from agentrl_jax.configs.twenty_questions import GAME, question_tokens
from agentrl_jax.experiment import Demonstrations, Experiment
from agentrl_jax.models.encoder import EncoderConfig, mean_tokens
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.models.utterance_critic import OwnEncoder, PolicyTrunk, UtteranceCriticConfig
from agentrl_jax.optimizer import AdamWConfig

ENCODER = EncoderConfig(layers=1, width=32, hidden=64, heads=2, positions=130, pool=mean_tokens)


def get_config(variant: str = "method") -> Experiment:
    heads = UtteranceCriticConfig(head=HeadConfig(layers=2, hidden=64, scale=1.0, bias=-9.0))
    shape: dict[str, Any] = {"batch": 32, "microbatch": 32, "states": (128,), "utterances": (16,), "optimizer": AdamWConfig(1e-3)}
    low: dict[str, Any] = {"optimizer": AdamWConfig(1.5e-4), "bin_length": GAME.longest, "microbatch": 16}
    loop: dict[str, Any] = {"critic_steps": 30, "batch": 64, "warmup": 4, "capacity": 10_000, "weight": centred}
    own = heads, OwnEncoder(ENCODER, question_tokens)
    values, actor = archer.values(*own, **shape), archer.actor(**low)
    algorithm = pick(
        variant, "twenty_questions_archer",
        method=archer.archer(values, actor, **loop),
        shared=archer.archer(archer.values(heads, PolicyTrunk(), **shape), actor, **loop),
        clipped=archer.archer(values, archer.clipped_actor(2, **low), **loop),
        baseline=archer.archer(values, archer.baseline_actor(HEAD, 1e-3, **low), **loop),
        monte_carlo=archer.archer(archer.monte_carlo_values(*own, **shape), actor, **loop),
        chai=archer.chai(values, critic_steps=20, batch=64, capacity=10_000),
        offline=archer.archer_offline(archer.offline_values(*own, **shape), actor, critic_steps=20, actor_steps=3, batch=64),
        ppo=critics.ppo(HEAD, **rates(GAME)),
        filtered=lmrl.online_filtered(**rates(GAME)),
    )  # fmt: skip
    source = Demonstrations(batch=64) if variant == "offline" else rollouts(tasks=64, group_size=1)
    label = {"chai": "CHAI", "ppo": "PPO", "filtered": "filtered BC"}.get(variant, "ArCHer")
    config = small(f"twenty-questions-{variant}", GAME, algorithm, source, steps=16, label=label)
    config.tokenizer = BytePairs(384, all_bytes=False)
    return config
