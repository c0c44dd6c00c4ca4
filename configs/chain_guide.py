"""A Practitioner's Guide (arXiv 2510.01132) on a chain: per-turn rewards against one at the end.

Both with PPO or RLOO. Published settings: KL .01 in the reward (PPO) or .001 in the loss (RLOO),
GAE with gamma 1, clip .2; the critic's learning rate ten times the policy's, here three times. The
reward of a turn is its progress, so that a won episode sums to 1.

Expected effect: PPO gains from dense rewards (`:method` against `:base`); RLOO is hardly affected
(`:rloo`, `:rloo_single`).

Hardware: 2 CPU cores; time: about 3 minutes; score: return 1.92, SFT 1.66 (seed 0)

    agentrl-train --config=configs/chain_guide.py[:base|rloo|rloo_single]
"""

from agentrl_jax.algorithms.methods import practitioners_ppo, practitioners_rloo
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    SmallTask,
    pick,
    small_experiment,
    training_settings,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment

CHAIN_WITH_PROGRESS = SmallTask("Chain-v0", "weak", 200, 3, {"length": 8, "progress": True})


def get_config(variant: str = "method") -> Experiment:
    critic = {"critic": CriticConfig(CRITIC_HEAD, AdamWConfig(3e-3))}
    algorithm = pick(
        variant,
        "chain_guide",
        method=practitioners_ppo(CRITIC_HEAD, **training_settings(CHAIN_WITH_PROGRESS, **critic)),
        base=practitioners_ppo(
            CRITIC_HEAD, False, **training_settings(CHAIN_WITH_PROGRESS, **critic)
        ),
        rloo=practitioners_rloo(**training_settings(CHAIN_WITH_PROGRESS)),
        rloo_single=practitioners_rloo(False, **training_settings(CHAIN_WITH_PROGRESS)),
    )
    return small_experiment("chain-guide", CHAIN_WITH_PROGRESS, algorithm, label="PPO")
