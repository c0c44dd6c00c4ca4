"""A Practitioner's Guide (arXiv 2510.01132) on a chain: rewards for each turn against one at the end, with PPO or RLOO.

Recipes: KL .01 in the reward (PPO) or .001 in the loss (RLOO), GAE with gamma 1, clip .2; the critic's rate ten times the policy's,
here three times. A turn is paid for progress, so that a won episode sums to 1.

Expected effect: PPO gains from dense rewards (`:method` against `:base`); RLOO hardly cares (`:rloo`, `:rloo_single`).

agentrl-train --config=configs/chain_guide.py[:base|rloo|rloo_single]
"""

from agentrl_jax.algorithms.critics import CriticConfig
from agentrl_jax.algorithms.methods.critics import practitioners_ppo, practitioners_rloo
from agentrl_jax.configs.small import HEAD, Task, pick, rates, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.optimizer import AdamWConfig

PROGRESS = Task("Chain-v0", "weak", 200, 3, {"length": 8, "progress": True})


def get_config(variant: str = "method") -> Experiment:
    critic = {"critic": CriticConfig(HEAD, AdamWConfig(3e-3))}
    algorithm = pick(
        variant, "chain_guide",
        method=practitioners_ppo(HEAD, **rates(PROGRESS, **critic)), base=practitioners_ppo(HEAD, False, **rates(PROGRESS, **critic)),
        rloo=practitioners_rloo(**rates(PROGRESS)), rloo_single=practitioners_rloo(False, **rates(PROGRESS)),
    )  # fmt: skip
    return small("chain-guide", PROGRESS, algorithm, label="PPO")
