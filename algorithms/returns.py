"""Rewards on tokens and what is still to come: sums from the end, for ragged trajectories at once."""

import numpy as np

from agentrl_jax.rows import Indices


def accumulated(values: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """y_t = x_t + carry_t y_{t+1}, from the end, [U]; a carry of 0 ends a sum, and nothing comes after the last.

    Computed by doubling: after k rounds y holds the next 2^k terms and carry their product.
    """
    y, carry = np.array(values, np.float64), np.array(carry, np.float64)
    reach = 1
    while reach < len(y) and carry.any():
        y[:-reach] += carry[:-reach] * y[reach:]
        carry[:-reach] *= carry[reach:]
        carry[-reach:] = 0.0
        reach *= 2
    return y


def continues(owner: np.ndarray) -> np.ndarray:
    """Whether the next unit has the same owner, bool [U]."""
    return np.append(owner[1:] == owner[:-1], False)[: len(owner)]


def reward_to_go(rewards: np.ndarray, owner: np.ndarray, gamma: float = 1.0, stop: np.ndarray | None = None) -> np.ndarray:
    """R_t = r_t + gamma R_{t+1} within an owner, [U]; where `stop` [U] is true, nothing after the unit counts."""
    goes_on = continues(owner) if stop is None else continues(owner) & ~stop
    return accumulated(rewards, gamma * goes_on)


def turn_end(indices: Indices) -> np.ndarray:
    """The last policy-written token of each turn, int [R].

    For a turn without any it is the last one before it in the trajectory, else the first after it, else -1.
    """
    turns = np.arange(len(indices.turn_trajectory))
    before = np.searchsorted(indices.token_turn, turns, side="right") - 1
    owner = np.append(indices.token_trajectory, -1)  # nobody owns the token at -1, nor the one after the last
    mine = indices.turn_trajectory
    return np.where(owner[before] == mine, before, np.where(owner[before + 1] == mine, before + 1, -1))


def token_rewards(indices: Indices) -> np.ndarray:
    """Each turn's reward on its last policy-written token, float64 [N] (see `turn_end` for turns without any)."""
    end = turn_end(indices)
    return np.bincount(end[end >= 0], indices.turn_reward[end >= 0], minlength=len(indices.token_turn))
