"""Transforms of an advantage (slot T): (evidence, advantage [N]) -> [N]. Statistics are over the tokens that they are given."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.centring import centre, group_mean, whitened
from agentrl_jax.algorithms.facts import calls_of, known
from agentrl_jax.algorithms.keying import batch_of_turn, codes
from agentrl_jax.rows import Evidence, Indices


def whiten(evidence: Indices, advantage: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 over the tokens; where all are equal, 0."""
    return whitened(advantage)


def unique_centred(values: np.ndarray, key: np.ndarray, digits: int = 9) -> np.ndarray:
    """x - mean of the *distinct* values that share the key: {1, 1, 2, 3} -> {-1, -1, 0, 1} (MARS, arXiv 2510.15414).

    Values are told apart to so many decimals: computed in another order, a float may differ in its last bits.
    """
    if not len(values):
        return np.zeros(0)
    pairs, first, same = np.unique(np.stack([key, np.round(values, digits)]), axis=1, return_index=True, return_inverse=True)
    return centre(values[first], pairs[0].astype(np.int64))[same.ravel()]


@dataclass
class UniqueCentred:
    """`unique_centred` over the tokens whose turns share a key."""

    key: Callable[..., np.ndarray] = batch_of_turn  # evidence -> int [R]
    digits: int = 9

    def __call__(self, evidence: Indices, advantage: np.ndarray) -> np.ndarray:
        return unique_centred(advantage, self.key(evidence)[evidence.token_turn], self.digits)


@dataclass
class Clip:
    """A held to [-limit, limit]."""

    limit: float

    def __call__(self, evidence: Indices, advantage: np.ndarray) -> np.ndarray:
        return np.clip(advantage, -self.limit, self.limit)


@dataclass
class Scaled:
    """A times a factor, say the decay of what is replayed (SPEAR, arXiv 2509.22601: a factor in (0, 1])."""

    factor: float

    def __call__(self, evidence: Indices, advantage: np.ndarray) -> np.ndarray:
        return self.factor * advantage


@dataclass
class EntropyScaled:
    """A (1 + coefficient z(H)), z the entropy of the token's distribution, standardised over the tokens (AEPO, arXiv 2510.14545).

    Entropies that are all equal change nothing. Raises UserError where they are not known.
    """

    coefficient: float = 0.2

    def __call__(self, evidence: Evidence, advantage: np.ndarray) -> np.ndarray:
        entropy = known(evidence.token_entropy, "entropy")
        return advantage * (1.0 + self.coefficient * centre(entropy, np.zeros(len(entropy), np.int64), std=True))


def shared_calls(evidence: Evidence) -> np.ndarray:
    """Tokens are the same where their branches hold the very same `Call`, int [N]."""
    calls, owner = calls_of(evidence)
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return codes(zip((id(calls[c]) for c in owner), place.tolist()))


def equal_prefixes(evidence: Evidence) -> np.ndarray:
    """Tokens of a group are the same where they and all that comes before them in their prompts are, int [N].

    For a record that was written down and read again, and for branches within a call. Members that happened to write the same
    first words count as branches too.
    """
    keys: list[tuple[int, bytes]] = []
    for group, trajectory in zip(evidence.trajectory_group.tolist(), evidence.trajectories):
        for call in trajectory.calls:
            forced = len(call.sampling.forced)
            digest = hashlib.blake2b(np.concatenate([call.prompt, call.action[:forced]]).astype(np.int64).tobytes(), digest_size=16)
            for token in call.action[forced:].astype(np.int64):
                digest.update(token.tobytes())
                keys.append((group, digest.digest()))
    return codes(keys)


@dataclass
class PrefixMean:
    """On tokens that several branches share, the mean of the branches' advantages (ARPO, arXiv 2507.19849: hard attribution)."""

    same: Callable[[Evidence], np.ndarray] = shared_calls  # evidence -> int [N], equal where tokens are the same

    def __call__(self, evidence: Evidence, advantage: np.ndarray) -> np.ndarray:
        return group_mean(advantage, self.same(evidence)) if len(advantage) else advantage
