"""The advantages of utterances: ArCHer's Q - V, Q against other utterances of the same state, and Q
anchored to the episode's own return.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.archer.twin_trainer import UtteranceValues
from agentrl_jax.algorithms.experience.schedules import Schedule
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.errors import UserError


class UtteranceAdvantage(ABC):
    """The advantages of utterances that the policy samples in replayed states. Base class."""

    utterances_per_state: int = 1  # k, that are sampled in each state

    @abstractmethod
    def __call__(self, values: UtteranceValues) -> np.ndarray:
        """The advantages, [n, k]."""


@dataclass
class QMinusV(UtteranceAdvantage):
    """A(s, a) = min_k Q_k(s, a) - min_k V_k(s), as published."""

    def __call__(self, values: UtteranceValues) -> np.ndarray:
        return values.q - values.v[:, None]


@dataclass
class SameStateGroups(UtteranceAdvantage):
    """A(s, a_j) = Q(s, a_j) - mean_j Q(s, a_j) over `utterances_per_state` utterances that are
    sampled in the same state: what the value of the state adds to Q, and an error in it, cancels.

    With `weight_fn=divide_by_std` a batch's advantages are divided by their standard deviation.
    """

    utterances_per_state: int = 8

    def __post_init__(self) -> None:
        if self.utterances_per_state < 2:
            raise UserError(
                "utterances of the same state are compared with each other: at least 2, not "
                f"{self.utterances_per_state}"
            )

    def __call__(self, values: UtteranceValues) -> np.ndarray:
        return values.q - values.q.mean(axis=1, keepdims=True)


# (iteration, correlation of Q - m with G - m on the iteration's own turns) -> beta
BetaRule = Callable[[int, float], float]


@dataclass
class ScheduledBeta:
    """beta of the iteration alone."""

    schedule: Schedule  # step -> number (`experience.schedules`)

    def __call__(self, iteration: int, correlation: float) -> float:
        return float(self.schedule(iteration))


@dataclass
class MeasuredBeta(Stateful):
    """beta = 1 - (1 - floor) min(max(c / possible, 0), 1): 1 where the critic ranks utterances no
    better than chance, `floor` where it does as well as can be measured.

    c is a moving average over iterations of the correlation of Q - m with G - m: one iteration's is
    known to about 1 / sqrt(its turns). `possible` is rho, the correlation of one return with the
    true advantage, which a perfect critic would have.
    """

    floor: float = 0.25
    possible: float = 0.3
    decay: float = 0.7  # of the moving average

    def __post_init__(self) -> None:
        if not (0 <= self.floor <= 1 and 0 < self.possible <= 1 and 0 <= self.decay < 1):
            raise UserError(
                "a measured beta needs floor in [0, 1], possible in (0, 1] and decay in [0, 1), "
                f"not {self}"
            )
        self._average: float | None = None

    def __call__(self, iteration: int, correlation: float) -> float:
        before = correlation if self._average is None else self._average
        self._average = self.decay * before + (1 - self.decay) * correlation
        return 1 - (1 - self.floor) * min(max(self._average / self.possible, 0.0), 1.0)

    def state(self) -> Any:
        return self._average

    def load(self, state: Any) -> None:
        self._average = state


@dataclass
class AnchoredAdvantage:
    """A(s, a) = beta (G - m) + (1 - beta) (Q(s, a) - m) of the turns that an iteration played: G is
    the discounted return-to-go, m the mean of Q over `group_size` utterances that the policy
    samples in the same state.

    G corrects a critic that the policy has learned to exploit, Q has less variance. beta 1 is the
    return with a baseline from the critic, beta 0 the critic alone.
    """

    beta: float | BetaRule = 0.5
    group_size: int = 8  # 0: m is V(s), and nothing is sampled
    gamma: float | None = None  # of G, per turn; None: the critic's

    def __post_init__(self) -> None:
        if self.group_size < 0 or not (callable(self.beta) or 0 <= self.beta <= 1):
            raise UserError(
                "an anchored advantage needs beta in [0, 1], or a rule for it, and group_size >= "
                f"0: {self}"
            )

    def beta_at(self, iteration: int, correlation: float) -> float:
        """beta of an iteration, given what was measured on its turns."""
        if not callable(self.beta):
            return self.beta
        return self.beta(iteration, correlation)

    def __call__(
        self, q: np.ndarray, baseline: np.ndarray, returns: np.ndarray, beta: float
    ) -> np.ndarray:
        """The advantages of turns, [n], from their Q, m and G."""
        return beta * (returns - baseline) + (1 - beta) * (q - baseline)
