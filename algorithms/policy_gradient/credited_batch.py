"""Credit per token: `TokenTargets` over all processes' tokens, `TokenColumns` and `CreditedBatch`
for this process's.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.advantages.grouping import turn_index
from agentrl_jax.algorithms.advantages.token_masks import select_tokens
from agentrl_jax.algorithms.policy_gradient.critic import explained_variance
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.global_batch import GlobalGroups
from agentrl_jax.learner.recorded_tokens import RecordedTokens
from agentrl_jax.learner.sequences import (
    CollatedSequences,
    CreditInputs,
    TokenIndex,
    TrainingSequence,
    recorded_identity,
)
from agentrl_jax.pytree import pytree_dataclass

MAX_REPORTED_TURNS = 8  # turn indices for which the mean advantage is reported


@dataclass(frozen=True, eq=False)
class TokenTargets:
    """What the losses are given for the N policy-written tokens of all processes."""

    advantage: np.ndarray  # float [N]
    train_mask: np.ndarray  # bool [N]; a masked token has no weight and is not counted
    aggregation: Callable[[TokenIndex], np.ndarray]
    weight_scale: float = 1.0  # of the aggregation's weights
    nll_weight: np.ndarray | None = None  # coefficient of -logp, float [N]; None: 0
    value_target: np.ndarray | None = None  # of the critic, float [N]
    # each regularizer's `token_data` by name; None: no regularizer applies
    regularizer_data: Mapping[str, Any] | None = None

    def loss_weights(self, inputs: CreditInputs, tokens: slice) -> np.ndarray:
        """The loss weights of `tokens` in [N], whose credit inputs are `inputs`."""
        trained = self.train_mask[tokens]
        weight = np.zeros(len(trained))
        weight[trained] = self.weight_scale * self.aggregation(select_tokens(inputs, trained))
        return weight


@pytree_dataclass
class TokenColumns:
    """What losses read of this process's n policy-written tokens, each [n]."""

    advantage: np.ndarray
    nll_weight: np.ndarray  # coefficient of -logp
    sequence_key: np.ndarray  # int; tokens of equal key share a ratio
    proximal_logp: np.ndarray
    ref_logp: np.ndarray
    value: np.ndarray
    value_target: np.ndarray
    regularizer_data: dict[str, Any]  # each regularizer's `token_data` by name

    def select(self, tokens: slice | np.ndarray) -> "TokenColumns":
        """The columns of some tokens: a slice or a mask [n]."""
        return jax.tree.map(lambda column: column[tokens], self)


@dataclass(frozen=True, eq=False)
class CreditedRecord:
    """This process's n tokens as they were recorded, when credit was given."""

    tokens: RecordedTokens
    advantage_digests: np.ndarray  # uint64 [n]: see `credit_invariants.advantage_digests`


@dataclass(frozen=True, eq=False)
class CreditedBatch:
    """Targets of all processes' tokens, and this process's sequences and tokens among them."""

    sequences: list[TrainingSequence]
    local_inputs: CreditInputs  # of this process alone
    global_groups: GlobalGroups[CreditInputs]
    targets: TokenTargets
    token_columns: TokenColumns
    recorded: CreditedRecord

    @functools.cached_property
    def collated(self) -> CollatedSequences:
        """This process's sequences with their index."""
        return CollatedSequences(self.sequences, self.local_inputs)

    def select_groups(self, groups: np.ndarray) -> tuple[CreditInputs, slice, slice]:
        """The credit inputs of some groups, where their tokens are in [N], and where this process's
        tokens among them are in [n].
        """
        inputs, tokens = self.global_groups.select_groups(groups)
        is_local = self.global_groups.local_token_mask
        start = int(is_local[: tokens.start].sum())
        return inputs, tokens, slice(start, start + int(is_local[tokens].sum()))


def credit_metrics(inputs: CreditInputs, targets: TokenTargets) -> dict[str, float]:
    """Size and sign of advantages, their mean by turn index, and the fraction of tokens masked."""
    if not len(targets.advantage):
        return {}
    trained = targets.advantage[targets.train_mask]
    index = turn_index(inputs)[inputs.token_turn]
    metrics = {
        "advantage/mean": float(trained.mean()) if len(trained) else 0.0,
        "advantage/std": float(trained.std()) if len(trained) else 0.0,
        "advantage/positive": float((trained > 0).mean()) if len(trained) else 0.0,
        "tokens/masked": 1.0 - float(targets.train_mask.mean()),
    }
    for turn in range(min(MAX_REPORTED_TURNS, int(index.max()) + 1)):
        of_turn = targets.train_mask & (index == turn)
        if of_turn.any():
            metrics[f"advantage/turn_{turn}"] = float(targets.advantage[of_turn].mean())
    return metrics


def batch_metrics(
    credited: CreditedBatch, process_group: ProcessGroup, step: int
) -> dict[str, Any]:
    """Metrics of the rollouts that are trained on."""
    inputs, targets = credited.global_groups.token_index, credited.targets
    collated = credited.collated
    local_identity = recorded_identity(credited.recorded.tokens, collated)
    identity = min(process_group.all_gather("tokens/identity", local_identity))
    group_of_token = inputs.trajectory_group[inputs.token_trajectory]
    metrics: dict[str, Any] = {
        "tokens/identity": identity,
        "tokens": float(len(inputs.token_sequence)),
        **credit_metrics(inputs, targets),
    }
    has_signal = (targets.advantage != 0) & targets.train_mask
    num_with_signal = len(np.unique(group_of_token[has_signal]))
    metrics["groups_with_signal"] = num_with_signal / max(credited.global_groups.num_groups, 1)
    versions = collated.token_values("version")
    known = versions[versions >= 0]
    staleness = process_group.all_gather(
        "staleness", [float((step - known).sum()), int((versions >= 0).sum())]
    )
    total, count = (sum(values) for values in zip(*staleness))
    metrics["staleness"] = total / max(count, 1)
    if targets.value_target is not None and inputs.token_value is not None:
        metrics["critic/explained_variance"] = explained_variance(
            inputs.token_value, targets.value_target
        )
    return metrics
