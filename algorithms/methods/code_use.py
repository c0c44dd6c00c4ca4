"""Agents that run code or queries: ReTool, ARTIST, R1-Code-Interpreter, MARS-SQL, DataMind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.token_weights import token_mean, trajectory_mean
from agentrl_jax.algorithms.experience.rewards import OutcomeReward, WeightedParts
from agentrl_jax.algorithms.experience.schedules import Complement, Cosine, ScalarOrSchedule
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.methods.group_relative import dapo_filter
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import Imitation
from agentrl_jax.learner.optimizer import AdamWConfig


def retool(**settings: Any) -> PolicyGradientConfig:
    """ReTool (arXiv 2504.11536), as its recipe in verl: group-normalized advantages, clip .2 and
    .28, token mean, no KL, learning rate 1e-6. The paper uses PPO (`ppo`).

    The reward is the environment's: 1 if right, else -1 to -.6 by the number of messages.
    """
    return replace(
        PolicyGradientConfig(
            group_normalized, token_mean, PPO(0.2, 0.28), optimizer=AdamWConfig(1e-6)
        ),
        **settings,
    )


def artist(weights: Mapping[str, float] | None = None, **settings: Any) -> PolicyGradientConfig:
    """ARTIST (arXiv 2505.01441): GRPO on the sum of rewards for answer, format and tool calls.

    Its learning rate is not known to us.

    Args:
        weights: of the reward's parts, such as {"answer": 1} for the outcome alone; None: the
            environment's reward, which is their sum.
        settings: further fields.
    """
    rewards = None if weights is None else WeightedParts(weights)
    return replace(
        PolicyGradientConfig(group_normalized, trajectory_mean, PPO(), rewards=rewards), **settings
    )


def r1_code_interpreter(**settings: Any) -> PolicyGradientConfig:
    """R1-Code-Interpreter (arXiv 2505.21668): GRPO on the outcome alone, without a format reward.

    Its curriculum is the task sampler `potential_stages.PotentialStages`.
    """
    return replace(
        PolicyGradientConfig(group_normalized, trajectory_mean, PPO(), rewards=OutcomeReward()),
        **settings,
    )


def mars_sql(**settings: Any) -> PolicyGradientConfig:
    """MARS-SQL's generation agent (arXiv 2511.01008): GRPO, clip .2, no KL, gradients clipped at
    .5, learning rate 1e-6.

    The reward is the environment's: -1 for an episode that breaks the format, else 1 if the
    solution's result is right and 0 if not. Published: groups of 3, temperature .6, top-p .95. The
    validator is `BestOfN` by `YesProbability` after `VerifierExamples`.
    """
    optimizer = AdamWConfig(1e-6, clip_norm=0.5)
    return replace(
        PolicyGradientConfig(group_normalized, trajectory_mean, PPO(0.2, 0.2), optimizer=optimizer),
        **settings,
    )


def datamind(
    imitation: ScalarOrSchedule | None = None, by_uncertainty: bool = False, **settings: Any
) -> PolicyGradientConfig:
    """DataMind (arXiv 2509.25084): (1 - mu) L_RL + mu L_SFT, the latter on demonstrations that the
    source mixes in (`training.sources.MixedSource`).

    Published: mu from .9 to .05 along half a cosine over 350 steps; DAPO, clip .2 and .28, without
    KL, 16 questions in groups of 4, groups whose members all succeed or all fail dropped,
    temperature .7. Its penalty for long answers is left out: an episode has a limit of tokens.

    Args:
        imitation: mu; None: as published. 0 is RL alone.
        by_uncertainty: weights demonstrated tokens by p (1 - p), as CHORD (arXiv 2508.11408).
        settings: further fields.
    """
    mu = Cosine(0.9, 0.05, 350) if imitation is None else imitation
    return replace(
        PolicyGradientConfig(
            group_normalized,
            token_mean,
            PPO(0.2, 0.28),
            filter=dapo_filter(),
            auxiliaries=(Imitation(mu, by_uncertainty=by_uncertainty),),
            policy_weight=Complement(mu),
            rescore=by_uncertainty,
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )
