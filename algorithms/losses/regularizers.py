"""Regularizers (slot `regularizers`): terms added to the policy's loss. Each prepares its numbers
per token on the host and computes its penalty on the device.

The host's numbers are arrays [N], one per policy-written token, in a pytree dataclass of the
regularizer's own; they are packed like everything else. A coefficient that follows a schedule is
data too, so nothing recompiles. Where its data are 0, a term is 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.advantages.token_masks import ByTurnIndex, select_tokens
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.experience.schedules import ScalarOrSchedule, value_at
from agentrl_jax.algorithms.losses.kl import KLEstimator, kl_k3
from agentrl_jax.learner.deferred_inputs import trajectory_values
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.pytree import AnyArray, pytree_dataclass
from agentrl_jax.trajectories import Trajectory

DataT = TypeVar("DataT")


class Regularizer(ABC, Generic[DataT]):
    """Base class of regularizers."""

    # Whether `loss` reads `ref_logp`: log-probs under the policy that training started from.
    needs_reference: ClassVar[bool] = False

    @abstractmethod
    def token_data(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> DataT:
        """What `loss` reads: a pytree of arrays [N].

        Args:
            inputs: the batch of all processes, with the scores of its N policy-written tokens.
            advantage: float [N].
            weight: each token's weight in the loss, float [N]; 0 where it is masked.
            step: the training step, for schedules.
        """

    @abstractmethod
    def loss(
        self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array, data: DataT
    ) -> Array:
        """The penalty of each token, [B, T], added to the policy loss before the weighted sum."""


@pytree_dataclass
class TokenCoefficient:
    """The data of a regularizer that reads one number per token."""

    coefficient: Float[AnyArray, "*shape"]


class CoefficientRegularizer(Regularizer[TokenCoefficient]):
    """Base class of regularizers whose loss is a coefficient per token times a penalty."""

    @abstractmethod
    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        """float [N]; arguments as in `token_data`."""

    @abstractmethod
    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        """The penalty of each token, [B, T], at coefficient 1."""

    def token_data(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> TokenCoefficient:
        coefficient = self.token_coefficients(inputs, advantage, weight, step)
        return TokenCoefficient(coefficient=coefficient)

    def loss(
        self,
        logp: Array,
        entropy: Array,
        proximal_logp: Array,
        ref_logp: Array,
        data: TokenCoefficient,
    ) -> Array:
        penalty = self.penalty(logp, entropy, proximal_logp, ref_logp)
        return jnp.asarray(data.coefficient) * penalty


@dataclass
class KL(CoefficientRegularizer):
    """coefficient x estimator(logp, ref_logp), towards the policy that training started from."""

    coefficient: ScalarOrSchedule = 1e-3
    estimator: KLEstimator = kl_k3
    needs_reference: ClassVar[bool] = True

    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        return np.full(len(weight), value_at(self.coefficient, step))

    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        return self.estimator(logp, ref_logp)


@dataclass
class AttemptKL(CoefficientRegularizer):
    """KL whose coefficient depends on the attempt: the schedule returns the step's coefficients by
    turn index, the last for all later turns.

    SCoRe (arXiv 2409.12917): (beta1 + beta2, beta1) in its first stage, (beta1,) in its second.
    """

    coefficients: Callable[[int], Sequence[float]]
    estimator: KLEstimator = kl_k3
    needs_reference: ClassVar[bool] = True

    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        return ByTurnIndex(self.coefficients(step))(inputs)

    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        return self.estimator(logp, ref_logp)


@dataclass
class EntropyBonus(CoefficientRegularizer):
    """-coefficient H."""

    coefficient: ScalarOrSchedule = 1e-3

    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        return np.full(len(weight), value_at(self.coefficient, step))

    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        return -entropy


@dataclass
class PositiveExampleLMLoss(CoefficientRegularizer):
    """-coefficient x the mean log-prob over the tokens of successful trajectories (VAPO, arXiv
    2504.05118: .1).
    """

    coefficient: ScalarOrSchedule = 0.1
    is_positive: Callable[[Trajectory], bool] = succeeded

    def token_coefficients(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> np.ndarray:
        positive = np.array(trajectory_values(inputs, lambda t: bool(self.is_positive(t))), bool)
        counted = positive[inputs.token_trajectory] & (weight > 0)
        # The loss is multiplied by `weight`: dividing by it leaves a mean over these tokens alone.
        mean_weight = np.zeros(len(weight))
        mean_weight[counted] = token_mean(select_tokens(inputs, counted)) / weight[counted]
        return value_at(self.coefficient, step) * mean_weight

    def penalty(self, logp: Array, entropy: Array, proximal_logp: Array, ref_logp: Array) -> Array:
        return -logp
