"""Aggregations (slot G): the weight of each policy-written token in the loss, over the global batch. Weights are data.

Where a mask is on, they are given the indices of what it keeps (`masks.restricted`): who has no token left is not counted.
"""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.rows import Indices


def _share(owner: np.ndarray) -> np.ndarray:
    """1 / (number of tokens that have the same owner)."""
    return 1.0 / np.bincount(owner)[owner] if len(owner) else np.zeros(0)


def _mean_of_sums(owner: np.ndarray, constant: float) -> np.ndarray:
    """1 / (number of owners x constant)."""
    return np.full(len(owner), 1.0 / (constant * max(len(np.unique(owner)), 1)))


def _mean_of_means(owner: np.ndarray) -> np.ndarray:
    """1 / (number of owners x number of the owner's tokens)."""
    return _share(owner) / max(len(np.unique(owner)), 1)


def token_mean(indices: Indices) -> np.ndarray:
    """Every token counts the same: 1 / N."""
    n = len(indices.token_row)
    return np.full(n, 1.0 / max(n, 1))


@dataclass
class TokenSum:
    """Sum over all tokens / constant: 1 / constant, however many there are."""

    constant: float

    def __call__(self, indices: Indices) -> np.ndarray:
        return np.full(len(indices.token_row), 1.0 / self.constant)


def trajectory_mean(indices: Indices) -> np.ndarray:
    """Mean over trajectories of the mean over their tokens: 1 / (J n_j)."""
    return _mean_of_means(indices.token_trajectory)


@dataclass
class TrajectorySum:
    """Dr.GRPO: mean over trajectories of the sum over tokens / constant (say, the longest length): 1 / (J constant)."""

    constant: float

    def __call__(self, indices: Indices) -> np.ndarray:
        return _mean_of_sums(indices.token_trajectory, self.constant)


def row_mean(indices: Indices) -> np.ndarray:
    """Mean over training rows of the mean over their tokens: a trajectory whose history was rewritten counts as several."""
    return _mean_of_means(indices.token_row)


@dataclass
class RowSum:
    """Mean over training rows of the sum over tokens / constant."""

    constant: float = 1.0

    def __call__(self, indices: Indices) -> np.ndarray:
        return _mean_of_sums(indices.token_row, self.constant)


def step_mean(indices: Indices) -> np.ndarray:
    """Mean over all turns of the mean over their tokens: with `step_surrogate`, the mean over steps (VLA-RL, arXiv 2505.18719)."""
    return _mean_of_means(indices.token_turn)


@dataclass
class StepSum:
    """Mean over all turns of the sum over tokens / constant: of log-probs, that of whole actions."""

    constant: float = 1.0

    def __call__(self, indices: Indices) -> np.ndarray:
        return _mean_of_sums(indices.token_turn, self.constant)


def turn_mean(indices: Indices) -> np.ndarray:
    """Three nested means, over trajectories, their turns and the turns' tokens (WebAgent-R1, arXiv 2505.16421)."""
    if not len(indices.token_turn):
        return np.zeros(0)
    _, first = np.unique(indices.token_turn, return_index=True)
    owner = indices.token_trajectory
    turns_of = np.bincount(owner[first], minlength=owner.max() + 1)
    return _share(indices.token_turn) / turns_of[owner] / len(np.unique(owner))
