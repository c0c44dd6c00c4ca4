"""Losses of pairs of replies to one prompt: REBEL's regression and DPO's preference."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

PairwiseLoss = Callable[[Array, Array], Array]  # (d, r - r') -> the loss of a pair, elementwise


def rebel_loss(
    log_ratio_difference: Float[Array, "*shape"],
    reward_difference: Float[Array, "*shape"],
    *,
    eta: float,
) -> Float[Array, "*shape"]:
    """(d - eta (r - r'))^2 with d = ln pi(y)/pi_t(y) - ln pi(y')/pi_t(y') of two replies y, y'.

    REBEL (arXiv 2404.16767); at a turn of a dialogue that is continued to its end REFUEL (arXiv
    2410.04612). Its minimizer over all pairs has d = eta (Q - Q').
    """
    return (log_ratio_difference - eta * reward_difference) ** 2


@dataclass
class RegressionLoss:
    """REFUEL's and REBEL's loss; choose `eta` by the scale of reward differences."""

    eta: float

    def __call__(self, logp_diff: Array, reward_diff: Array) -> Array:
        return rebel_loss(logp_diff, reward_diff, eta=self.eta)


def dpo_loss(
    log_ratio_difference: Float[Array, "*shape"],
    reward_difference: Float[Array, "*shape"],
    *,
    beta: float,
) -> Float[Array, "*shape"]:
    """-log sigmoid(beta d), d as in `rebel_loss` with the preferred reply first (DPO, arXiv
    2305.18290).

    The preferred reply is the one of larger reward; where rewards are equal the loss is log 2 and
    has no gradient.
    """
    return -jax.nn.log_sigmoid(beta * jnp.sign(reward_difference) * log_ratio_difference)


@dataclass
class DPOLoss:
    """DPO's loss on the order of the two rewards."""

    beta: float

    def __call__(self, logp_diff: Array, reward_diff: Array) -> Array:
        return dpo_loss(logp_diff, reward_diff, beta=self.beta)
