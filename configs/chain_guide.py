"""A Practitioner's Guide (arXiv 2510.01132) on a chain: per-turn rewards against one at the end.

Both with PPO or RLOO. Published settings: KL .01 in the reward (PPO) or .001 in the loss (RLOO),
GAE with gamma 1, clip .2; the critic's learning rate ten times the policy's, here three times. The
reward of a turn is its progress, that of the last right letter also the outcome's: a won episode
sums to 1, a lost one to less than half. The late reward is the outcome, 1 or 0, on the last turn.
Three mistakes are allowed, and a step has 16 episodes, so that the first steps have few successes.

Expected effect: PPO gains from dense rewards (`:method` against `:base`); RLOO is hardly affected
(`:rloo`, `:rloo_late`).

Hardware: 2 CPU cores; time: about 100 s of processor time for both sides; score: see
docs/methods.md

    agentrl-train --config=configs/chain_guide.py[:base|pair|rloo|rloo_late]
"""

from typing import Any

from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.methods import practitioners_ppo, practitioners_rloo
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    SmallTask,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment

CHAIN_WITH_PROGRESS = SmallTask(
    "Chain-v0",
    "weak",
    128,
    3,
    {"length": 12, "horizon": 15, "progress": True},
    sft_steps=150,
)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(CHAIN_WITH_PROGRESS)
    with_critic = {**settings, "critic": CriticConfig(CRITIC_HEAD, AdamWConfig(3e-3))}
    late: dict[str, Any] = {"rewards": OutcomeReward()}
    algorithm = pick(
        variant,
        "chain_guide",
        method=practitioners_ppo(CRITIC_HEAD, **with_critic),
        base=practitioners_ppo(CRITIC_HEAD, **with_critic, **late),
        rloo=practitioners_rloo(**settings),
        rloo_late=practitioners_rloo(**settings, **late),
    )
    return small_experiment(
        "chain-guide", CHAIN_WITH_PROGRESS, algorithm, rollouts(4, 4), steps=25, label="PPO"
    )
