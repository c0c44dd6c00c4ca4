"""Generalised advantage estimation (arXiv 1506.02438) over tokens, over turns, and over both."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages import Credit, TokenReward, shaped_rewards
from agentrl_jax.algorithms.centring import whitened
from agentrl_jax.algorithms.facts import known
from agentrl_jax.algorithms.returns import accumulated, continues, turn_end
from agentrl_jax.rows import Evidence

Bootstrap = Callable[[Evidence], np.ndarray]  # the value of the state that each trajectory ends in, [J]


def no_bootstrap(evidence: Evidence) -> np.ndarray:
    """Nothing is expected after the last token, also where an episode was cut, [J]: being cut is having failed (as verl has it)."""
    return np.zeros(len(evidence.trajectories))


def last_value(evidence: Evidence) -> np.ndarray:
    """The critic's value at the last written token of a truncated trajectory, the state nearest to its end; else 0, [J].

    For rewards that would have gone on. Where failing is being cut it takes the price off failure: the critic regresses on itself.
    """
    value = known(evidence.token_value, "value under a critic")
    last = np.full(len(evidence.trajectories), -1)
    last[evidence.token_trajectory] = np.arange(len(value))  # of several tokens the last one stays
    cut = np.array([trajectory.truncated for trajectory in evidence.trajectories], bool)
    return np.where(cut & (last >= 0), np.append(value, 0.0)[last], 0.0)


@dataclass
class LengthAdaptive:
    """VAPO: lambda = 1 - 1 / (alpha l), held to [0, 1], for a trajectory that wrote l tokens (arXiv 2504.05118)."""

    alpha: float = 0.05

    def __call__(self, length: np.ndarray) -> np.ndarray:
        return np.clip(1.0 - 1.0 / (self.alpha * np.maximum(length, 1)), 0.0, 1.0)


@dataclass
class GAE:
    """A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t, over the policy-written tokens of a trajectory.

    Values and traces pass over observation tokens as if those were not there. The target is A + V, with `critic_lam` in place
    of `lam`; with 1 it is the plain return (decoupled GAE: VC-PPO, arXiv 2503.01491; VAPO, 2504.05118). Raises UserError without a critic.
    """

    gamma: float = 1.0
    lam: float | LengthAdaptive = 1.0
    critic_lam: float | None = None  # None: as `lam`
    whiten: bool = True  # advantages over the batch's tokens
    bootstrap: Bootstrap = no_bootstrap  # of a truncated trajectory's end
    penalty: TokenReward | None = None  # a reward of each token, say `KLInReward`

    def __call__(self, evidence: Evidence) -> Credit:
        owner, value = evidence.token_trajectory, known(evidence.token_value, "value under a critic")
        goes_on = continues(owner)
        after = np.where(goes_on, np.append(value, 0.0)[1:], self.bootstrap(evidence)[owner])
        delta = shaped_rewards(evidence, self.penalty) + self.gamma * after - value
        lam = self.lam if isinstance(self.lam, float | int) else self.lam(np.bincount(owner)[owner] if len(owner) else owner)
        advantage = accumulated(delta, self.gamma * lam * goes_on)
        trace = advantage if self.critic_lam is None else accumulated(delta, self.gamma * self.critic_lam * goes_on)
        return Credit(whitened(advantage) if self.whiten else advantage, trace + value)


@dataclass
class TurnGAE:
    """GAE whose step is a turn: V is that of its first token, all its tokens share A and the target A + V.

    Where a turn has terminated, trace and value end with it, also within a trajectory (the done mask of VLA-RL, arXiv
    2505.18719: gamma .99, lam .95, not whitened). A turn without tokens gives its reward to the turn before it, or else after.
    """

    gamma: float = 0.99
    lam: float = 0.95
    whiten: bool = False
    bootstrap: Bootstrap = no_bootstrap

    def __call__(self, evidence: Evidence) -> Credit:
        value = known(evidence.token_value, "value under a critic")
        turns, first, step = np.unique(evidence.token_turn, return_index=True, return_inverse=True)
        end = turn_end(evidence)
        at = step[end[end >= 0]]  # where each turn's reward, and its end, go
        reward = np.bincount(at, evidence.turn_reward[end >= 0], minlength=len(turns))
        done = np.bincount(at, evidence.turn_terminated[end >= 0], minlength=len(turns)) > 0
        owner, value = evidence.turn_trajectory[turns], value[first]
        goes_on = continues(owner) & ~done
        after = np.where(continues(owner), np.append(value, 0.0)[1:], self.bootstrap(evidence)[owner])
        delta = reward + self.gamma * np.where(done, 0.0, after) - value
        advantage = accumulated(delta, self.gamma * self.lam * goes_on)
        target = (advantage + value)[step]
        return Credit(whitened(advantage[step]) if self.whiten else advantage[step], target)


@dataclass
class BiLevelGAE:
    """GAE over turns, then over the tokens of each (RAGEN, arXiv 2504.20073).

    Over the turns' last tokens with `turn_gamma` and `lam`: A_turn, and R = A_turn + V there. Then over tokens with `gamma` and
    `lam`, the reward R on each turn's last token, where the trace ends. Turn ends are the record's: a turn that earns
    nothing ends all the same (the released code takes a reward other than 0 for the end of a turn).
    """

    gamma: float = 1.0
    lam: float = 1.0
    turn_gamma: float = 0.95
    whiten: bool = True
    bootstrap: Bootstrap = no_bootstrap
    penalty: TokenReward | None = None

    def __call__(self, evidence: Evidence) -> Credit:
        value = known(evidence.token_value, "value under a critic")
        rewards = shaped_rewards(evidence, self.penalty)
        goes_on = continues(evidence.token_turn)
        ends = np.flatnonzero(~goes_on)
        owner = evidence.token_trajectory[ends]
        later = continues(owner)
        after = np.where(later, np.append(value[ends], 0.0)[1:], self.bootstrap(evidence)[owner])
        delta = rewards[ends] + self.turn_gamma * after - value[ends]
        of_turns = accumulated(delta, self.turn_gamma * self.lam * later)
        inside = rewards + self.gamma * np.append(value, 0.0)[1:] - value
        advantage = accumulated(np.where(goes_on, inside, _at(ends, of_turns, len(value))), self.gamma * self.lam * goes_on)
        return Credit(whitened(advantage) if self.whiten else advantage, advantage + value)


def _at(places: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    out = np.zeros(count)
    out[places] = values
    return out
