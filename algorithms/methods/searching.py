"""Agents that search: Search-R1, AI-SearchPlanner, Search Self-play, Chain-of-Agents."""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import GroupedBy, group_normalized
from agentrl_jax.algorithms.advantages.token_weights import trajectory_mean
from agentrl_jax.algorithms.experience.rewards import OutcomeReward, WeightedParts
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.actor_critic import ppo
from agentrl_jax.algorithms.methods.group_relative import dapo
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticHeadConfig
from agentrl_jax.algorithms.strategies.proposer_solver import group_or_proposers
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


def ai_search_planner(
    head: CriticHeadConfig, process_weight: float, cost_weight: float, **settings: Any
) -> PolicyGradientConfig:
    """AI-SearchPlanner (arXiv 2508.20368): PPO on gain + lambda rationality - alpha cost.

    The reward's parts are those of `ScoredEpisodes`: `reader`, the score of a frozen reader's
    answer; `baseline`, minus its score without the plan; `process`, its judgement of the plan; and
    the environment's `cost`, minus turns and queries. lambda and alpha are not published; alpha
    moves along the Pareto curve of score and cost.

    Args:
        head: of the critic.
        process_weight: lambda.
        cost_weight: alpha.
        settings: further fields.
    """
    weights = {"reader": 1.0, "baseline": 1.0, "process": process_weight, "cost": cost_weight}
    return ppo(head, **{"rewards": WeightedParts(weights), **settings})


def search_self_play(**settings: Any) -> PolicyGradientConfig:
    """Search Self-play (arXiv 2510.18821): GRPO of the solver, and for the proposer, of which a
    question has one episode, advantages that are normalized over the batch; clip .2 and .285, KL
    .01, learning rate 1e-6.

    Published for the proposer: REINFORCE++ in the code's defaults, GRPO in its script. Both roles
    are one model; questions, check and pool are the strategy `ProposerSolver`.
    """
    return replace(
        PolicyGradientConfig(
            GroupedBy(group_or_proposers),
            trajectory_mean,
            PPO(0.2, 0.285),
            regularizers={"kl": KL(1e-2)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def chain_of_agents(format_weight: float = 0.0, **settings: Any) -> PolicyGradientConfig:
    """Chain-of-Agents' web agent (arXiv 2508.13167): DAPO without KL, clip .2 and .28, groups whose
    members all succeed or all fail dropped, learning rate 1e-6.

    Published: groups of 8, 64 questions a step of 128 that are generated, 60 steps, a language
    model as judge. Before it the model is fine-tuned on transcripts of a team of agents.

    Args:
        format_weight: w, of the reward w format + (1 - w) outcome; published: 0, and .1 in a
            variant.
        settings: further fields.
    """
    weights = {"outcome": 1.0 - format_weight, "format": format_weight}
    rewards = WeightedParts(weights) if format_weight else OutcomeReward()
    return dapo(**{"rewards": rewards, "optimizer": AdamWConfig(1e-6), **settings})
