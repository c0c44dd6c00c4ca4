"""Clip-Cov and KL-Cov (arXiv 2505.22617): which tokens move the entropy most, found on the host before the update.

cov_k = (A_k - mean A)(logp_k - mean logp) over the batch's tokens, with the learner's log-probs from before the update. The papers'
code takes it within each microbatch at its current log-probs; here thresholds and draws are over the whole batch at ratio 1,
where nothing is clipped yet, so that neither microbatches nor hosts can change them. The device multiplies the loss by the
mask, or adds |logp - proximal_logp| with the coefficient (`regularisers.weighted_gap`).
"""

from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.facts import known
from agentrl_jax.rows import Evidence


def covariance(evidence: Evidence, advantage: np.ndarray) -> np.ndarray:
    """(A - mean A)(logp - mean logp) per token, [N]. Raises UserError where the learner has not scored the tokens."""
    logp = known(evidence.token_logp, "log-prob under the learner")
    return (advantage - advantage.mean()) * (logp - logp.mean()) if len(logp) else np.zeros(0)


@dataclass
class ClipCov:
    """Clip-Cov: of the tokens whose covariance lies in (low, high), `share` of *all* tokens, drawn at random, is not trained.

    Returns what is trained, bool [N]. SPEAR's replay (arXiv 2509.22601): share .02, low 1 to 2, high 40 to 60.
    """

    share: float
    low: float
    high: float

    def __call__(self, evidence: Evidence, advantage: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        cov = covariance(evidence, advantage)
        (inside,) = np.nonzero((cov > self.low) & (cov < self.high))
        count = min(len(inside), max(1, int(self.share * len(cov)))) if self.share > 0 else 0
        keep = np.ones(len(cov), bool)
        keep[rng.choice(inside, count, replace=False)] = False
        return keep


@dataclass
class KLCov:
    """KL-Cov: the `share` of tokens with the largest covariance, at least one, pays `coefficient` |logp - proximal_logp|.

    Returns the coefficient of each token, float [N], 0 for the others.
    """

    share: float
    coefficient: float = 1.0

    def __call__(self, evidence: Evidence, advantage: np.ndarray) -> np.ndarray:
        cov = covariance(evidence, advantage)
        count = min(len(cov), max(1, int(self.share * len(cov)))) if self.share > 0 else 0
        out = np.zeros(len(cov))
        out[np.argsort(-cov, kind="stable")[:count]] = self.coefficient
        return out


@dataclass
class DropByCovariance:
    """`ClipCov` as a transform of advantages: those of the tokens that it draws become 0. How often it drew joins every checkpoint."""

    clip: ClipCov
    seed: int = 0

    def __post_init__(self) -> None:
        self._draws = 0

    def __call__(self, evidence: Evidence, advantage: np.ndarray) -> np.ndarray:
        self._draws += 1
        return np.where(self.clip(evidence, advantage, np.random.default_rng([self.seed, self._draws])), advantage, 0.0)

    def state(self) -> int:
        return self._draws

    def load(self, state: int) -> None:
        self._draws = state
