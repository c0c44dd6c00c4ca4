"""Advantages (slot `advantage`) of parts of a text: tokens within a span have a return of their
own.
"""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import turn_index
from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.algorithms.advantages.returns import reward_to_go
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.trajectories import Turn


@dataclass
class SpanModulated:
    """3D-SPO: A_n = (f_n R_j - mean_group(R)) / (std_group(R) + eps), on token n of trajectory j.

    R_j = sum_t gamma^t r_t; f_n is the token's entry of `info["token_factors"]`, which the strategy
    `SpanFactors` makes of spans: a wrong coordinate lowers its own tokens' return alone. Mean and
    unbiased std are those of R, without factors. Where all returns of a group are equal, std counts
    1; a group of one has mean 0 and std 1. Factors of 1 are `group_normalized` (MetaSpatial, arXiv
    2503.18470, from descriptions: its code has no such step).

    Raises:
        UserError: a turn's info has no `token_factors`, or not one for each of its tokens.
    """

    gamma: float = 1.0  # of turns
    eps: float = 1e-6

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        returns = reward_to_go(inputs.turn_reward, inputs.turn_trajectory, self.gamma)
        is_first = turn_index(inputs) == 0
        value = np.zeros(len(inputs.trajectory_group))
        value[inputs.turn_trajectory[is_first]] = returns[is_first]
        mean, std = np.zeros(len(value)), np.ones(len(value))
        for group in np.unique(inputs.trajectory_group):
            members = inputs.trajectory_group == group
            if members.sum() == 1:
                continue
            low, high = value[members].min(), value[members].max()
            mean[members] = low if low == high else value[members].mean()
            if low < high:
                std[members] = value[members].std(ddof=1)
        factors = [np.zeros(0)]
        counts = np.bincount(inputs.token_turn, minlength=len(inputs.turns))
        factors += [_factors(turn, int(n)) for turn, n in zip(inputs.turns, counts)]
        owner = inputs.token_trajectory
        return (np.concatenate(factors) * value[owner] - mean[owner]) / (std[owner] + self.eps)


def _factors(turn: Turn, tokens: int) -> np.ndarray:
    """The factors of a turn's tokens. Raises UserError where they are something else."""
    if not tokens:
        return np.zeros(0)
    factors = np.asarray(info_field(turn, "token_factors"), np.float64)
    if factors.shape != (tokens,) or not np.isfinite(factors).all():
        raise UserError(
            f"a turn's info['token_factors'] must hold {tokens} finite numbers, one for each token "
            "that the policy wrote: let the strategy SpanFactors make them"
        )
    return factors
