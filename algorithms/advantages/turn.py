"""Advantages (slot `advantage`) of turns: rewards-to-go, statistics by key, and the estimators of
IGPO and MARS.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import (
    center,
    group_of_turn,
    player_of_turn,
    whiten_values,
)
from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.algorithms.advantages.returns import (
    discounted_reverse_cumsum,
    has_successor,
    reward_to_go,
    token_rewards,
)
from agentrl_jax.algorithms.advantages.transforms import subtract_distinct_mean
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex

TurnValue = Callable[[CreditInputs], np.ndarray]  # [R]
TurnKey = Callable[[CreditInputs], np.ndarray]  # int [R]


def turn_reward(indices: TokenIndex) -> np.ndarray:
    """Each turn's own reward, [R]."""
    return indices.turn_reward


def episode_return(indices: TokenIndex) -> np.ndarray:
    """The return of the whole trajectory at each of its turns, [R]."""
    return indices.trajectory_return[indices.turn_trajectory]


def matches_expert(inputs: CreditInputs) -> np.ndarray:
    """Whether each turn's action is the expert's, bool [R]."""
    return np.array([info_field(turn, "match") == "exact" for turn in inputs.turns], bool)


def stop_at_mismatch(inputs: CreditInputs) -> np.ndarray:
    """UI-S1, paper: a return continues through matched steps and ends after the first mismatch,
    whose reward counts, bool [R].
    """
    return ~matches_expert(inputs)


def stop_before_mismatch(inputs: CreditInputs) -> np.ndarray:
    """UI-S1, released code: a return ends before the first mismatch, whose return is its own reward
    alone, bool [R].
    """
    matches = matches_expert(inputs)
    return ~matches | ~np.append(matches, False)[1:]


@dataclass
class RewardToGo:
    """R_t = r_t + gamma R_{t+1} over the turns of a trajectory, [R]; R_t = r_t where `stop` is
    true.

    With gamma 0 each turn has its own reward. A truncated episode's return ends with it.
    """

    gamma: float = 1.0
    # bool [R]: `stop_at_mismatch`, `stop_before_mismatch`
    stop: Callable[[CreditInputs], np.ndarray] | None = None

    def __call__(self, inputs: TokenIndex) -> np.ndarray:
        if self.stop is None:
            return reward_to_go(inputs.turn_reward, inputs.turn_trajectory, self.gamma)
        if not isinstance(inputs, CreditInputs):
            raise UserError(
                "returns that stop at a turn need the credit inputs, not only the indices"
            )
        return reward_to_go(
            inputs.turn_reward, inputs.turn_trajectory, self.gamma, self.stop(inputs)
        )


@dataclass
class ScaleByMax:
    """Rewards-to-go divided by the largest |reward-to-go| of their trajectory, in [-1, 1]; 0
    without any reward (EPO, arXiv 2502.12486).
    """

    gamma: float = 0.99

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        returns, owner = RewardToGo(self.gamma)(indices), indices.turn_trajectory
        largest = np.zeros(len(indices.trajectory_group))
        np.maximum.at(largest, owner, np.abs(returns))
        return returns / np.where(largest > 0, largest, 1.0)[owner]


@dataclass
class TurnGroupedBy:
    """(value - mean_key) / (std_key + eps) over the turns that share a key, on every token of the
    turn.

    DART's samples are steps (arXiv 2509.23866): `value=episode_return`, `key=group_of_turn`,
    `std=True`: long trajectories count more in the statistics. UI-S1's step advantage:
    `RewardToGo(.5, stop_at_mismatch)`, `step_of_turn`, `std=True`; GiGPO's: `RewardToGo(.95)`,
    `anchor_of_turn`. Without a key nothing is subtracted (SCoRe, and static weights from returns).
    """

    value: TurnValue = field(default_factory=RewardToGo)
    key: TurnKey | None = group_of_turn
    std: bool = False
    eps: float = 1e-6
    keep_singletons: bool = False  # a turn alone with its key keeps its value; off: it gets 0

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        value = self.value(inputs)
        if self.key is not None:
            value = center(
                value,
                self.key(inputs),
                std=self.std,
                eps=self.eps,
                keep_singletons=self.keep_singletons,
            )
        return value[inputs.token_turn]


@dataclass
class IGPO:
    """A_t = sum_{k >= t} gamma^{k-t} z_k, z the turn rewards normalized within the group (arXiv
    2510.14967).

    `joint_statistics`: z over all turns of the group; off: over the last turns (the outcome) and
    over the others (information gain) separately. A turn alone in its statistic gets 0.
    """

    gamma: float = 1.0
    joint_statistics: bool = True
    std: bool = True
    eps: float = 1e-6

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        owner, key = indices.turn_trajectory, group_of_turn(indices)
        if not self.joint_statistics:
            key = 2 * key + has_successor(owner)
        z = center(indices.turn_reward, key, std=self.std, eps=self.eps)
        return reward_to_go(z, owner, self.gamma)[indices.token_turn]


@dataclass
class ColumnCentered:
    """IGPO as first released, for comparison only: a token's reward-to-go minus the group's mean at
    the same column, no std.

    A column counts all tokens since the first prompt, observations too; where a trajectory has no
    such column its return counts as 0. `through_observations`: returns skip observations; off: they
    end there, as when the released function is given the loss mask. Raises ValueError where a
    trajectory has several training sequences, which have no common columns.
    """

    through_observations: bool = False

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        owner, rewards = inputs.token_trajectory, token_rewards(inputs)
        if not len(owner):
            return np.zeros(0)
        sequence = np.empty(len(inputs.trajectories), np.int64)
        sequence[owner] = inputs.token_sequence
        if (sequence[owner] != inputs.token_sequence).any():
            raise ValueError(
                "columns are compared between trajectories of one training sequence each: keep "
                "the whole history in the context"
            )
        opening = np.array(
            [
                len(trajectory.calls[0].prompt) if trajectory.calls else 0
                for trajectory in inputs.trajectories
            ],
            np.int64,
        )
        column = inputs.token_position - opening[owner]
        width = int(column.max()) + 1
        reward, mask = np.zeros((2, len(opening), width))
        reward[owner, column], mask[owner, column] = rewards, 1.0
        if self.through_observations:
            mask[:] = 1.0
        # A return counts at the first masked column that it reaches, and ends there.
        carry = np.append(mask[:, 1:], np.zeros((len(opening), 1)), axis=1)
        returns = discounted_reverse_cumsum(reward.ravel(), carry.ravel()).reshape(reward.shape)
        group = inputs.trajectory_group
        count = np.bincount(group)
        total = np.zeros((len(count), width))
        np.add.at(total, group, returns)
        return (returns - total[group] / count[group][:, None])[owner, column]


@dataclass
class MARS:
    """The turn-level estimator of self-play over several games (arXiv 2510.15414), in five steps.

    1. from each turn's reward the mean over all turns of its player (kind of environment and agent
    index) is subtracted; 2. `whiten_rewards` whitens the rewards over the batch; 3. rewards-to-go;
    4. `center_distinct` subtracts the mean of each player's *distinct* values; 5. `whiten` whitens
    over the batch's tokens. Step 4 is discontinuous where two values become equal in floating
    point: values are compared to nine decimals.
    """

    gamma: float = 1.0
    whiten_rewards: bool = False
    center_distinct: bool = True
    whiten: bool = True
    player_key: TurnKey = player_of_turn

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        player = self.player_key(inputs)
        rewards = center(inputs.turn_reward, player)
        if self.whiten_rewards:
            rewards = whiten_values(rewards)
        advantage = reward_to_go(rewards, inputs.turn_trajectory, self.gamma)[inputs.token_turn]
        if self.center_distinct:
            advantage = subtract_distinct_mean(advantage, player[inputs.token_turn])
        return whiten_values(advantage) if self.whiten else advantage
