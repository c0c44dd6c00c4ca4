"""Reward models: the loss that trains one from preferences, and choosing the best of several answers by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike


def bradley_terry(chosen: Float[Array, "*shape"], rejected: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """-log sigmoid(chosen - rejected): the negative log-likelihood of a preference (Bradley and Terry, 1952)."""
    return -jax.nn.log_sigmoid(chosen - rejected)


def preference_loss(
    chosen: Float[Array, "B T"],
    rejected: Float[Array, "B T"],
    chosen_tokens: Int[Array, "B T"],
    rejected_tokens: Int[Array, "B T"],
    chosen_length: Int[Array, "B"],
    rejected_length: Int[Array, "B"],
) -> Float[Array, "B"]:
    """`bradley_terry` of the values at each position, averaged from the first token that differs to the longer end, [B].

    Zhongjing's form (arXiv 2308.03549). Where an answer has ended, its tokens and its values are those after the end as they
    stand, so give both padded alike. Equal answers say nothing: their loss is 0.
    """
    place = jax.lax.broadcasted_iota(jnp.int32, chosen.shape, 1)
    end = jnp.maximum(chosen_length, rejected_length)[:, None]
    ended = (place >= chosen_length[:, None]) != (place >= rejected_length[:, None])
    differs = ((chosen_tokens != rejected_tokens) | ended) & (place < end)
    counted = (jnp.cumsum(differs.astype(jnp.int32), axis=1) > 0) & (place < end)
    loss = jnp.sum(jnp.where(counted, bradley_terry(chosen, rejected), 0.0), axis=1)
    return loss / jnp.maximum(jnp.sum(counted.astype(loss.dtype), axis=1), 1.0)


def score_at_end(values: Float[Array, "B T"], length: Int[Array, "B"]) -> Float[Array, "B"]:
    """A reward model's score: its value at the last token of each row."""
    return jnp.take_along_axis(values, jnp.maximum(length - 1, 0)[:, None], axis=1)[:, 0]


def probability_of_yes(yes_logp: Float[Array, "*shape"], no_logp: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """P(yes) / (P(yes) + P(no)): a verifier's score of an answer (SWE-Gym, arXiv 2412.21139)."""
    return jax.nn.sigmoid(yes_logp - no_logp)


def best_of(scores: ArrayLike) -> int:
    """The place of the highest score, the first of equal ones. Raises ValueError without a score, or where one is nan."""
    scores = np.asarray(scores, np.float64)
    if not len(scores) or np.isnan(scores).any():
        raise ValueError("the best of none, or of scores that are not numbers, cannot be chosen")
    return int(np.argmax(scores))


def best_of_k(scores: ArrayLike, outcomes: ArrayLike, k: int) -> float:
    """The expected outcome of the best-scored of `k` answers drawn from these without replacement; equal scores share.

    The i-th from below (from 0) is the best of a draw with probability C(i, k - 1) / C(n, k). Scores that tell nothing give the mean
    outcome, outcomes as their own scores pass@k. Raises ValueError where k is not in 1..n.
    """
    scores, outcomes = np.asarray(scores, np.float64), np.asarray(outcomes, np.float64)
    if not 1 <= k <= len(scores) or len(outcomes) != len(scores):
        raise ValueError(f"the best of {k} needs at least as many answers, each with a score and an outcome; there are {len(scores)}")
    _, same = np.unique(scores, return_inverse=True)
    shared = (np.bincount(same, outcomes) / np.bincount(same))[same]
    chance = [math.comb(i, k - 1) / math.comb(len(scores), k) for i in range(len(scores))]
    return float(np.dot(chance, shared[np.argsort(scores, kind="stable")]))
