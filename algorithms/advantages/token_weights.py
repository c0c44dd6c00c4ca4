"""Aggregations (slot `aggregation`): the weight of each policy-written token in the loss, over the
global batch. Weights are data.

With a mask, they receive the indices of the tokens that it keeps (`token_masks.select_tokens`): a
turn, sequence or trajectory that has no token left is not counted.
"""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.learner.sequences import TokenIndex


def _inverse_count(owner: np.ndarray) -> np.ndarray:
    """1 / (number of tokens that have the same owner)."""
    return 1.0 / np.bincount(owner)[owner]


def _mean_of_sums(owner: np.ndarray, constant: float) -> np.ndarray:
    """1 / (number of owners x constant)."""
    return np.ones(len(owner)) / (constant * len(np.unique(owner)))


def _mean_of_means(owner: np.ndarray) -> np.ndarray:
    """1 / (number of owners x number of the owner's tokens)."""
    return _inverse_count(owner) / len(np.unique(owner))


def token_mean(indices: TokenIndex) -> np.ndarray:
    """The mean over all tokens: 1 / N."""
    n = len(indices.token_sequence)
    return np.ones(n) / n


def trajectory_mean(indices: TokenIndex) -> np.ndarray:
    """Mean over trajectories of the mean over their tokens: 1 / (J n_j)."""
    return _mean_of_means(indices.token_trajectory)


@dataclass
class TrajectorySum:
    """Dr.GRPO: mean over trajectories of the sum over tokens / constant (for example the maximum
    length): 1 / (J constant).
    """

    constant: float

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        return _mean_of_sums(indices.token_trajectory, self.constant)


def sequence_mean(indices: TokenIndex) -> np.ndarray:
    """Mean over training sequences of the mean over their tokens; a trajectory whose history was
    rewritten has several.
    """
    return _mean_of_means(indices.token_sequence)


@dataclass
class SequenceSum:
    """Mean over training sequences of the sum over tokens / constant."""

    constant: float = 1.0

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        return _mean_of_sums(indices.token_sequence, self.constant)


def step_mean(indices: TokenIndex) -> np.ndarray:
    """Mean over all turns of the mean over their tokens: with `step_surrogate`, the mean over steps
    (VLA-RL, arXiv 2505.18719).
    """
    return _mean_of_means(indices.token_turn)


@dataclass
class StepSum:
    """Mean over all turns of the sum over tokens / constant: with -A logp, the log-probs of whole
    actions.
    """

    constant: float = 1.0

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        return _mean_of_sums(indices.token_turn, self.constant)


def turn_mean(indices: TokenIndex) -> np.ndarray:
    """Three nested means: over trajectories, their turns, and the turns' tokens (WebAgent-R1, arXiv
    2505.16421).
    """
    _, first = np.unique(indices.token_turn, return_index=True)
    owner = indices.token_trajectory
    num_turns = np.bincount(owner[first])
    return _inverse_count(indices.token_turn) / num_turns[owner] / len(np.unique(owner))
