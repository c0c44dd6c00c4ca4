"""Reward models: their loss on preferences, and selecting the best of several answers by their
scores.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike


def bradley_terry(
    chosen: Float[Array, "*shape"], rejected: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """-log sigmoid(chosen - rejected): the negative log-likelihood of a preference (Bradley and
    Terry, 1952).
    """
    return -jax.nn.log_sigmoid(chosen - rejected)


def preference_loss(
    chosen: Float[Array, "B T"],
    rejected: Float[Array, "B T"],
    chosen_tokens: Int[Array, "B T"],
    rejected_tokens: Int[Array, "B T"],
    chosen_length: Int[Array, "B"],
    rejected_length: Int[Array, "B"],
) -> Float[Array, "B"]:
    """`bradley_terry` of the values at each position, averaged from the first token that differs to
    the end of the longer answer, [B].

    Zhongjing's form (arXiv 2308.03549). The tokens and values after the end of an answer count up
    to the end of the longer one, so pad both in the same way. The loss of equal answers is 0.
    """
    position = jax.lax.broadcasted_iota(jnp.int32, chosen.shape, 1)
    end = jnp.maximum(chosen_length, rejected_length)[:, None]
    one_ended = (position >= chosen_length[:, None]) != (position >= rejected_length[:, None])
    differs = ((chosen_tokens != rejected_tokens) | one_ended) & (position < end)
    counted = (jnp.cumsum(differs.astype(jnp.int32), axis=1) > 0) & (position < end)
    loss = jnp.sum(jnp.where(counted, bradley_terry(chosen, rejected), 0.0), axis=1)
    return loss / jnp.maximum(jnp.sum(counted.astype(loss.dtype), axis=1), 1.0)


def score_at_end(values: Float[Array, "B T"], length: Int[Array, "B"]) -> Float[Array, "B"]:
    """A reward model's score: its value at the last token of each row."""
    return jnp.take_along_axis(values, jnp.maximum(length - 1, 0)[:, None], axis=1)[:, 0]


def yes_probability(
    yes_logp: Float[Array, "*shape"], no_logp: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """P(yes) / (P(yes) + P(no)): a verifier's score of an answer (SWE-Gym, arXiv 2412.21139)."""
    return jax.nn.sigmoid(yes_logp - no_logp)


def best_of_n_index(scores: ArrayLike) -> int:
    """The index of the highest score, the first of equal ones.

    Raises:
        ValueError: there is no score, or one is nan.
    """
    scores = np.asarray(scores, np.float64)
    if not len(scores) or np.isnan(scores).any():
        raise ValueError("the best of none, or of scores that are not numbers, cannot be chosen")
    return int(np.argmax(scores))


def expected_best_of_k(scores: ArrayLike, outcomes: ArrayLike, k: int) -> float:
    """The expected outcome of the best-scored of `k` answers sampled from these without
    replacement; ties are broken at random.

    The i-th in ascending order (from 0) is the best of a sample with probability C(i, k - 1) /
    C(n, k). Constant scores give the mean outcome, outcomes as their own scores pass@k.

    Raises:
        ValueError: k is not in 1..n.
    """
    scores, outcomes = np.asarray(scores, np.float64), np.asarray(outcomes, np.float64)
    if not 1 <= k <= len(scores) or len(outcomes) != len(scores):
        raise ValueError(
            f"the best of {k} needs at least as many answers, each with a score and an outcome; "
            f"there are {len(scores)}"
        )
    _, tie = np.unique(scores, return_inverse=True)
    mean_of_tie = (np.bincount(tie, outcomes) / np.bincount(tie))[tie]
    probability = [math.comb(i, k - 1) / math.comb(len(scores), k) for i in range(len(scores))]
    return float(np.dot(probability, mean_of_tie[np.argsort(scores, kind="stable")]))
