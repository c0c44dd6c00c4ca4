"""Clip-Cov and KL-Cov (arXiv 2505.22617): which tokens change the entropy most, computed on the
host before the update.

cov_k = (A_k - mean A)(logp_k - mean logp) over the batch's tokens, with the learner's log-probs
from before the update. The paper's code computes it within each microbatch at its current
log-probs; here thresholds and draws are over the whole batch at ratio 1, where nothing is clipped
yet, so that neither microbatches nor processes can change them.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.advantages.info_fields import require_values
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.losses.regularizers import CoefficientRegularizer
from agentrl_jax.learner.sequences import CreditInputs


def covariance(inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
    """(A - mean A)(logp - mean logp) per token, [N]. Raises UserError where the learner has not
    scored the tokens.
    """
    logp = require_values(inputs.token_logp, "log-prob under the learner")
    return (advantage - advantage.mean()) * (logp - logp.mean()) if len(logp) else np.zeros(0)


@dataclass
class ClipCov:
    """Clip-Cov: of the tokens whose covariance lies in (low, high), `fraction` of *all* tokens,
    drawn at random, is not trained.

    Returns the tokens that are trained, bool [N]. SPEAR's replay (arXiv 2509.22601): fraction .02,
    low 1 to 2, high 40 to 60.
    """

    fraction: float
    low: float
    high: float

    def __call__(
        self, inputs: CreditInputs, advantage: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        cov = covariance(inputs, advantage)
        (inside,) = np.nonzero((cov > self.low) & (cov < self.high))
        count = _fraction_count(self.fraction, len(cov), len(inside))
        keep = np.ones(len(cov), bool)
        keep[rng.choice(inside, count, replace=False)] = False
        return keep


@dataclass
class ClipCovAdvantages(Stateful):
    """`ClipCov` as a transform of advantages (slot `transforms`): those of the tokens it draws
    become 0.

    The number of draws is part of every checkpoint.
    """

    clip_cov: ClipCov
    seed: int = 0

    def __post_init__(self) -> None:
        self._draws = 0

    def __call__(self, inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
        self._draws += 1
        keep = self.clip_cov(inputs, advantage, np.random.default_rng([self.seed, self._draws]))
        return np.where(keep, advantage, 0.0)

    def state(self) -> int:
        return self._draws

    def load(self, state: int) -> None:
        self._draws = state


@dataclass
class KLCov(CoefficientRegularizer):
    """KL-Cov: the `fraction` of tokens with the largest covariance, at least one, is penalized by
    coefficient |logp - proximal_logp|. Requires the learner's log-probs.
    """

    fraction: float
    coefficient: float = 1.0

    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        cov = covariance(inputs, advantage)
        count = _fraction_count(self.fraction, len(cov), len(cov))
        coefficient = np.zeros(len(cov))
        coefficient[np.argsort(-cov, kind="stable")[:count]] = self.coefficient
        return coefficient

    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        return jnp.abs(logp - jax.lax.stop_gradient(proximal_logp))


def _fraction_count(fraction: float, num_tokens: int, num_candidates: int) -> int:
    """`fraction` of all tokens, rounded down, at least one, at most all candidates; 0 for 0."""
    return min(num_candidates, max(1, int(fraction * num_tokens))) if fraction > 0 else 0
