"""Advantages (slot A) of whole trajectories: functions of index arrays that return one number per policy-written token."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.centring import centre, whitened
from agentrl_jax.algorithms.facts import fact, known
from agentrl_jax.algorithms.keying import group_of_trajectory
from agentrl_jax.algorithms.returns import reward_to_go, token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence, Indices


@dataclass(frozen=True, eq=False)
class Credit:
    """What an estimator with a trained critic gives: advantages, and what the critic is drawn to."""

    advantage: np.ndarray  # float [N]
    target: np.ndarray  # float [N]


Advantage = Callable[[Evidence], np.ndarray | Credit]


def group_centred(indices: Indices) -> np.ndarray:
    """Dr.GRPO: A_i = R_i - mean_group(R), on every token of trajectory i (arXiv 2503.20783). A group of one keeps R_i."""
    return Keyed(std=False)(indices)


def group_normalized(indices: Indices) -> np.ndarray:
    """GRPO: A_i = (R_i - mean_group) / (std_group + 1e-6), on every token of trajectory i (arXiv 2402.03300).

    std is the unbiased one (n - 1); a group of one has mean 0 and std 1.
    """
    return Keyed()(indices)


def leave_one_out(indices: Indices) -> np.ndarray:
    """RLOO: A_i = R_i - mean of the others' R in the group (arXiv 2402.14740). A group of one keeps R_i."""
    return Keyed(std=False, leave_one_out=True)(indices)


@dataclass
class Keyed:
    """A_i = (R_i - mean_key) / (std_key + eps) over the trajectories that share a key, on every token of trajectory i."""

    key: Callable[..., np.ndarray] = group_of_trajectory  # evidence -> int [J]
    std: bool = True  # off: the mean is subtracted and that is all
    eps: float = 1e-6
    leave_one_out: bool = False
    keep_alone: bool = True  # one that shares its key with nobody keeps R_i (mean 0, std 1); off: it gets 0

    def __call__(self, indices: Indices) -> np.ndarray:
        centred = centre(
            indices.trajectory_return, self.key(indices), std=self.std, eps=self.eps, leave_one_out=self.leave_one_out,
            keep_alone=self.keep_alone,
        )  # fmt: skip
        return centred[indices.token_trajectory]


@dataclass
class KLInReward:
    """-coefficient (logp - ref_logp) as a reward of each token (k1; logp is the learner's, before the update), [N].

    Raises UserError where one of the two is not known.
    """

    coefficient: float

    def __call__(self, evidence: Evidence) -> np.ndarray:
        gap = known(evidence.token_logp, "log-prob under the learner") - known(evidence.token_ref_logp, "log-prob under the reference")
        return -self.coefficient * gap


TokenReward = Callable[[Evidence], np.ndarray]


def shaped_rewards(evidence: Indices, more: TokenReward | None) -> np.ndarray:
    """Rewards on the turns' last tokens, with `more` (a KL in the reward) added, [N]."""
    rewards = token_rewards(evidence)
    if more is None:
        return rewards
    if not isinstance(evidence, Evidence):
        raise UserError("a reward of each token needs the evidence, not only the indices")
    return rewards + more(evidence)


@dataclass
class ReinforcePlusPlus:
    """REINFORCE++: the reward to go of each token, discounted per policy-written token, whitened over the batch (arXiv 2501.03262).

    Observation tokens are not there: they neither discount nor end a return. A truncated episode's return ends with it.
    """

    gamma: float = 1.0
    penalty: TokenReward | None = None  # a reward of each token, say `KLInReward`

    def __call__(self, evidence: Indices) -> np.ndarray:
        return whitened(reward_to_go(shaped_rewards(evidence, self.penalty), evidence.token_trajectory, self.gamma))


def reinforce_plus_plus_baseline(indices: Indices) -> np.ndarray:
    """REINFORCE++ with the group's mean as baseline: `group_centred`, whitened over the tokens of the batch (arXiv 2501.03262)."""
    return whitened(group_centred(indices))


@dataclass
class SumOf:
    """A = first_weight A_first + second_weight A_second: an episode's and a step's advantage.

    GiGPO (arXiv 2505.10978): `group_centred` and `TurnKeyed(RewardToGo(.95), anchor_of_turn)`. UI-S1 (2509.11543): `group_normalized`
    and `TurnKeyed(RewardToGo(.5, after_mismatch), step_of_turn, std=True)`; its released code takes each turn's own reward,
    normalised over the group's turns, for the first, `TurnKeyed(turn_reward, std=True, keep_alone=True)`, and `before_mismatch`.
    """

    first: Callable[..., np.ndarray]
    second: Callable[..., np.ndarray]
    first_weight: float = 1.0
    second_weight: float = 1.0

    def __call__(self, evidence: Indices) -> np.ndarray:
        return self.first_weight * self.first(evidence) + self.second_weight * self.second(evidence)


@dataclass
class ExternalBaseline:
    """A_i = (R_i - mean) / std on every token: both come from outside, say from the history of a replay (SPEAR, arXiv 2509.22601)."""

    mean: float
    std: float = 1.0

    def __call__(self, indices: Indices) -> np.ndarray:
        return ((indices.trajectory_return - self.mean) / self.std)[indices.token_trajectory]


def static_weights(evidence: Evidence) -> np.ndarray:
    """`info["weight"]` of its turn on every token, without a baseline; raises UserError where a turn has none."""
    return np.array([float(fact(turn, "weight")) for turn in evidence.turns], np.float64)[evidence.token_turn]
