"""GRPO (DeepSeekMath, arXiv 2402.03300) and Dr.GRPO (arXiv 2503.20783)."""

from dataclasses import dataclass

from jaxtyping import Array

from agentrl_jax.algorithms.advantages import group_centred, group_normalized
from agentrl_jax.algorithms.aggregation import TrajectorySum, trajectory_mean
from agentrl_jax.algorithms.losses import clipped_surrogate
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig


@dataclass
class Clipped:
    """PPO's clipped surrogate with its two clip widths."""

    low: float = 0.2
    high: float = 0.2

    def __call__(self, logp: Array, proximal_logp: Array, advantage: Array) -> Array:
        return clipped_surrogate(logp, proximal_logp, advantage, clip_low=self.low, clip_high=self.high)


def grpo(**settings) -> PolicyGradientConfig:
    """Group-normalised advantages, clipped surrogate, mean of trajectory means; KL (k3) to the start is off unless set."""
    return PolicyGradientConfig(group_normalized, trajectory_mean, Clipped(), **settings)


def dr_grpo(longest: float, **settings) -> PolicyGradientConfig:
    """No division by the group's std nor by a trajectory's length: sums over tokens / `longest`."""
    return PolicyGradientConfig(group_centred, TrajectorySum(longest), Clipped(), **settings)
