"""Advantages (slot `advantage`) of whole trajectories: functions of index arrays that return one
number per policy-written token, [N].
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import center, group_of_trajectory, whiten_values
from agentrl_jax.algorithms.advantages.info_fields import info_field, require_values
from agentrl_jax.algorithms.advantages.returns import reward_to_go, token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex


@dataclass(frozen=True, eq=False)
class AdvantageAndTarget:
    """The result of an estimator with a trained critic."""

    advantage: np.ndarray  # float [N]
    value_target: np.ndarray  # float [N], what the critic is regressed on


AdvantageEstimator = Callable[[CreditInputs], np.ndarray | AdvantageAndTarget]


def group_centered(indices: TokenIndex) -> np.ndarray:
    """Dr.GRPO: A_i = R_i - mean_group(R), on every token of trajectory i (arXiv 2503.20783). A
    group of one keeps R_i.
    """
    return GroupedBy(std=False)(indices)


def group_normalized(indices: TokenIndex) -> np.ndarray:
    """GRPO: A_i = (R_i - mean_group) / (std_group + 1e-6), on every token of trajectory i (arXiv
    2402.03300).

    std is the unbiased one (n - 1); a group of one has mean 0 and std 1.
    """
    return GroupedBy()(indices)


def leave_one_out(indices: TokenIndex) -> np.ndarray:
    """RLOO: A_i = R_i - mean of the other members' R (arXiv 2402.14740). A group of one keeps
    R_i.
    """
    return GroupedBy(std=False, leave_one_out=True)(indices)


@dataclass
class GroupedBy:
    """A_i = (R_i - mean_key) / (std_key + eps) over the trajectories that share a key, on every
    token of trajectory i.
    """

    key: Callable[..., np.ndarray] = group_of_trajectory  # credit inputs -> int [J]
    std: bool = True  # off: only the mean is subtracted
    eps: float = 1e-6
    leave_one_out: bool = False
    # a trajectory alone with its key keeps R_i (mean 0, std 1); off: it gets 0
    keep_singletons: bool = True

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        centered = center(
            indices.trajectory_return,
            self.key(indices),
            std=self.std,
            eps=self.eps,
            leave_one_out=self.leave_one_out,
            keep_singletons=self.keep_singletons,
        )
        return centered[indices.token_trajectory]


@dataclass
class KLPenaltyReward:
    """-coefficient (logp - ref_logp) as a reward per token (k1; logp is the learner's, before the
    update), [N].

    Raises UserError where one of the two is not known.
    """

    coefficient: float

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        gap = require_values(inputs.token_logp, "log-prob under the learner") - require_values(
            inputs.token_ref_logp, "log-prob under the reference"
        )
        return -self.coefficient * gap


TokenReward = Callable[[CreditInputs], np.ndarray]


def shaped_rewards(inputs: TokenIndex, penalty: TokenReward | None) -> np.ndarray:
    """Rewards on the turns' last tokens plus `penalty` (a KL in the reward), [N]."""
    rewards = token_rewards(inputs)
    if penalty is None:
        return rewards
    if not isinstance(inputs, CreditInputs):
        raise UserError("a reward per token needs the credit inputs, not only the indices")
    return rewards + penalty(inputs)


@dataclass
class ReinforcePlusPlus:
    """REINFORCE++: the reward-to-go of each token, discounted per policy-written token, whitened
    over the batch (arXiv 2501.03262).

    Observation tokens neither discount nor end a return. A truncated episode's return ends with it.
    """

    gamma: float = 1.0
    penalty: TokenReward | None = None  # a reward per token, for example `KLPenaltyReward`

    def __call__(self, inputs: TokenIndex) -> np.ndarray:
        return whiten_values(
            reward_to_go(shaped_rewards(inputs, self.penalty), inputs.token_trajectory, self.gamma)
        )


def reinforce_plus_plus_baseline(indices: TokenIndex) -> np.ndarray:
    """REINFORCE++ with the group's mean as baseline: `group_centered`, whitened over the tokens of
    the batch (arXiv 2501.03262).
    """
    return whiten_values(group_centered(indices))


@dataclass
class WeightedSum:
    """A = first_weight A_first + second_weight A_second: an episode's and a step's advantage.

    GiGPO (arXiv 2505.10978): `group_centered` and `TurnGroupedBy(RewardToGo(.95), anchor_of_turn)`.
    UI-S1 (2509.11543): `group_normalized` and `TurnGroupedBy(RewardToGo(.5, stop_at_mismatch),
    step_of_turn, std=True)`; its released code has `TurnGroupedBy(turn_reward, std=True,
    keep_singletons=True)`, each turn's own reward normalized over the group's turns, as the first,
    and `stop_before_mismatch`.
    """

    first: Callable[..., np.ndarray]
    second: Callable[..., np.ndarray]
    first_weight: float = 1.0
    second_weight: float = 1.0

    def __call__(self, inputs: TokenIndex) -> np.ndarray:
        return self.first_weight * self.first(inputs) + self.second_weight * self.second(inputs)


@dataclass
class ExternalBaseline:
    """A_i = (R_i - mean) / std on every token with a given mean and std, for example from the
    history of a replay (SPEAR, arXiv 2509.22601).
    """

    mean: float
    std: float = 1.0

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        return ((indices.trajectory_return - self.mean) / self.std)[indices.token_trajectory]


def static_weights(inputs: CreditInputs) -> np.ndarray:
    """`info["weight"]` of the token's turn, without a baseline; raises UserError where a turn has
    none.
    """
    weights = [float(info_field(turn, "weight")) for turn in inputs.turns]
    return np.array(weights, np.float64)[inputs.token_turn]
