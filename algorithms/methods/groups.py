"""Critics are groups: DAPO, GSPO, CISPO, RLOO, REINFORCE++, GiGPO. GRPO and Dr.GRPO are in `grpo`."""

from typing import Any

from agentrl_jax.algorithms.advantages import (
    ReinforcePlusPlus,
    SumOf,
    group_centred,
    group_normalized,
    leave_one_out,
    reinforce_plus_plus_baseline,
)
from agentrl_jax.algorithms.aggregation import row_mean, token_mean
from agentrl_jax.algorithms.filters import AccuracyBand
from agentrl_jax.algorithms.keying import anchor_of_turn
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.rewards import Overlong
from agentrl_jax.algorithms.surrogates import CISPO, GSPO, PPO
from agentrl_jax.algorithms.turn_credit import RewardToGo, TurnKeyed


def dapo(longest: int = 0, buffer: int = 0, **settings: Any) -> PolicyGradientConfig:
    """DAPO (arXiv 2503.14476): clip .2 and .28, token mean, no KL; groups all right or all wrong are dropped.

    With `longest` sampled tokens, the last `buffer` of them cost up to 1. Its dynamic sampling is
    `Rollouts(keep=dapo_keeps(), rounds=...)`; without it such groups are only left out.
    """
    rewards = Overlong(longest, buffer) if longest else None
    filled = {"filter": dapo_keeps(), "rewards": rewards, **settings}
    return PolicyGradientConfig(group_normalized, token_mean, PPO(0.2, 0.28), **filled)


def dapo_keeps() -> AccuracyBand:
    """Groups neither all solved nor all failed."""
    return AccuracyBand(0.0, 1.0, include_low=False, include_high=False)


def gspo(**settings: Any) -> PolicyGradientConfig:
    """GSPO (arXiv 2507.18071): the ratio of a sequence is its tokens' geometric mean, clipped at 3e-4 and 4e-4; mean of row means.

    A sequence is a training row, or with `sequence=turn_of_token` a turn.
    """
    return PolicyGradientConfig(group_normalized, row_mean, GSPO(), **settings)


def cispo(low: float = 1.0, high: float = 0.28, **settings: Any) -> PolicyGradientConfig:
    """CISPO (MiniMax-M1, arXiv 2506.13585): the clipped ratio weighs the gradient of every token; token mean.

    The paper has no lower clip (`low` 1) and does not state its upper one; .28 is DAPO's.
    """
    return PolicyGradientConfig(group_normalized, token_mean, CISPO(low, high), **settings)


def rloo(**settings: Any) -> PolicyGradientConfig:
    """RLOO (arXiv 2402.14740): the baseline is the mean of the group's others; token mean of PPO's loss, REINFORCE's at ratio 1."""
    return PolicyGradientConfig(leave_one_out, token_mean, PPO(), **settings)


def reinforce_plus_plus(gamma: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """REINFORCE++ (arXiv 2501.03262): rewards to go, whitened over the batch; no groups needed.

    A KL in the reward: `advantage=ReinforcePlusPlus(1.0, KLInReward(.01)), reference=True, rescore=True`.
    """
    return PolicyGradientConfig(**{"advantage": ReinforcePlusPlus(gamma), "aggregation": token_mean, "surrogate": PPO(), **settings})


def reinforce_plus_plus_with_baseline(**settings: Any) -> PolicyGradientConfig:
    """REINFORCE++-baseline (arXiv 2501.03262): the group's mean is subtracted, then whitened over the batch."""
    return PolicyGradientConfig(reinforce_plus_plus_baseline, token_mean, PPO(), **settings)


def gigpo(gamma: float = 0.95, weight: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """GiGPO (arXiv 2505.10978): an episode's advantage in its group, plus that of each step among the steps taken in the same state.

    Means only (the released default); with `std=True` in both parts it is the other mode.
    """
    advantage = SumOf(group_centred, TurnKeyed(RewardToGo(gamma), anchor_of_turn), second_weight=weight)
    return PolicyGradientConfig(advantage, token_mean, PPO(), **settings)
