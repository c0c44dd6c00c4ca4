"""Regression targets of token values: ILQL's one-step targets and Monte-Carlo returns."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.returns import (
    discounted_reverse_cumsum,
    has_successor,
    token_rewards,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs


@dataclass(frozen=True, eq=False)
class TokenValueReadout:
    """The values at each action token, float64 [N]."""

    v: np.ndarray  # of the state before the token
    next_v: np.ndarray  # of the state after it
    min_target_q: np.ndarray  # min_k Qbar_k of the token


@dataclass(frozen=True, eq=False)
class TokenValueTargets:
    """Regression targets of the values, [N]; `v` None: V is not trained."""

    q: np.ndarray
    v: np.ndarray | None = None


@dataclass
class ExpectileTarget:
    """ILQL (arXiv 2206.11871): y = r + gamma V(next state), and V the `tau` expectile of min_k
    Qbar_k.

    The next state is the one before the trajectory's next action token: observation tokens in
    between are skipped. After the last one there is none, y = r, unless the episode was truncated
    and `bootstrap_truncated` is set: then V of the last state.
    """

    gamma: float = 0.99
    tau: float = 0.7
    bootstrap_truncated: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 < self.tau < 1):
            raise UserError(
                "gamma is between 0 and 1 and tau strictly between them, "
                f"not {self.gamma} and {self.tau}"
            )

    def __call__(
        self, credit_inputs: CreditInputs, read_values: Callable[[], TokenValueReadout]
    ) -> TokenValueTargets:
        trajectory_of_token, values = credit_inputs.token_trajectory, read_values()
        bootstrapped = np.array(
            [self.bootstrap_truncated and x.truncated for x in credit_inputs.trajectories], bool
        )
        last_v = np.where(bootstrapped[trajectory_of_token], values.next_v, 0.0)
        next_v = np.where(has_successor(trajectory_of_token), np.append(values.v, 0.0)[1:], last_v)
        q = token_rewards(credit_inputs) + self.gamma * next_v
        return TokenValueTargets(q, values.min_target_q)


@dataclass
class MonteCarloTarget:
    """y = G: the discounted return-to-go of each token."""

    gamma: float = 0.99

    def __call__(
        self, credit_inputs: CreditInputs, read_values: Callable[[], TokenValueReadout]
    ) -> TokenValueTargets:
        discount = self.gamma * has_successor(credit_inputs.token_trajectory)
        return TokenValueTargets(discounted_reverse_cumsum(token_rewards(credit_inputs), discount))
