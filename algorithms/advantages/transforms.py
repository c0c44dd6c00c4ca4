"""Transforms of advantages (slot `transforms`): (inputs, advantage [N]) -> [N]. Statistics are over
the tokens of the batch.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import (
    center,
    environment_of_token,
    factorize,
    group_mean,
    whiten_values,
)
from agentrl_jax.algorithms.advantages.info_fields import calls_and_owners, require_values
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex


def whiten(inputs: TokenIndex, advantage: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 over the tokens; 0 where all are equal."""
    return whiten_values(advantage)


@dataclass
class WhitenBy:
    """Mean 0 and variance 1 over the tokens that share a key: a statistic for each environment of a
    mixture, so that none scales the advantages of another.
    """

    key: Callable[[CreditInputs], np.ndarray] = environment_of_token  # int [N]

    def __call__(self, inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
        return whiten_values(advantage, self.key(inputs))


def subtract_distinct_mean(values: np.ndarray, key: np.ndarray, digits: int = 9) -> np.ndarray:
    """x - mean of the *distinct* values that share the key: {1, 1, 2, 3} -> {-1, -1, 0, 1} (MARS,
    arXiv 2510.15414).

    Values are compared to `digits` decimals: computed in another order, a float may differ in its
    last bits.
    """
    if not len(values):
        return np.zeros(0)
    pairs, first, inverse = np.unique(
        np.stack([key, np.round(values, digits)]), axis=1, return_index=True, return_inverse=True
    )
    return center(values[first], pairs[0].astype(np.int64))[inverse.ravel()]


@dataclass
class ClipAdvantages:
    """A clipped to [-limit, limit]."""

    limit: float

    def __call__(self, inputs: TokenIndex, advantage: np.ndarray) -> np.ndarray:
        return np.clip(advantage, -self.limit, self.limit)


@dataclass
class ScaleByEntropy:
    """A (1 + coefficient z(H)), z(H) the entropy of the token's distribution standardized over the
    tokens (AEPO, arXiv 2510.14545).

    Entropies that are all equal change nothing. Raises UserError where they are not known.
    """

    coefficient: float = 0.2

    def __call__(self, inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
        entropy = require_values(inputs.token_entropy, "entropy")
        return advantage * (
            1.0 + self.coefficient * center(entropy, np.zeros(len(entropy), np.int64), std=True)
        )


def shared_call_key(inputs: CreditInputs) -> np.ndarray:
    """Tokens are shared where branches hold the identical `Call` object, int [N]."""
    calls, owner = calls_and_owners(inputs)
    offset = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return factorize(zip((id(calls[c]) for c in owner), offset.tolist()))


def shared_prefix_key(inputs: CreditInputs) -> np.ndarray:
    """Tokens of a group are shared where they and all before them, images too, are equal, int [N].

    For trajectories that were written to a log and read back, and for branches within a call.
    Members that happen to begin with the same tokens count as branches too.
    """
    keys: list[tuple[int, bytes]] = []
    for group, trajectory in zip(inputs.trajectory_group.tolist(), inputs.trajectories):
        for call in trajectory.calls:
            forced = len(call.sampling.forced)
            digest = hashlib.blake2b(repr(call.images).encode(), digest_size=16)
            prefix = np.concatenate([call.prompt, call.action[:forced]])
            digest.update(prefix.astype(np.int64).tobytes())
            for token in call.action[forced:].astype(np.int64):
                digest.update(token.tobytes())
                keys.append((group, digest.digest()))
    return factorize(keys)


@dataclass
class PrefixMean:
    """On tokens that several branches share, the mean of the branches' advantages (ARPO, arXiv
    2507.19849: hard attribution).
    """

    # int [N], equal where tokens are shared: `shared_call_key`, `shared_prefix_key`
    token_key: Callable[[CreditInputs], np.ndarray] = shared_call_key

    def __call__(self, inputs: CreditInputs, advantage: np.ndarray) -> np.ndarray:
        return group_mean(advantage, self.token_key(inputs)) if len(advantage) else advantage
