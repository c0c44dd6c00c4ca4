"""Regularisers (slot K): added to the policy's loss per token; and the critic's loss."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.algorithms.keying import place_of_turn
from agentrl_jax.algorithms.masks import turn_means
from agentrl_jax.algorithms.sequences import mean_over
from agentrl_jax.rows import Indices


def weighted_gap(
    logp: Float[Array, "*shape"], proximal_logp: Float[Array, "*shape"], coefficient: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """coefficient |logp - proximal_logp| with a coefficient for each token (KL-Cov, arXiv 2505.22617)."""
    return coefficient * jnp.abs(logp - jax.lax.stop_gradient(proximal_logp))


def entropy_bonus(entropy: Float[Array, "*shape"], *, coefficient: float) -> Float[Array, "*shape"]:
    """-coefficient H."""
    return -coefficient * entropy


def positive_likelihood(
    logp: Float[Array, "*shape"], positive: Bool[Array, "*shape"], *, coefficient: float = 0.1
) -> Float[Array, "*shape"]:
    """-coefficient logp on the tokens of what went well, 0 elsewhere (VAPO, arXiv 2504.05118).

    `positive` is data; VAPO averages over those tokens alone, so their weight in the loss is the caller's.
    """
    return jnp.where(positive, -coefficient * logp, 0.0)


def value_loss(
    value: Float[Array, "*shape"], proximal_value: Float[Array, "*shape"], target: Float[Array, "*shape"], *, clip: float = 0.2
) -> Float[Array, "*shape"]:
    """.5 max((V - target)^2, (clip(V, V_old - clip, V_old + clip) - target)^2) (arXiv 1707.06347); clip inf is plain regression."""
    held = jnp.clip(value, proximal_value - clip, proximal_value + clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (held - target) ** 2)


def outside_band(
    entropy: Float[Array, "*shape"], usual: Float[Array, "*shape"], *, low: float = 0.8, high: float = 1.2, height: float = 0.1
) -> Float[Array, "*shape"]:
    """EPO's penalty as released: 0 where low usual < H < high usual, else `height` (arXiv 2509.22576).

    `usual` is the mean entropy of earlier turns at that place, nan where there is no history: then the penalty is 1. A constant
    has no gradient: only the reported loss moves. The released scripts take low 0, high 2, height .05 or .1.
    """
    inside = (entropy > low * usual) & (entropy < high * usual)
    return jax.lax.stop_gradient(jnp.where(jnp.isnan(usual), 1.0, jnp.where(inside, 0.0, height)))


def distance_to_band(
    entropy: Float[Array, "*shape"], usual: Float[Array, "*shape"], *, low: float = 0.8, high: float = 1.2, height: float = 0.1
) -> Float[Array, "*shape"]:
    """height x how far H lies outside [low usual, high usual]: EPO's band with a gradient; 0 inside and without history."""
    known = jnp.where(jnp.isnan(usual), entropy, usual)
    below, above = jax.nn.relu(low * known - entropy), jax.nn.relu(entropy - high * known)
    return jnp.where(jnp.isnan(usual), 0.0, height * (below + above))


def sequence_entropy(entropy: Float[Array, "B T"], mask: Bool[Array, "B T"], ids: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """The mean entropy of a sequence at each of its tokens: what EPO's band compares in its sequence form."""
    return mean_over(ids, entropy, mask)


def smoothed_entropy(
    entropy: Float[Array, "*shape"],
    penalty: Float[Array, "*shape"],
    phase: float | Float[Array, ""] | Float[Array, "*shape"],
    *,
    coefficient: float = 1e-3,
) -> Float[Array, "*shape"]:
    """-coefficient (H - phase x penalty): EPO's entropy term with its band; phase 0 is the plain bonus.

    `phase` is `schedules.PhaseWeight` of the step, times the caller's own factor; an array, where it should not recompile.
    """
    return -coefficient * (entropy - phase * penalty)


class UsualEntropy:
    """The plain mean, over all rollouts so far, of the turns' mean entropies at each place in a trajectory (EPO's history)."""

    def __init__(self) -> None:
        self._sum, self._count = np.zeros(0), np.zeros(0)

    def add(self, indices: Indices, entropy: np.ndarray) -> None:
        """Another batch's token entropies [N]."""
        means, place = turn_means(indices, entropy), place_of_turn(indices)
        written = ~np.isnan(means)
        size = max(len(self._sum), int(place.max(initial=-1)) + 1)
        self._sum = np.pad(self._sum, (0, size - len(self._sum))) + np.bincount(place[written], means[written], minlength=size)
        self._count = np.pad(self._count, (0, size - len(self._count))) + np.bincount(place[written], minlength=size)

    def __call__(self, indices: Indices) -> np.ndarray:
        """The usual entropy at each token's place, float [N]; nan where no turn has stood there yet."""
        mean = np.where(self._count > 0, self._sum / np.maximum(self._count, 1), np.nan)
        place = place_of_turn(indices)
        padded = np.pad(mean, (0, max(0, int(place.max(initial=-1)) + 1 - len(mean))), constant_values=np.nan)
        return padded[place][indices.token_turn]

    def state(self) -> dict[str, list[float]]:
        return {"sum": self._sum.tolist(), "count": self._count.tolist()}

    def load(self, state: dict[str, list[float]]) -> None:
        self._sum, self._count = np.asarray(state["sum"], np.float64), np.asarray(state["count"], np.float64)
