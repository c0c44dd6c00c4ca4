"""Methods whose baseline is the group: GRPO, Dr.GRPO, DAPO, GSPO, CISPO, RLOO, REINFORCE++ and
GiGPO.
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import (
    ReinforcePlusPlus,
    WeightedSum,
    group_centered,
    group_normalized,
    leave_one_out,
    reinforce_plus_plus_baseline,
)
from agentrl_jax.algorithms.advantages.grouping import anchor_of_turn
from agentrl_jax.algorithms.advantages.token_weights import (
    TrajectorySum,
    sequence_mean,
    token_mean,
    trajectory_mean,
)
from agentrl_jax.algorithms.advantages.turn import RewardToGo, TurnGroupedBy
from agentrl_jax.algorithms.experience.filters import AccuracyBand
from agentrl_jax.algorithms.experience.penalties import OverlongPenalty
from agentrl_jax.algorithms.losses.cispo import CISPO
from agentrl_jax.algorithms.losses.gspo import GSPO
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig


def grpo(**settings: Any) -> PolicyGradientConfig:
    """GRPO (DeepSeekMath, arXiv 2402.03300): group-normalized advantages, clipped surrogate, mean
    over trajectories of their token means; no KL term unless `regularizers` has one.
    """
    return replace(PolicyGradientConfig(group_normalized, trajectory_mean, PPO()), **settings)


def dr_grpo(max_length: float, **settings: Any) -> PolicyGradientConfig:
    """Dr.GRPO (arXiv 2503.20783): no division by the group's std or by a trajectory's length; sums
    over tokens / `max_length`.
    """
    return replace(
        PolicyGradientConfig(group_centered, TrajectorySum(max_length), PPO()), **settings
    )


def dapo(max_tokens: int = 0, overlong_buffer: int = 0, **settings: Any) -> PolicyGradientConfig:
    """DAPO (arXiv 2503.14476): clip .2 and .28, token mean, no KL; groups all solved or all failed
    are dropped.

    With `max_tokens` sampled tokens, the last `overlong_buffer` of them cost up to 1. Its dynamic
    sampling is `Rollouts(group_filter=dapo_filter(), max_rounds=...)`; without it such groups are
    only dropped.
    """
    rewards = OverlongPenalty(max_tokens, overlong_buffer) if max_tokens else None
    return replace(
        PolicyGradientConfig(
            group_normalized, token_mean, PPO(0.2, 0.28), filter=dapo_filter(), rewards=rewards
        ),
        **settings,
    )


def dapo_filter() -> AccuracyBand:
    """Groups neither all solved nor all failed."""
    return AccuracyBand(0.0, 1.0, include_low=False, include_high=False)


def gspo(**settings: Any) -> PolicyGradientConfig:
    """GSPO (arXiv 2507.18071): the ratio of a sequence is its tokens' geometric mean, clipped at
    3e-4 and 4e-4; mean over sequences of their token means.

    A sequence is a training sequence, or with `sequence=turn_of_token` a turn.
    """
    return replace(PolicyGradientConfig(group_normalized, sequence_mean, GSPO()), **settings)


def cispo(low: float = 1.0, high: float = 0.28, **settings: Any) -> PolicyGradientConfig:
    """CISPO (MiniMax-M1, arXiv 2506.13585): the clipped ratio weights the gradient of every token;
    token mean.

    The paper has no lower clip (`low` 1) and does not state its upper one; .28 is DAPO's.
    """
    return replace(PolicyGradientConfig(group_normalized, token_mean, CISPO(low, high)), **settings)


def rloo(**settings: Any) -> PolicyGradientConfig:
    """RLOO (arXiv 2402.14740): the baseline is the mean of the group's other members; token mean of
    PPO's loss, which at ratio 1 is REINFORCE's.
    """
    return replace(PolicyGradientConfig(leave_one_out, token_mean, PPO()), **settings)


def reinforce_plus_plus(gamma: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """REINFORCE++ (arXiv 2501.03262): rewards-to-go, whitened over the batch; requires no groups.

    A KL in the reward: `advantage=ReinforcePlusPlus(1.0, KLPenaltyReward(.01)), reference=True,
    rescore=True`.
    """
    return replace(
        PolicyGradientConfig(
            advantage=ReinforcePlusPlus(gamma), aggregation=token_mean, surrogate=PPO()
        ),
        **settings,
    )


def reinforce_plus_plus_with_baseline(**settings: Any) -> PolicyGradientConfig:
    """REINFORCE++-baseline (arXiv 2501.03262): the group's mean is subtracted, then whitened over
    the batch.
    """
    return replace(
        PolicyGradientConfig(reinforce_plus_plus_baseline, token_mean, PPO()), **settings
    )


def gigpo(gamma: float = 0.95, weight: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """GiGPO (arXiv 2505.10978): the episode's advantage in its group, plus each step's among the
    steps taken in the same state.

    Subtracts means only (the released default); `std=True` in both parts is the other mode.
    """
    advantage = WeightedSum(
        group_centered, TurnGroupedBy(RewardToGo(gamma), anchor_of_turn), second_weight=weight
    )
    return replace(PolicyGradientConfig(advantage, token_mean, PPO()), **settings)
