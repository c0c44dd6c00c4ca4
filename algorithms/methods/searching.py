"""Agents that search: Search-R1."""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.token_weights import trajectory_mean
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def search_r1(**settings: Any) -> PolicyGradientConfig:
    """Search-R1 (arXiv 2503.09516) with GRPO: clip .2, KL .001, learning rate 1e-6.

    The reward is the environment's: 1 for an exact match. Retrieved text is an observation, and
    observations have no loss. Published: groups of 5, a linear warm-up over .285 of the steps. Its
    other variant is PPO (`ppo`).
    """
    return replace(
        PolicyGradientConfig(
            group_normalized,
            trajectory_mean,
            PPO(),
            regularizers={"kl": KL(1e-3)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )
