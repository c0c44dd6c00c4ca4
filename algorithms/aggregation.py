"""Aggregations (slot G): the weight of each policy-written token in the loss, over the global batch. Weights are data."""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.rows import Indices


def _share(owner: np.ndarray) -> np.ndarray:
    """1 / (number of tokens that have the same owner)."""
    return 1.0 / np.bincount(owner)[owner] if len(owner) else np.zeros(0)


def token_mean(indices: Indices) -> np.ndarray:
    """Every token counts the same: 1 / N."""
    n = len(indices.token_row)
    return np.full(n, 1.0 / max(n, 1))


def trajectory_mean(indices: Indices) -> np.ndarray:
    """Mean over trajectories of the mean over their tokens: 1 / (J n_j)."""
    owner = indices.token_trajectory
    return _share(owner) / max(len(np.unique(owner)), 1)


@dataclass
class TrajectorySum:
    """Dr.GRPO: mean over trajectories of the sum over tokens / constant (say, the longest length): 1 / (J constant)."""

    constant: float

    def __call__(self, indices: Indices) -> np.ndarray:
        owner = indices.token_trajectory
        return np.full(len(owner), 1.0 / (self.constant * max(len(np.unique(owner)), 1)))


def turn_mean(indices: Indices) -> np.ndarray:
    """Three nested means, over trajectories, their turns and the turns' tokens (WebAgent-R1, arXiv 2505.16421)."""
    if not len(indices.token_turn):
        return np.zeros(0)
    _, first = np.unique(indices.token_turn, return_index=True)
    owner = indices.token_trajectory
    turns_of = np.bincount(owner[first], minlength=owner.max() + 1)
    return _share(indices.token_turn) / turns_of[owner] / len(np.unique(owner))
