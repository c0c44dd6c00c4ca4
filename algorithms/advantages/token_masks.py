"""Masks (slot `mask`): (inputs) -> bool [N], which tokens are trained. Masked tokens still count in
a group's statistics.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import group_of_turn, turn_index
from agentrl_jax.algorithms.advantages.info_fields import calls_and_owners, require_values
from agentrl_jax.algorithms.advantages.trajectory_checks import (
    TrajectoryPredicate,
    has_void_turn,
    is_overlong,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.deferred_inputs import (
    INDEX_FIELDS,
    DeferredCreditInputs,
    trajectory_values,
)
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex
from agentrl_jax.trajectories import Source

TokenMask = Callable[[CreditInputs], np.ndarray]
TokenIndexT = TypeVar("TokenIndexT", bound=TokenIndex)


@dataclass
class MaskFaulty:
    """No token of a trajectory with one of these faults."""

    faults: Sequence[TrajectoryPredicate]

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        faulty = trajectory_values(inputs, lambda t: any(bool(fault(t)) for fault in self.faults))
        return ~np.array(faulty, bool)[inputs.token_trajectory]


def mask_void_trajectories(inputs: CreditInputs) -> np.ndarray:
    """No token of a trajectory with a void turn (SimpleTIR, arXiv 2509.02479)."""
    return MaskFaulty((has_void_turn,))(inputs)


def mask_overlong_trajectories(inputs: CreditInputs) -> np.ndarray:
    """No token of a trajectory truncated by a limit (DAPO, arXiv 2503.14476; SUPO, 2510.06727)."""
    return MaskFaulty((is_overlong,))(inputs)


@dataclass
class TopEntropyTurns:
    """Only the `fraction` of turns whose mean token entropy is highest, of each group or of the
    batch (DART, arXiv 2509.23866).

    At least one turn is kept; of equal entropies the earlier turn. Raises UserError where entropies
    are not known.
    """

    fraction: float = 0.8
    # what it is a fraction of: `group_of_turn`, `batch_of_turn`
    key: Callable[[TokenIndex], np.ndarray] = group_of_turn

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        entropy = turn_means(inputs, require_values(inputs.token_entropy, "entropy"))
        key = self.key(inputs)
        keep = np.zeros(len(entropy), bool)
        has_tokens = ~np.isnan(entropy)
        for k in np.unique(key[has_tokens]):
            (turns,) = np.nonzero((key == k) & has_tokens)
            count = max(1, int(np.floor(self.fraction * len(turns) + 1e-9)))
            keep[turns[np.argsort(-entropy[turns], kind="stable")[:count]]] = True
        return keep[inputs.token_turn]


def turn_means(indices: TokenIndex, values: np.ndarray) -> np.ndarray:
    """Mean over each turn's tokens, [R]; nan where it has none."""
    turns = len(indices.turn_trajectory)
    count = np.bincount(indices.token_turn, minlength=turns)
    total = np.bincount(indices.token_turn, values, minlength=turns)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass
class QuantileBand:
    """Whether values lie between two of their quantiles, ends included."""

    low: float
    high: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if not len(values):
            return np.zeros(0, bool)
        low, high = np.quantile(values, [self.low, self.high])
        return (values >= low) & (values <= high)


@dataclass
class StdBand:
    """Whether values lie within so many standard deviations of their mean."""

    num_std: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if not len(values):
            return np.zeros(0, bool)
        std = values.std(ddof=min(1, len(values) - 1))
        return np.abs(values - values.mean()) <= self.num_std * std


@dataclass
class TurnNLLBand:
    """Only turns whose mean negative log-likelihood lies in a band: neither trivial nor noise
    (BFS-Prover-V2, arXiv 2509.06493).

    Under the learner where it scored the tokens, else under the sampler.
    """

    band: QuantileBand | StdBand

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        logp = inputs.token_sampler_logp if inputs.token_logp is None else inputs.token_logp
        nll = turn_means(inputs, -require_values(logp, "log-prob"))
        keep = np.zeros(len(nll), bool)
        has_tokens = ~np.isnan(nll)
        keep[has_tokens] = self.band(nll[has_tokens])
        return keep[inputs.token_turn]


@dataclass
class OnlyAgents:
    """Only tokens of agents with these names (EPO, arXiv 2502.12486: the strategist's tokens)."""

    names: Sequence[str]

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        is_of_agent = trajectory_values(inputs, lambda t: t.agent in self.names)
        return np.array(is_of_agent, bool)[inputs.token_trajectory]


@dataclass
class OnlySources:
    """Only calls of these sources: no demonstration, and no patch that replaces the policy's
    action.
    """

    names: Sequence[Source] = ("sampled",)

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        calls, owner = calls_and_owners(inputs)
        return np.array([call.source in self.names for call in calls], bool)[owner]


@dataclass
class OnlyNamedCalls:
    """Only calls with one of these names: summaries, answers, thoughts (`info["calls"]`, see
    `info_fields`).

    Raises UserError where a turn does not name each of its calls.
    """

    names: Sequence[str]

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        keep: list[bool] = []
        for turn in inputs.turns:
            names = turn.info.get("calls", ["action"] * len(turn.calls))
            if len(names) != len(turn.calls):
                raise UserError(
                    f"a turn has {len(turn.calls)} calls but its info names {len(names)} of them"
                )
            keep += [name in self.names for name in names]
        return np.array(keep, bool)[calls_and_owners(inputs)[1]]


@dataclass
class OnlyAfterMarker:
    """Only the tokens of a call after the last occurrence of `marker`, or all where there is none:
    the answer without its thought.
    """

    marker: Sequence[int]

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        marker, keep = np.asarray(self.marker), [np.zeros(0, bool)]
        for call in calls_and_owners(inputs)[0]:
            after_marker, start = np.ones(len(call.action), bool), 0
            for i in range(len(call.action) - len(marker), -1, -1):
                if np.array_equal(call.action[i : i + len(marker)], marker):
                    start = i + len(marker)
                    break
            after_marker[:start] = False
            keep.append(after_marker[len(call.sampling.forced) :])
        return np.concatenate(keep)


@dataclass
class AllOf:
    """The intersection of several masks."""

    masks: Sequence[TokenMask]

    def __call__(self, inputs: CreditInputs) -> np.ndarray:
        return np.logical_and.reduce(
            [np.ones(len(inputs.token_sequence), bool), *(mask(inputs) for mask in self.masks)]
        )


def select_tokens(indices: TokenIndexT, mask: np.ndarray) -> TokenIndexT:
    """The indices with only the tokens that a mask [N] keeps, for aggregations; all turns and
    trajectories stay.
    """
    if isinstance(indices, DeferredCreditInputs):
        fields = {name: getattr(indices, name) for name in INDEX_FIELDS}
        fields |= {name: x[mask] for name, x in fields.items() if name.startswith("token_")}
        return cast(TokenIndexT, indices.select(TokenIndex(**fields), {"token": mask}))
    tokens = {
        name: value[mask]
        for name, value in vars(indices).items()
        if name.startswith("token_") and value is not None
    }
    return dataclasses.replace(indices, **tokens)


@dataclass
class ByTurnIndex:
    """A number for each token by its turn index, the last number for all later turns, float [N].

    The coefficients of SCoRe's KL: (beta1 + beta2, beta1) in its first stage, (beta1,) in its
    second (arXiv 2409.12917).
    """

    values: Sequence[float]

    def __call__(self, indices: TokenIndex) -> np.ndarray:
        index = np.minimum(turn_index(indices), len(self.values) - 1)
        return np.asarray(self.values, np.float64)[index][indices.token_turn]
