"""Agents that see: MGPO, ViGoRL, CodeVision, FrameThinker, VRAG-RL, MetaSpatial.

Their rewards are the environments' of `envs.vision`; what is here is how they are trained on.
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.spans import SpanModulated
from agentrl_jax.algorithms.advantages.token_weights import token_mean, trajectory_mean
from agentrl_jax.algorithms.experience.rewards import WeightedParts
from agentrl_jax.algorithms.experience.turn_rewards import ToolNecessity
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def mgpo(**settings: Any) -> PolicyGradientConfig:
    """MGPO (arXiv 2507.05920): GRPO on the answer of the last turn, KL .01, learning rate 1e-6.

    The tokens of both turns are trained, the box without a reward of its own. Published: groups of
    8, batches of 512 questions in minibatches of 128, no fine-tuning before. The two turns are
    `RegionQuestions`.
    """
    return replace(
        PolicyGradientConfig(
            group_normalized,
            trajectory_mean,
            PPO(),
            regularizers={"kl": KL(0.01)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def vigorl(**settings: Any) -> PolicyGradientConfig:
    """ViGoRL (arXiv 2505.23678): GRPO, KL .01, learning rate 1e-6.

    The reward is the environment's (`scene_protocols.vigorl`): .6 accuracy + .4 (1 + .2 (distinct
    points - 1)) where all turns are well-formed. Published: groups of 5 or 8, batches of 128 or 64,
    a frozen tower (`VisionLanguageConfig.frozen`), 500 steps, after fine-tuning on paths of a tree
    search by a larger model, bad branches corrected.
    """
    return mgpo(**settings)


def codevision(necessity: float = 0.0, **settings: Any) -> PolicyGradientConfig:
    """CodeVision (arXiv 2512.03746): GRPO, token mean, clip .2 and .28, dual clip 10, KL .001,
    learning rate 1e-6.

    The reward is the environment's (`transform_rewards.codevision`): accuracy, .1 format, the share
    of needed operations, .1 for exactly these, .2 for others in a right answer, less .5 for each
    superfluous call and spurious rotation. Published: groups of 8, batches of 64 in minibatches of
    32, after fine-tuning.

    Args:
        necessity: weight of `ToolNecessity`, 0 in the released script.
        settings: further fields.
    """
    return replace(
        PolicyGradientConfig(
            group_normalized,
            token_mean,
            PPO(0.2, 0.28, 10.0),
            rewards=ToolNecessity(necessity) if necessity else None,
            regularizers={"kl": KL(0.001)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def framethinker(**settings: Any) -> PolicyGradientConfig:
    """FrameThinker (arXiv 2509.24304): GRPO without KL, learning rate 5e-7.

    The reward is the environment's (`frame_actions.GatedReward`): 0 for an inconsistent episode,
    else accuracy and, for right answers, .5 for the time tool where the question names a time and
    .02 for chosen frames; the paper prefers .2 and 0. Published: groups of 8, batches of 32.
    """
    return replace(
        PolicyGradientConfig(group_normalized, trajectory_mean, PPO(), optimizer=AdamWConfig(5e-7)),
        **settings,
    )


def vrag_rl(retrieval: bool = True, **settings: Any) -> PolicyGradientConfig:
    """VRAG-RL (arXiv 2505.22019): GRPO, KL .01, learning rate 1e-6.

    The reward is the environment's (`PageQuestions`), 0 without a search, else .7 accuracy + .1
    format + .2 NDCG of the pages in the order of their retrieval; the released accuracy is a mark
    of a language model. Published: groups of 5, batches of 32, 4 turns, KL 0 without fine-tuning.

    Args:
        retrieval: False: without NDCG, the ablation's plain reward.
        settings: further fields.
    """
    rewards = None if retrieval else WeightedParts({"outcome": 1.0, "format": 1.0})
    return mgpo(**{"rewards": rewards, **settings})


def meta_spatial(physics: bool = True, **settings: Any) -> PolicyGradientConfig:
    """MetaSpatial (arXiv 2503.18470): 3D-SPO (`SpanModulated`), KL 1e-3, learning rate 1e-6.

    A thing that collides or violates a wish lowers the return of its coordinates alone. The factors
    of tokens are made by the strategy `SpanFactors`. Published: groups of 3 to 5, 5 turns of
    refinement; the discount and the penalties' sizes are not known to us. The paper's schedule
    (format, then physics, then looks) is left out.

    Args:
        physics: False: GRPO on the sum of the turns' rewards, the paper's baseline.
        settings: further fields.
    """
    return replace(
        PolicyGradientConfig(
            SpanModulated() if physics else group_normalized,
            trajectory_mean,
            PPO(),
            regularizers={"kl": KL(1e-3)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )
