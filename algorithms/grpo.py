"""GRPO (DeepSeekMath, arXiv 2402.03300) and Dr.GRPO (arXiv 2503.20783)."""

from agentrl_jax.algorithms.advantages import group_centred, group_normalized
from agentrl_jax.algorithms.aggregation import TrajectorySum, trajectory_mean
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.surrogates import PPO


def grpo(**settings) -> PolicyGradientConfig:
    """Group-normalised advantages, clipped surrogate, mean of trajectory means; no KL unless a regulariser says so."""
    return PolicyGradientConfig(group_normalized, trajectory_mean, PPO(), **settings)


def dr_grpo(longest: float, **settings) -> PolicyGradientConfig:
    """No division by the group's std nor by a trajectory's length: sums over tokens / `longest`."""
    return PolicyGradientConfig(group_centred, TrajectorySum(longest), PPO(), **settings)
