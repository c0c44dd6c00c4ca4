"""Masks (slot M): (evidence) -> bool [N], which tokens are trained. What is masked still counts in a group's statistics."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from agentrl_jax.algorithms.facts import calls_of, known
from agentrl_jax.algorithms.keying import group_of_turn, place_of_turn
from agentrl_jax.algorithms.quality import Fault, overlong, void
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence, Indices
from agentrl_jax.trajectories import Source

Mask = Callable[[Evidence], np.ndarray]
Owners = TypeVar("Owners", bound=Indices)


@dataclass
class Without:
    """No token of a trajectory with one of these faults."""

    faults: Sequence[Fault]

    def __call__(self, evidence: Evidence) -> np.ndarray:
        good = np.array([not any(fault(trajectory) for fault in self.faults) for trajectory in evidence.trajectories], bool)
        return good[evidence.token_trajectory]


def without_void(evidence: Evidence) -> np.ndarray:
    """No token of a trajectory with a void turn (SimpleTIR, arXiv 2509.02479)."""
    return Without((void,))(evidence)


def without_overlong(evidence: Evidence) -> np.ndarray:
    """No token of a trajectory that a limit cut (DAPO, arXiv 2503.14476; SUPO, 2510.06727)."""
    return Without((overlong,))(evidence)


@dataclass
class TopEntropyTurns:
    """Only the `share` of turns whose mean token entropy is highest, of each group or of the batch (DART, arXiv 2509.23866).

    At least one turn is kept; of equal entropies the earlier turn goes first. Raises UserError where entropies are not known.
    """

    share: float = 0.8
    key: Callable[[Indices], np.ndarray] = group_of_turn  # of what the share is taken: `group_of_turn`, `batch_of_turn`

    def __call__(self, evidence: Evidence) -> np.ndarray:
        entropy, key = turn_means(evidence, known(evidence.token_entropy, "entropy")), self.key(evidence)
        keep = np.zeros(len(entropy), bool)
        written = ~np.isnan(entropy)
        for k in np.unique(key[written]):
            (turns,) = np.nonzero((key == k) & written)
            count = max(1, int(np.floor(self.share * len(turns) + 1e-9)))
            keep[turns[np.argsort(-entropy[turns], kind="stable")[:count]]] = True
        return keep[evidence.token_turn]


def turn_means(indices: Indices, values: np.ndarray) -> np.ndarray:
    """Mean over each turn's tokens, [R]; nan where it has none."""
    turns = len(indices.turn_trajectory)
    count = np.bincount(indices.token_turn, minlength=turns)
    return np.where(count > 0, np.bincount(indices.token_turn, values, minlength=turns) / np.maximum(count, 1), np.nan)


@dataclass
class Quantiles:
    """Whether values lie between two quantiles of theirs, ends included."""

    low: float
    high: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        low, high = np.quantile(values, [self.low, self.high]) if len(values) else (0.0, 0.0)
        return (values >= low) & (values <= high)


@dataclass
class Deviations:
    """Whether values lie within so many standard deviations of their mean."""

    count: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return np.abs(values - values.mean()) <= self.count * values.std(ddof=min(1, len(values) - 1)) if len(values) else values > 0


@dataclass
class LikelihoodBand:
    """Only turns whose mean negative log-likelihood lies in the middle: neither trivial nor noise (BFS-Prover-V2, arXiv 2509.06493).

    Under the learner where it scored the tokens, else under the sampler.
    """

    band: Quantiles | Deviations

    def __call__(self, evidence: Evidence) -> np.ndarray:
        logp = evidence.token_sampler_logp if evidence.token_logp is None else evidence.token_logp
        nll = turn_means(evidence, -known(logp, "log-prob"))
        keep = np.zeros(len(nll), bool)
        written = ~np.isnan(nll)
        keep[written] = self.band(nll[written])
        return keep[evidence.token_turn]


@dataclass
class Agents:
    """Only what agents of these names wrote (EPO, arXiv 2502.12486: the strategist's tokens)."""

    names: Sequence[str]

    def __call__(self, evidence: Evidence) -> np.ndarray:
        return np.array([t.agent in self.names for t in evidence.trajectories], bool)[evidence.token_trajectory]


@dataclass
class Sources:
    """Only calls of these sources: without a demonstration or a patch that stands in for the policy's own action."""

    names: Sequence[Source] = ("sampled",)

    def __call__(self, evidence: Evidence) -> np.ndarray:
        calls, owner = calls_of(evidence)
        return np.array([call.source in self.names for call in calls], bool)[owner]


@dataclass
class CallsNamed:
    """Only calls whose name is one of these: summaries, answers, thoughts (`info["calls"]`, see `facts`).

    Raises UserError where a turn does not name each of its calls.
    """

    names: Sequence[str]

    def __call__(self, evidence: Evidence) -> np.ndarray:
        keep: list[bool] = []
        for turn in evidence.turns:
            names = turn.info.get("calls", ["action"] * len(turn.calls))
            if len(names) != len(turn.calls):
                raise UserError(f"a turn has {len(turn.calls)} calls but its info names {len(names)} of them")
            keep += [name in self.names for name in names]
        return np.array(keep, bool)[calls_of(evidence)[1]]


@dataclass
class AfterMarker:
    """Only what a call wrote after the last of these token sequences, or all where there is none: the answer without its thought."""

    marker: Sequence[int]

    def __call__(self, evidence: Evidence) -> np.ndarray:
        marker, keep = np.asarray(self.marker), [np.zeros(0, bool)]
        for call in calls_of(evidence)[0]:
            written, start = np.ones(len(call.action), bool), 0
            for i in range(len(call.action) - len(marker), -1, -1):
                if np.array_equal(call.action[i : i + len(marker)], marker):
                    start = i + len(marker)
                    break
            written[:start] = False
            keep.append(written[len(call.sampling.forced) :])
        return np.concatenate(keep)


@dataclass
class AllOf:
    """What every one of several masks keeps."""

    masks: Sequence[Mask]

    def __call__(self, evidence: Evidence) -> np.ndarray:
        return np.logical_and.reduce([np.ones(len(evidence.token_row), bool), *(mask(evidence) for mask in self.masks)])


def restricted(indices: Owners, mask: np.ndarray) -> Owners:
    """The same record with only the tokens that a mask [N] keeps, as aggregations take it; turns and trajectories all stay."""
    tokens = {name: value[mask] for name, value in vars(indices).items() if name.startswith("token_") and value is not None}
    return dataclasses.replace(indices, **tokens)


@dataclass
class ByAttempt:
    """A number for each token by its turn's place, the last number for all later turns, float [N].

    The coefficients of SCoRe's KL: (beta1 + beta2, beta1) in its first stage, (beta1,) in its second (arXiv 2409.12917).
    """

    numbers: Sequence[float]

    def __call__(self, indices: Indices) -> np.ndarray:
        return np.asarray(self.numbers, np.float64)[np.minimum(place_of_turn(indices), len(self.numbers) - 1)][indices.token_turn]
