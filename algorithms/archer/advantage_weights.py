"""An utterance's weight in the actor's loss as a function of its advantage, and the token-level
baseline.
"""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.group import AdvantageAndTarget, static_weights
from agentrl_jax.algorithms.advantages.info_fields import require_values
from agentrl_jax.learner.sequences import CreditInputs


def identity(advantage: np.ndarray) -> np.ndarray:
    """REINFORCE: A."""
    return advantage


def subtract_batch_mean(advantage: np.ndarray) -> np.ndarray:
    """A minus its mean over the batch: while a small critic's V lags behind its Q, the mean depends
    on the states and not on the utterances.

    The paper uses A itself.
    """
    return advantage - advantage.mean() if len(advantage) else advantage


def divide_by_std(advantage: np.ndarray) -> np.ndarray:
    """A divided by its standard deviation over the batch: the size of a step does not depend on the
    scale of the critic's values.
    """
    spread = float(advantage.std()) if len(advantage) else 0.0
    return advantage / spread if spread > 1e-8 else advantage


@dataclass
class ExponentialWeight:
    """AWR: exp(`inverse_temperature` A), at most `max_weight`."""

    inverse_temperature: float = 1.0
    max_weight: float = float("inf")

    def __call__(self, advantage: np.ndarray) -> np.ndarray:
        return np.minimum(np.exp(self.inverse_temperature * advantage), self.max_weight)


def advantage_minus_baseline(credit_inputs: CreditInputs) -> AdvantageAndTarget:
    """A(s, a) - b(s, a_<i) for each token i of an utterance; b is a token critic regressed on A."""
    weight = static_weights(credit_inputs)
    baseline = require_values(credit_inputs.token_value, "value under a critic")
    return AdvantageAndTarget(weight - baseline, weight)
