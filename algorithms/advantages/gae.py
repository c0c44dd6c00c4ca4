"""Generalized advantage estimation (arXiv 1506.02438) over tokens, over turns, and over both."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.group import AdvantageAndTarget, TokenReward, shaped_rewards
from agentrl_jax.algorithms.advantages.grouping import whiten_values
from agentrl_jax.algorithms.advantages.info_fields import require_values
from agentrl_jax.algorithms.advantages.returns import (
    discounted_reverse_cumsum,
    has_successor,
    last_token_of_turn,
)
from agentrl_jax.learner.deferred_inputs import trajectory_values
from agentrl_jax.learner.sequences import CreditInputs

# the value of the state that each trajectory ends in, [J]
BootstrapValue = Callable[[CreditInputs], np.ndarray]


def no_bootstrap(inputs: CreditInputs) -> np.ndarray:
    """0 after the last token, also for truncated episodes: truncation is failure (as in verl),
    [J].
    """
    return np.zeros(len(inputs.trajectory_group))


def last_value(inputs: CreditInputs) -> np.ndarray:
    """The critic's value at the last policy-written token of a truncated trajectory, the state
    nearest to its end; else 0, [J].

    For tasks whose rewards would have continued. Where truncation is failure it removes the penalty
    of failing, since the critic then bootstraps on itself.
    """
    value = require_values(inputs.token_value, "value under a critic")
    last = np.full(len(inputs.trajectory_group), -1)
    last[inputs.token_trajectory] = np.arange(len(value))  # the last assignment remains
    truncated = np.array(trajectory_values(inputs, lambda t: t.truncated), bool)
    return np.where(truncated & (last >= 0), np.append(value, 0.0)[last], 0.0)


@dataclass
class LengthAdaptiveLambda:
    """VAPO: lambda = 1 - 1 / (alpha l), clipped to [0, 1], for a trajectory of l policy-written
    tokens (arXiv 2504.05118).
    """

    alpha: float = 0.05

    def __call__(self, length: np.ndarray) -> np.ndarray:
        return np.clip(1.0 - 1.0 / (self.alpha * np.maximum(length, 1)), 0.0, 1.0)


@dataclass
class GAE:
    """A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t, over the
    policy-written tokens of a trajectory.

    Values and traces skip observation tokens. The value target is A + V, with `critic_lam` in place
    of `lam`; 1 is the plain return (decoupled GAE: VC-PPO, arXiv 2503.01491; VAPO, 2504.05118).
    Raises UserError without a critic.
    """

    gamma: float = 1.0
    lam: float | LengthAdaptiveLambda = 1.0
    critic_lam: float | None = None  # None: as `lam`
    whiten: bool = True  # advantages over the batch's tokens
    bootstrap: BootstrapValue = no_bootstrap  # of a truncated trajectory's end
    penalty: TokenReward | None = None  # a reward per token, for example `KLPenaltyReward`

    def __call__(self, inputs: CreditInputs) -> AdvantageAndTarget:
        owner = inputs.token_trajectory
        value = require_values(inputs.token_value, "value under a critic")
        continues = has_successor(owner)
        next_value = np.where(continues, np.roll(value, -1), self.bootstrap(inputs)[owner])
        delta = shaped_rewards(inputs, self.penalty) + self.gamma * next_value - value
        lam = (
            self.lam
            if isinstance(self.lam, float | int)
            else self.lam(np.bincount(owner)[owner] if len(owner) else owner)
        )
        advantage = discounted_reverse_cumsum(delta, self.gamma * lam * continues)
        trace = (
            advantage
            if self.critic_lam is None
            else discounted_reverse_cumsum(delta, self.gamma * self.critic_lam * continues)
        )
        return AdvantageAndTarget(
            whiten_values(advantage) if self.whiten else advantage, trace + value
        )


@dataclass
class TurnGAE:
    """GAE whose step is a turn: V at its first token; all its tokens share A and the value target
    A + V.

    At a terminated turn trace and value end, also within a trajectory (the done mask of VLA-RL,
    arXiv 2505.18719: gamma .99, lam .95, not whitened). The reward of a turn without tokens is
    added to the turn before it, or else after.
    """

    gamma: float = 0.99
    lam: float = 0.95
    whiten: bool = False
    bootstrap: BootstrapValue = no_bootstrap

    def __call__(self, inputs: CreditInputs) -> AdvantageAndTarget:
        value = require_values(inputs.token_value, "value under a critic")
        turns, first, step = np.unique(inputs.token_turn, return_index=True, return_inverse=True)
        end = last_token_of_turn(inputs)
        step_of_reward = step[end[end >= 0]]
        reward = np.bincount(step_of_reward, inputs.turn_reward[end >= 0], minlength=len(turns))
        terminated = (
            np.bincount(step_of_reward, inputs.turn_terminated[end >= 0], minlength=len(turns)) > 0
        )
        owner, value = inputs.turn_trajectory[turns], value[first]
        next_value = np.where(
            has_successor(owner), np.roll(value, -1), self.bootstrap(inputs)[owner]
        )
        delta = reward + self.gamma * np.where(terminated, 0.0, next_value) - value
        continues = has_successor(owner) & ~terminated
        advantage = discounted_reverse_cumsum(delta, self.gamma * self.lam * continues)
        target = (advantage + value)[step]
        return AdvantageAndTarget(
            whiten_values(advantage[step]) if self.whiten else advantage[step], target
        )


@dataclass
class BiLevelGAE:
    """GAE over turns, then over the tokens of each (RAGEN, arXiv 2504.20073).

    Over the turns' last tokens with `turn_gamma` and `lam`: A_turn, and R = A_turn + V there. Then
    over tokens with `gamma` and `lam`, with the reward R on each turn's last token, where the trace
    ends. The trajectory's turns are the boundaries, also without a reward (the released code ends a
    turn at each reward other than 0).
    """

    gamma: float = 1.0
    lam: float = 1.0
    turn_gamma: float = 0.95
    whiten: bool = True
    bootstrap: BootstrapValue = no_bootstrap
    penalty: TokenReward | None = None

    def __call__(self, inputs: CreditInputs) -> AdvantageAndTarget:
        value = require_values(inputs.token_value, "value under a critic")
        rewards = shaped_rewards(inputs, self.penalty)
        in_turn = has_successor(inputs.token_turn)
        ends = np.flatnonzero(~in_turn)
        owner, end_value = inputs.token_trajectory[ends], value[ends]
        continues = has_successor(owner)
        next_value = np.where(continues, np.roll(end_value, -1), self.bootstrap(inputs)[owner])
        turn_delta = rewards[ends] + self.turn_gamma * next_value - end_value
        turn_advantage = discounted_reverse_cumsum(
            turn_delta, self.turn_gamma * self.lam * continues
        )
        delta = rewards + self.gamma * np.roll(value, -1) - value  # where the turn goes on
        delta[ends] = turn_advantage
        advantage = discounted_reverse_cumsum(delta, self.gamma * self.lam * in_turn)
        return AdvantageAndTarget(
            whiten_values(advantage) if self.whiten else advantage, advantage + value
        )
