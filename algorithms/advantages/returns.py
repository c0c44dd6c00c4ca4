"""Rewards on tokens and rewards-to-go: discounted sums from the end, for all ragged trajectories at
once.
"""

import numpy as np

from agentrl_jax.learner.sequences import TokenIndex


def discounted_reverse_cumsum(values: np.ndarray, discount: np.ndarray) -> np.ndarray:
    """y_t = x_t + discount_t y_{t+1} from the end, [U]; a discount of 0 ends a sum.

    Computed by doubling: after k rounds y_t holds the next 2^k terms, discount_t their product.
    """
    y, discount = np.array(values, np.float64), np.array(discount, np.float64)
    reach = 1
    while reach < len(y) and discount.any():
        y[:-reach] += discount[:-reach] * y[reach:]
        discount[:-reach] *= discount[reach:]
        discount[-reach:] = 0.0
        reach *= 2
    return y


def has_successor(owner: np.ndarray) -> np.ndarray:
    """Whether the next unit has the same owner, bool [U]."""
    return np.append(owner[1:] == owner[:-1], False)[: len(owner)]


def reward_to_go(
    rewards: np.ndarray, owner: np.ndarray, gamma: float = 1.0, stop: np.ndarray | None = None
) -> np.ndarray:
    """R_t = r_t + gamma R_{t+1} within an owner, [U]; where `stop` [U] is true, R_t = r_t."""
    continues = has_successor(owner) if stop is None else has_successor(owner) & ~stop
    return discounted_reverse_cumsum(rewards, gamma * continues)


def last_token_of_turn(indices: TokenIndex) -> np.ndarray:
    """The last policy-written token of each turn, int [R].

    For a turn without any: the last one before it in the trajectory, else the first after it, else
    -1.
    """
    turns = np.arange(len(indices.turn_trajectory))
    before = np.searchsorted(indices.token_turn, turns, side="right") - 1
    # Index -1 and the index after the last token belong to no trajectory.
    owner = np.append(indices.token_trajectory, -1)
    trajectory = indices.turn_trajectory
    after = np.where(owner[before + 1] == trajectory, before + 1, -1)
    return np.where(owner[before] == trajectory, before, after)


def token_rewards(indices: TokenIndex) -> np.ndarray:
    """Each turn's reward on its last policy-written token (`last_token_of_turn`), float64 [N]."""
    end = last_token_of_turn(indices)
    return np.bincount(
        end[end >= 0], indices.turn_reward[end >= 0], minlength=len(indices.token_turn)
    )
