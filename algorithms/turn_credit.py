"""Advantages (slot A) of turns: returns to go, keyed centring, and the estimators of IGPO and MARS."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.centring import centre, whitened
from agentrl_jax.algorithms.facts import fact
from agentrl_jax.algorithms.keying import group_of_turn, player_of_turn
from agentrl_jax.algorithms.returns import accumulated, continues, reward_to_go, token_rewards
from agentrl_jax.algorithms.transforms import unique_centred
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence, Indices

TurnValue = Callable[[Evidence], np.ndarray]  # [R]
TurnKey = Callable[[Evidence], np.ndarray]  # int [R]


def turn_reward(indices: Indices) -> np.ndarray:
    """Each turn's own reward, [R]."""
    return indices.turn_reward


def episode_return(indices: Indices) -> np.ndarray:
    """The return of the whole trajectory at each of its turns, [R]."""
    return indices.trajectory_return[indices.turn_trajectory]


def matched(evidence: Evidence) -> np.ndarray:
    """Whether each turn's action is the expert's, bool [R]."""
    return np.array([fact(turn, "match") == "exact" for turn in evidence.turns], bool)


def after_mismatch(evidence: Evidence) -> np.ndarray:
    """UI-S1, paper: a return goes on through matched steps and ends with the first mismatch, whose reward counts, bool [R]."""
    return ~matched(evidence)


def before_mismatch(evidence: Evidence) -> np.ndarray:
    """UI-S1, released code: a return ends before the first mismatch, which has its own reward to itself, bool [R]."""
    good = matched(evidence)
    return ~good | ~np.append(good, False)[1:]


@dataclass
class RewardToGo:
    """R_t = r_t + gamma R_{t+1} over the turns of a trajectory, [R]; nothing after a turn counts where `stop` says so.

    gamma 0 leaves each turn its own reward. A truncated episode's return ends with it.
    """

    gamma: float = 1.0
    stop: Callable[[Evidence], np.ndarray] | None = None  # bool [R]: `after_mismatch`, `before_mismatch`

    def __call__(self, evidence: Indices) -> np.ndarray:
        if self.stop is None:
            return reward_to_go(evidence.turn_reward, evidence.turn_trajectory, self.gamma)
        if not isinstance(evidence, Evidence):
            raise UserError("returns that stop at what a turn's info says need the evidence, not only the indices")
        return reward_to_go(evidence.turn_reward, evidence.turn_trajectory, self.gamma, self.stop(evidence))


@dataclass
class LargestIsOne:
    """Returns to go divided by the largest |return| of their trajectory, in [-1, 1]; 0 without any reward (EPO, arXiv 2502.12486)."""

    gamma: float = 0.99

    def __call__(self, indices: Indices) -> np.ndarray:
        returns, owner = RewardToGo(self.gamma)(indices), indices.turn_trajectory
        largest = np.zeros(len(indices.trajectory_group))
        np.maximum.at(largest, owner, np.abs(returns))
        return returns / np.where(largest > 0, largest, 1.0)[owner]


@dataclass
class TurnKeyed:
    """(value - mean_key) / (std_key + eps) over the turns that share a key, on every token of the turn.

    Step rows as DART has them (arXiv 2509.23866): `value=episode_return`, `key=group_of_turn`, `std=True`: long trajectories
    weigh more in the statistics. UI-S1's step advantage: `RewardToGo(.5, after_mismatch)`, `step_of_turn`, `std=True`; GiGPO's:
    `RewardToGo(.95)`, `anchor_of_turn`. Without a key nothing is subtracted (SCoRe, and static weights from returns).
    """

    value: TurnValue = field(default_factory=RewardToGo)
    key: TurnKey | None = group_of_turn
    std: bool = False
    eps: float = 1e-6
    keep_alone: bool = False  # a turn that shares its key with none keeps its value; off: it gets 0

    def __call__(self, evidence: Evidence) -> np.ndarray:
        value = self.value(evidence)
        if self.key is not None:
            value = centre(value, self.key(evidence), std=self.std, eps=self.eps, keep_alone=self.keep_alone)
        return value[evidence.token_turn]


@dataclass
class IGPO:
    """Turn rewards, normalised within the group, summed from each turn on: A_t = sum_{k >= t} gamma^{k-t} z_k (arXiv 2510.14967).

    `joint`: z over all turns of the group; off: the last turns (the outcome) and the others (information gain) each on their own.
    One that is alone in its statistic gets 0.
    """

    gamma: float = 1.0
    joint: bool = True
    std: bool = True
    eps: float = 1e-6

    def __call__(self, indices: Indices) -> np.ndarray:
        owner, key = indices.turn_trajectory, group_of_turn(indices)
        if not self.joint:
            key = 2 * key + continues(owner)
        z = centre(indices.turn_reward, key, std=self.std, eps=self.eps)
        return reward_to_go(z, owner, self.gamma)[indices.token_turn]


@dataclass
class ColumnCentred:
    """IGPO as first released, for comparison only: a token's reward to go minus the group's mean at the same column, no std.

    A column counts all tokens since the first prompt, observations too; where a trajectory has none its return counts as 0.
    `through`: returns pass over observations; off: they end there, as when the released function is given the loss mask.
    Raises ValueError where a trajectory has several rows, which have no common columns.
    """

    through: bool = False

    def __call__(self, evidence: Evidence) -> np.ndarray:
        owner, rewards = evidence.token_trajectory, token_rewards(evidence)
        row = np.full(len(evidence.trajectories), -1)
        row[owner] = evidence.token_row
        if (row[owner] != evidence.token_row).any():
            raise ValueError("columns are compared between trajectories of one row each: keep the whole history in the context")
        opening = np.array([len(trajectory.calls[0].prompt) if trajectory.calls else 0 for trajectory in evidence.trajectories], np.int64)
        column = evidence.token_position - opening[owner]
        width = int(column.max(initial=-1)) + 1
        reward, mask = np.zeros((2, len(opening), width))
        reward[owner, column], mask[owner, column] = rewards, 1.0
        if self.through:
            mask[:] = 1.0
        # A return that has entered a masked column is still seen there, and goes no further.
        carry = np.append(mask[:, 1:], np.zeros((len(opening), 1)), axis=1)
        returns = accumulated(reward.ravel(), carry.ravel()).reshape(reward.shape)
        group = evidence.trajectory_group
        total = np.zeros((int(group.max(initial=-1)) + 1, width))
        np.add.at(total, group, returns)
        return (returns - total[group] / np.bincount(group)[group][:, None])[owner, column]


@dataclass
class MARS:
    """The turn-level estimator of self-play over several games (arXiv 2510.15414), in five steps.

    1. from each turn's reward the mean over all turns of its player (kind of environment and seat) is subtracted; 2. `whiten_rewards`
    whitens the rewards over the batch; 3. returns to go; 4. `unique` subtracts the mean of each player's *distinct* values; 5. `whiten`
    whitens over the batch's tokens. Step 4 jumps where two values fall together in floating point: values are compared to
    nine digits.
    """

    gamma: float = 1.0
    whiten_rewards: bool = False
    unique: bool = True
    whiten: bool = True
    player: TurnKey = player_of_turn

    def __call__(self, evidence: Evidence) -> np.ndarray:
        player = self.player(evidence)
        rewards = centre(evidence.turn_reward, player)
        if self.whiten_rewards:
            rewards = whitened(rewards)
        advantage = reward_to_go(rewards, evidence.turn_trajectory, self.gamma)[evidence.token_turn]
        if self.unique:
            advantage = unique_centred(advantage, player[evidence.token_turn])
        return whitened(advantage) if self.whiten else advantage
