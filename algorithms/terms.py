"""Regularisers (slot K), terms of the loss: what they need of each token comes from the host, the penalty from the device.

A term's data are arrays [N], one number per policy-written token, and packed like everything else; a coefficient that follows a
schedule is data too, so nothing recompiles. Where its data are 0 a term is 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.covariance import KLCov
from agentrl_jax.algorithms.facts import known, succeeded
from agentrl_jax.algorithms.keying import place_of_turn
from agentrl_jax.algorithms.losses import kl_k3
from agentrl_jax.algorithms.masks import ByAttempt, restricted
from agentrl_jax.algorithms.regularisers import UsualEntropy, distance_to_band, outside_band, smoothed_entropy, weighted_gap
from agentrl_jax.algorithms.schedules import Number, Schedule, at
from agentrl_jax.rows import Evidence
from agentrl_jax.trajectories import Trajectory

Data = dict[str, np.ndarray]


@runtime_checkable
class Regulariser(Protocol):
    """A regulariser. Where it has `reference = True`, log-probs under the starting policy are computed."""

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        """Arrays [N]; `weight` is that of each token in the loss, 0 where it is masked."""
        ...

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        """The penalty of each token, added to the policy's loss before the weighted sum."""
        ...


@dataclass
class KL:
    """coefficient x estimator(logp, ref_logp), towards the policy that training started from."""

    coefficient: Number = 1e-3
    estimator: Callable[[Array, Array], Array] = kl_k3
    reference: bool = field(default=True, init=False)

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        return {"coefficient": np.full(len(weight), at(self.coefficient, step))}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        return data["coefficient"] * self.estimator(logp, ref_logp)


@dataclass
class AttemptKL:
    """KL whose coefficient depends on the attempt: the schedule gives the step's coefficients by a turn's place, the last for all later.

    SCoRe (arXiv 2409.12917): (beta1 + beta2, beta1) in its first stage, (beta1,) in its second.
    """

    coefficients: Callable[[int], Sequence[float]]
    estimator: Callable[[Array, Array], Array] = kl_k3
    reference: bool = field(default=True, init=False)

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        return {"coefficient": ByAttempt(self.coefficients(step))(evidence)}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        return data["coefficient"] * self.estimator(logp, ref_logp)


@dataclass
class Entropy:
    """-coefficient H."""

    coefficient: Number = 1e-3

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        return {"coefficient": np.full(len(weight), at(self.coefficient, step))}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        return -data["coefficient"] * entropy


@dataclass
class EntropyBand:
    """EPO (arXiv 2509.22576): -coefficient (H - smoothing x phase(step) x penalty outside [low, high] x the usual entropy).

    The usual entropy is the mean over earlier rollouts at the turn's place; it joins every checkpoint. `released`: the penalty
    is a constant and has no gradient, as in the released code; off: it grows with the distance to the band. `late`: it counts in
    the second half of an episode of so many turns alone (0: everywhere). Needs entropies.
    """

    coefficient: float = 1e-3
    smoothing: float = 1.0
    low: float = 0.8
    high: float = 1.2
    height: float = 0.1
    phase: Schedule | None = None  # None: 1
    released: bool = False
    late: int = 0

    def __post_init__(self) -> None:
        self._usual = UsualEntropy()

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        usual = self._usual(evidence)
        self._usual.add(evidence, known(evidence.token_entropy, "entropy"))
        phase = self.smoothing * (1.0 if self.phase is None else self.phase(step))
        counts = place_of_turn(evidence)[evidence.token_turn] >= self.late // 2
        return {"on": np.ones(len(weight)), "usual": usual, "phase": np.where(counts, phase, 0.0)}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        penalty = (outside_band if self.released else distance_to_band)(
            entropy, data["usual"], low=self.low, high=self.high, height=self.height
        )
        return data["on"] * smoothed_entropy(entropy, penalty, data["phase"], coefficient=self.coefficient)

    def state(self) -> Any:
        return self._usual.state()

    def load(self, state: Any) -> None:
        self._usual.load(state)


@dataclass
class PositiveLikelihood:
    """-coefficient x the mean log-prob over the tokens of what went well (VAPO, arXiv 2504.05118: .1)."""

    coefficient: Number = 0.1
    positive: Callable[[Trajectory], bool] = succeeded

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        good = np.array([self.positive(t) for t in evidence.trajectories], bool)[evidence.token_trajectory] & (weight > 0)
        share = np.zeros(len(weight))
        share[good] = token_mean(restricted(evidence, good)) / weight[good]  # a mean over these tokens alone
        return {"coefficient": at(self.coefficient, step) * share}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        return -data["coefficient"] * logp


@dataclass
class CovarianceGap:
    """KL-Cov (arXiv 2505.22617): the tokens that `KLCov` picks pay coefficient |logp - proximal_logp|. Needs the learner's log-probs."""

    pick: KLCov

    def data(self, evidence: Evidence, advantage: np.ndarray, weight: np.ndarray, step: int) -> Data:
        return {"coefficient": self.pick(evidence, advantage)}

    def loss(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: Mapping[str, Array]) -> Array:
        return weighted_gap(logp, proximal_logp, data["coefficient"])
