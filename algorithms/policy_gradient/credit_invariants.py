"""Invariants of credit: every token learns from its own advantage, and the sampler's log-probs are
the learner's where both have the same weights.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch, TokenColumns
from agentrl_jax.algorithms.policy_gradient.device_loss import PolicyGradientBatch
from agentrl_jax.engine import Engine, WeightHolder
from agentrl_jax.invariants import InvariantCheck, Invariants
from agentrl_jax.learner.logp_bound import rounding_bound
from agentrl_jax.learner.recorded_tokens import RecordedTokens
from agentrl_jax.policy import Params
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.engine_weights import checksums_by_device
from agentrl_jax.trajectories import Call, Group


def advantage_digests(recorded: RecordedTokens, advantage: np.ndarray) -> np.ndarray:
    """A hash of each sampled token's id, position, recorded log-prob and advantage, uint64 [n].

    The recorded log-prob tells a token from an equal one in another trajectory of its group.

    Args:
        recorded: the tokens of this process's groups.
        advantage: of these tokens, [n].
    """
    if len(recorded) != len(advantage):  # `trained_tokens` says so
        return np.zeros(len(advantage), np.uint64)
    return _hash_tokens(recorded.tokens, recorded.position, recorded.sampler_logp, advantage)


def _hash_tokens(
    tokens: np.ndarray, positions: np.ndarray, logp: np.ndarray, advantage: np.ndarray
) -> np.ndarray:
    """One hash a token; numbers are hashed by their bits."""
    columns = [
        np.ascontiguousarray(tokens, np.int32).view(np.uint32),
        np.ascontiguousarray(positions, np.int32).view(np.uint32),
        np.ascontiguousarray(logp, np.float32).view(np.uint32),
        np.ascontiguousarray(advantage, np.float32).view(np.uint32),
    ]
    first, second, third, fourth = (column.astype(np.uint64) for column in columns)
    shift = np.uint64(32)
    return _mix_bits(_mix_bits(first | second << shift) ^ (third | fourth << shift))


def _mix_bits(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64: a bijection of 64-bit numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix_columns(digests: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """The hashes of tokens, which depend on further float columns of them, too."""
    for column in columns:
        bits = np.ascontiguousarray(column, np.float32).view(np.uint32).astype(np.uint64)
        digests = _mix_bits(digests ^ bits)
    return digests


def token_advantages(
    digests: np.ndarray,
    columns: TokenColumns,
    weight: np.ndarray,
    microbatches: Sequence[PolicyGradientBatch],
) -> InvariantCheck:
    """The packed tokens have the advantages that credit gave them, and their own weights and
    log-probs: the sum of their hashes, modulo 2^64, is that of the tokens that were packed.

    Args:
        digests: of the tokens that were packed, as credit was given, [n].
        columns: of the same tokens.
        weight: in the loss, [n].
        microbatches: all of them.
    """
    digests = _mix_columns(
        digests, (weight, columns.nll_weight, columns.proximal_logp, columns.ref_logp)
    )
    total, count = 0, 0
    for microbatch in microbatches:
        batch, mask = microbatch.batch, np.asarray(microbatch.batch.action_mask)
        credited = (batch.tokens, batch.positions, batch.sampler_logp, microbatch.advantage)
        others = (
            batch.weight,
            microbatch.nll_weight,
            microbatch.proximal_logp,
            microbatch.ref_logp,
        )
        hashes = _hash_tokens(*(np.asarray(column)[mask] for column in credited))
        hashes = _mix_columns(hashes, [np.asarray(column)[mask] for column in others])
        total, count = total + int(hashes.sum()), count + len(hashes)
    expected = int(digests.sum())
    return InvariantCheck(
        "token_advantages",
        total % 2**64 == expected and count == len(digests),
        f"the {count} packed tokens do not have the advantages that the {len(digests)} credited "
        "tokens were given in their groups, or not their weights and log-probs (digests "
        f"{total % 2**64:016x} and {expected:016x})",
    )


class EpochTokens:
    """What the minibatches of an epoch have trained so far, as hashes of tokens."""

    def __init__(self, batches: Sequence[CreditedBatch]) -> None:
        """`batches` hold all credited tokens."""
        self._credited = [batch.recorded.advantage_digests for batch in batches]
        self._sum, self._count = 0, 0

    def add(self, digests: np.ndarray) -> None:
        """Note the tokens of a minibatch."""
        self._sum, self._count = self._sum + int(digests.sum()), self._count + len(digests)

    def check(self) -> InvariantCheck:
        """The minibatches of an epoch hold every credited token once."""
        expected = sum(int(x.sum()) for x in self._credited)
        count = sum(map(len, self._credited))
        return InvariantCheck(
            "trained_minibatches",
            (self._sum - expected) % 2**64 == 0 and self._count == count,
            f"the minibatches of an epoch hold {self._count} tokens that are not the {count} "
            "credited ones, each once",
        )


def num_packed(batches: Sequence[PolicyGradientBatch]) -> int:
    """The tokens that microbatches train."""
    return sum(int(np.count_nonzero(x.batch.action_mask)) for x in batches)


def updated_tokens(tokens: Array, expected: int) -> InvariantCheck:
    """An update on the devices was made of all tokens of its microbatches.

    Args:
        tokens: that the update's metrics count, on the device.
        expected: those of the packed microbatches.
    """
    counted = int(jax.device_get(tokens))
    return InvariantCheck(
        "updated_tokens",
        counted == expected,
        f"an update was made of {counted} tokens, its microbatches hold {expected}",
    )


class FrozenWeights:
    """That the reference's weights stay as they were at the first check."""

    def __init__(self) -> None:
        self._first: Sequence[Array] = ()

    def check(self, reference: Params | None, invariants: Invariants) -> None:
        """Start to compute the checksum of the weights, to be compared when the step is reported;
        None: there are none.
        """
        if reference is None or not invariants.enabled:
            return
        checksums = checksums_by_device(reference)
        self._first = self._first or checksums
        invariants.defer(reference_weights, self._first, checksums)


def reference_weights(before: Sequence[Array], now: Sequence[Array]) -> InvariantCheck:
    """The reference's weights are those that the phase began with.

    Args:
        before: partial checksums of the weights, at the first step.
        now: the same of a later step.
    """
    first, last = (
        sum(int(part) for part in jax.device_get(list(parts))) % 2**32 for parts in (before, now)
    )
    return InvariantCheck(
        "reference_weights",
        first == last,
        f"the reference's weights have the checksum {last:08x}, while they had {first:08x} at the "
        "first step since the start",
    )


def sampled_by(params: Params, groups: Sequence[Group], runtime: Runtime) -> bool:
    """Whether an engine on this machine sampled every token with these very weights, without
    filters: then its log-probs are those of the learner, up to rounding.
    """
    agents = {t.agent for group in groups for t in group.trajectories if t.turns}
    engines = {
        name: runtime.agents[name].engine if name in runtime.agents else "" for name in agents
    }
    if not all(
        runtime.is_published(params, engine) and _holds_weights(runtime.engines[engine])
        for engine in engines.values()
    ):
        return False
    return all(
        _is_unfiltered_sample(
            [
                call
                for group in groups
                for t in group.trajectories
                if t.agent == name
                for call in t.calls
            ],
            runtime.published_versions[engine],
        )
        for name, engine in engines.items()
    )


def engine_bound(params: Params, runtime: Runtime) -> float:
    """`rounding_bound` of the engines on this machine, for a learner's weights."""
    holders = [x for x in runtime.engines.values() if isinstance(x, WeightHolder)]
    return rounding_bound(params, [x for holder in holders for _, x in holder.weights_in_use()])


def _holds_weights(engine: Engine) -> bool:
    return isinstance(engine, WeightHolder) and bool(engine.weights_in_use())


def _is_unfiltered_sample(calls: Sequence[Call], version: int) -> bool:
    samplings = {id(call.sampling): call.sampling for call in calls}.values()
    versions = np.concatenate([np.zeros(0, np.int32) + version, *(call.version for call in calls)])
    return (
        all(call.source == "sampled" for call in calls)
        and all(
            s.temperature > 0 and s.top_k == 0 and s.top_p >= 1 and s.min_p <= 0 for s in samplings
        )
        and bool((versions == version).all())
    )


def sampler_logp(gap_sum: Array, tokens: Array, bound: float) -> InvariantCheck:
    """The mean difference of the sampler's and the learner's log-probs is at most `bound` nats.

    Args:
        gap_sum: of the tokens of an update, on the device.
        tokens: their number.
        bound: see `logp_bound`.
    """
    gap = float(jax.device_get(gap_sum)) / max(float(jax.device_get(tokens)), 1.0)
    return InvariantCheck(
        "sampler_logp",
        gap <= bound,
        f"the log-probs of sampler and learner differ by {gap:.3g} nats in the mean, more than "
        f"{bound:g}, although both have the same weights (off_policy/logp_gap)",
    )
