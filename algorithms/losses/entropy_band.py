"""EPO's entropy regularizer (arXiv 2509.22576): an entropy bonus with a band around the entropy of
earlier rollouts.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from agentrl_jax.algorithms.advantages.grouping import turn_index
from agentrl_jax.algorithms.advantages.info_fields import require_values
from agentrl_jax.algorithms.advantages.token_masks import turn_means
from agentrl_jax.algorithms.experience.schedules import Schedule
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.losses.regularizers import Regularizer
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex
from agentrl_jax.pytree import AnyArray, pytree_dataclass


def constant_band_penalty(
    entropy: Float[Array, "*shape"],
    historical_entropy: Float[Array, "*shape"],
    *,
    low: float,
    high: float,
    height: float,
) -> Float[Array, "*shape"]:
    """0 where low h < H < high h, else `height`: EPO's penalty as released.

    h is the mean entropy of earlier turns at that turn index, nan where there is no history: then
    the penalty is 1. A constant has no gradient: only the reported loss changes. The released
    scripts take low 0, high 2, height .05 or .1.
    """
    inside = (entropy > low * historical_entropy) & (entropy < high * historical_entropy)
    return jax.lax.stop_gradient(
        jnp.where(jnp.isnan(historical_entropy), 1.0, jnp.where(inside, 0.0, height))
    )


def linear_band_penalty(
    entropy: Float[Array, "*shape"],
    historical_entropy: Float[Array, "*shape"],
    *,
    low: float,
    high: float,
    height: float,
) -> Float[Array, "*shape"]:
    """height x the distance of H to [low h, high h]: EPO's band with a gradient; 0 inside and
    without history.
    """
    known = jnp.where(jnp.isnan(historical_entropy), entropy, historical_entropy)
    below, above = jax.nn.relu(low * known - entropy), jax.nn.relu(entropy - high * known)
    return jnp.where(jnp.isnan(historical_entropy), 0.0, height * (below + above))


def entropy_smoothing_loss(
    entropy: Float[Array, "*shape"],
    penalty: Float[Array, "*shape"],
    phase_weight: float | Float[Array, ""] | Float[Array, "*shape"],
    *,
    coefficient: float,
) -> Float[Array, "*shape"]:
    """-coefficient (H - phase_weight x penalty); phase_weight 0 is the plain bonus.

    `phase_weight` is `schedules.EPOPhaseWeight` of the step times the smoothing weight; pass an
    array where it should not recompile.
    """
    return -coefficient * (entropy - phase_weight * penalty)


class EntropyHistory:
    """Running mean, over all rollouts so far, of the turns' mean entropies at each turn index."""

    def __init__(self) -> None:
        self._sum, self._count = np.zeros(0), np.zeros(0)

    def add(self, indices: TokenIndex, entropy: np.ndarray) -> None:
        """Add a batch's token entropies [N]."""
        means, index = turn_means(indices, entropy), turn_index(indices)
        has_tokens = ~np.isnan(means)
        self._sum = _add(self._sum, np.bincount(index[has_tokens], means[has_tokens]))
        self._count = _add(self._count, np.bincount(index[has_tokens]))

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        """The historical entropy at each token's turn index, float [N]; nan without history."""
        mean = np.where(self._count > 0, self._sum / np.maximum(self._count, 1), np.nan)
        index = np.minimum(turn_index(indices), len(mean))
        return np.append(mean, np.nan)[index][indices.token_turn]

    def state(self) -> dict[str, list[float]]:
        return {"sum": self._sum.tolist(), "count": self._count.tolist()}

    def load(self, state: dict[str, list[float]]) -> None:
        self._sum = np.asarray(state["sum"], np.float64)
        self._count = np.asarray(state["count"], np.float64)


def _add(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The sum of two vectors, of which the shorter one continues with zeros."""
    size = max(len(first), len(second))
    return np.pad(first, (0, size - len(first))) + np.pad(second, (0, size - len(second)))


@pytree_dataclass
class EntropyBandData:
    """What `EntropyBand.loss` reads of each token."""

    active: Float[AnyArray, "*shape"]  # 1; 0 for tokens that the regularizer does not apply to
    historical_entropy: Float[AnyArray, "*shape"]  # nan without history
    phase_weight: Float[AnyArray, "*shape"]  # times the smoothing weight


@dataclass
class EntropyBand(Regularizer[EntropyBandData], Stateful):
    """-coefficient (H - smoothing x phase_weight(step) x penalty outside [low h, high h]).

    h, the historical entropy, is the mean over earlier rollouts at the turn index; it is part of
    every checkpoint. With `constant_penalty` the penalty is a constant without a gradient, as in
    the released code; otherwise it grows with the distance to the band. With `second_half_of` it
    applies only in the second half of an episode of that many turns (0: everywhere). Requires token
    entropies.
    """

    coefficient: float = 1e-3
    smoothing: float = 1.0
    low: float = 0.8
    high: float = 1.2
    height: float = 0.1
    phase_weight: Schedule | None = None  # None: 1
    constant_penalty: bool = False
    second_half_of: int = 0

    def __post_init__(self) -> None:
        self._entropy_history = EntropyHistory()

    def token_data(
        self, inputs: CreditInputs, advantage: np.ndarray, weight: np.ndarray, step: int
    ) -> EntropyBandData:
        historical_entropy = self._entropy_history(inputs)
        self._entropy_history.add(inputs, require_values(inputs.token_entropy, "entropy"))
        phase = self.smoothing * (1.0 if self.phase_weight is None else self.phase_weight(step))
        applies = turn_index(inputs)[inputs.token_turn] >= self.second_half_of // 2
        return EntropyBandData(
            active=np.ones(len(weight)),
            historical_entropy=historical_entropy,
            phase_weight=np.where(applies, phase, 0.0),
        )

    def loss(
        self,
        logp: Array,
        entropy: Array,
        proximal_logp: Array,
        ref_logp: Array,
        data: EntropyBandData,
    ) -> Array:
        band_penalty = constant_band_penalty if self.constant_penalty else linear_band_penalty
        penalty = band_penalty(
            entropy,
            jnp.asarray(data.historical_entropy),
            low=self.low,
            high=self.high,
            height=self.height,
        )
        return jnp.asarray(data.active) * entropy_smoothing_loss(
            entropy, penalty, jnp.asarray(data.phase_weight), coefficient=self.coefficient
        )

    def state(self) -> Any:
        return self._entropy_history.state()

    def load(self, state: Any) -> None:
        self._entropy_history.load(state)
