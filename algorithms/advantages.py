"""Advantages (slot A): functions of index arrays that return one number per policy-written token."""

import numpy as np

from agentrl_jax.rows import Indices


def group_mean(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Mean of `values` [J] over each group, given back per member [J]; of equal values it is exactly that value."""
    count = np.bincount(group)
    lowest = np.full(len(count), np.inf)
    np.minimum.at(lowest, group, values)
    return lowest[group] + (np.bincount(group, values - lowest[group]) / np.maximum(count, 1))[group]


def group_centred(indices: Indices) -> np.ndarray:
    """Dr.GRPO: A_i = R_i - mean_group(R), on every token of trajectory i (arXiv 2503.20783). A group of one keeps R_i."""
    returns, group = indices.trajectory_return, indices.trajectory_group
    alone = np.bincount(group)[group] == 1 if len(group) else np.zeros(0, bool)
    centred = returns - np.where(alone, 0.0, group_mean(returns, group)) if len(group) else returns
    return centred[indices.token_trajectory]


def group_normalized(indices: Indices) -> np.ndarray:
    """GRPO: A_i = (R_i - mean_group) / (std_group + 1e-6), on every token of trajectory i (arXiv 2402.03300).

    std is the unbiased one (n - 1); a group of one has mean 0 and std 1.
    """
    returns, group = indices.trajectory_return, indices.trajectory_group
    if not len(group):
        return np.zeros(0)
    count = np.bincount(group)[group]
    centred = returns - np.where(count == 1, 0.0, group_mean(returns, group))
    variance = np.bincount(group, centred**2)[group] / np.maximum(count - 1, 1)
    std = np.where(count == 1, 1.0, np.sqrt(variance))
    return (centred / (std + 1e-6))[indices.token_trajectory]
