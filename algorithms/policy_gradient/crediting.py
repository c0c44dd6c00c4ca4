"""From groups to credited tokens, on the host: score them, gather all processes' credit inputs,
compute targets.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.advantages.group import AdvantageAndTarget
from agentrl_jax.algorithms.experience.schedules import value_at
from agentrl_jax.algorithms.losses.regularizers import Regularizer
from agentrl_jax.algorithms.policy_gradient.auxiliary import AuxiliaryObjective
from agentrl_jax.algorithms.policy_gradient.config import PolicyGradientSlots
from agentrl_jax.algorithms.policy_gradient.credit_invariants import advantage_digests
from agentrl_jax.algorithms.policy_gradient.credited_batch import (
    CreditedBatch,
    CreditedRecord,
    TokenColumns,
    TokenTargets,
)
from agentrl_jax.algorithms.policy_gradient.microbatches import MicrobatchPacker
from agentrl_jax.algorithms.policy_gradient.scoring import compile_correction
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.global_batch import GlobalGroups, gather_groups
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.recorded_tokens import RecordedTokens
from agentrl_jax.learner.sequences import (
    CollatedSequences,
    CreditInputs,
    collate,
    make_credit_inputs,
)
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.trajectories import Group


class Crediting:
    """Scores groups and computes the targets of their tokens: for the policy gradient, and for
    auxiliary objectives.
    """

    def __init__(
        self,
        config: PolicyGradientSlots,
        packer: MicrobatchPacker,
        learner: Learner,
        critic_learner: Learner | None,
        needs_reference: bool,
    ) -> None:
        self._config, self._packer, self._needs_reference = config, packer, needs_reference
        self._learner, self._critic_learner = learner, critic_learner
        rescored_mismatch = config.mismatch if config.rescore else None
        self._correction_fn = compile_correction(rescored_mismatch) if rescored_mismatch else None
        self.empty_regularizer_data = _empty_regularizer_data(config.regularizers)

    def credit_rollouts(
        self,
        state: TrainState,
        indexed_groups: Sequence[tuple[int, Group]],
        process_group: ProcessGroup,
        step: int,
    ) -> CreditedBatch:
        """Credit the groups of the policy gradient, each given with its index among those of all
        processes. Ratios are to the learner's log-probs from before the update if it rescores.
        """
        groups = [group for _, group in indexed_groups]
        collated, inputs = self._scored_inputs(state, groups, process_group)
        global_groups = gather_groups(
            process_group, inputs, len(groups), [index for index, _ in indexed_groups]
        )
        targets = token_targets(self._config, global_groups.token_index, step)
        recorded = _recorded_tokens(groups, global_groups, targets)
        proximal_logp = inputs.token_logp if self._config.rescore else None
        return self._credited_batch(
            collated, inputs, global_groups, targets, recorded, proximal_logp
        )

    def credit_auxiliary(
        self,
        state: TrainState,
        auxiliary: AuxiliaryObjective,
        groups: Sequence[Group],
        process_group: ProcessGroup,
        step: int,
    ) -> CreditedBatch:
        """Credit the groups of an auxiliary objective. Ratios are to the recorded log-probs."""
        collated, inputs = self._scored_inputs(state, groups, process_group)
        global_groups = gather_groups(process_group, inputs, len(groups))
        targets = auxiliary.targets(global_groups.token_index, step)
        recorded = _recorded_tokens(groups, global_groups, targets)
        return self._credited_batch(collated, inputs, global_groups, targets, recorded, None)

    def _scored_inputs(
        self, state: TrainState, groups: Sequence[Group], process_group: ProcessGroup
    ) -> tuple[CollatedSequences, CreditInputs]:
        """This process's groups, with what learner, reference and critic compute for each token."""
        collated = collate(groups)
        inputs = make_credit_inputs(groups, collated)
        config, critic_learner = self._config, self._critic_learner
        if not (config.rescore or self._needs_reference or critic_learner):
            return collated, inputs
        scoring = self._packer.scoring_pass(collated.sequences, collated.token_index, process_group)
        if config.rescore:
            logp, entropy = scoring.token_scores(self._learner, state.params)
            inputs = dataclasses.replace(inputs, token_logp=logp, token_entropy=entropy)
        if self._needs_reference:
            ref_logp = scoring.token_scores(self._learner, state.extra.reference)[0]
            inputs = dataclasses.replace(inputs, token_ref_logp=ref_logp)
        if critic_learner:
            value = scoring.token_scores(critic_learner, state.extra.critic.params)[0]
            inputs = dataclasses.replace(inputs, token_value=value)
        if self._correction_fn and inputs.token_logp is not None:
            weight, accepted = scoring.importance_weights(
                self._correction_fn, inputs.token_logp, config.sequence(inputs)
            )
            inputs = dataclasses.replace(
                inputs, token_importance_weight=weight, token_accepted=accepted
            )
        return collated, inputs

    def _credited_batch(
        self,
        collated: CollatedSequences,
        inputs: CreditInputs,
        global_groups: GlobalGroups[CreditInputs],
        targets: TokenTargets,
        recorded: CreditedRecord,
        proximal_logp: np.ndarray | None,
    ) -> CreditedBatch:
        """`inputs` are this process's; `proximal_logp` None: the recorded log-probs."""
        is_local = global_groups.local_token_mask
        zeros = np.zeros(len(inputs.token_sequence))
        if targets.regularizer_data is None:
            data = jax.tree.map(lambda _: zeros, self.empty_regularizer_data)
        else:
            data = jax.tree.map(lambda values: values[is_local], dict(targets.regularizer_data))
        columns = TokenColumns(
            advantage=targets.advantage[is_local],
            nll_weight=zeros if targets.nll_weight is None else targets.nll_weight[is_local],
            sequence_key=self._config.sequence(global_groups.token_index)[is_local],
            proximal_logp=inputs.token_sampler_logp if proximal_logp is None else proximal_logp,
            ref_logp=zeros if inputs.token_ref_logp is None else inputs.token_ref_logp,
            value=zeros if inputs.token_value is None else inputs.token_value,
            value_target=zeros if targets.value_target is None else targets.value_target[is_local],
            regularizer_data=data,
        )
        return CreditedBatch(collated.sequences, inputs, global_groups, targets, columns, recorded)


def _recorded_tokens(
    groups: Sequence[Group], global_groups: GlobalGroups[CreditInputs], targets: TokenTargets
) -> CreditedRecord:
    """This process's tokens as they were recorded, with `advantage_digests`."""
    recorded = RecordedTokens.of(groups)
    local_advantage = targets.advantage[global_groups.local_token_mask]
    return CreditedRecord(recorded, advantage_digests(recorded, local_advantage))


def token_targets(config: PolicyGradientSlots, inputs: CreditInputs, step: int) -> TokenTargets:
    """Advantages, their transforms, the mask and the regularizers' data; importance weights from
    before the update multiply the advantage.

    Raises UserError where the advantage is not one finite number per token, or where an advantage
    with value targets and a critic do not come together.
    """
    count = len(inputs.token_sequence)
    credit = config.advantage(inputs)
    advantage, value_target = (
        (credit.advantage, credit.value_target)
        if isinstance(credit, AdvantageAndTarget)
        else (credit, None)
    )
    if (value_target is None) != (config.critic is None):
        raise UserError(
            "an advantage with value targets needs a critic in the config, and a critic an "
            "advantage that trains it"
        )
    for transform in config.transforms:
        advantage = transform(inputs, np.asarray(advantage, np.float64))
    train_mask = np.ones(count, bool) if config.mask is None else config.mask(inputs)
    if inputs.token_accepted is not None:
        train_mask = train_mask & inputs.token_accepted
    advantage = np.asarray(advantage, np.float64)
    for values in (advantage, *(() if value_target is None else (value_target,))):
        if values.shape != (count,) or not np.isfinite(values).all():
            raise UserError("the advantage must be one finite number per policy-written token")
    if inputs.token_importance_weight is not None:
        # Every policy loss is proportional to the size of the advantage.
        weight = inputs.token_importance_weight
        normalize = config.mismatch_normalize and train_mask.any()
        mean = float(weight[train_mask].mean()) if normalize else 1.0
        advantage = advantage * weight / (mean if mean > 0 else 1.0)
    scale = value_at(config.policy_weight, step)
    targets = TokenTargets(advantage, train_mask, config.aggregation, scale, None, value_target)
    loss_weight = targets.loss_weights(inputs, slice(0, count))
    regularizer_data = {
        name: regularizer.token_data(inputs, advantage, loss_weight, step)
        for name, regularizer in config.regularizers.items()
    }
    return dataclasses.replace(targets, regularizer_data=regularizer_data)


def _empty_regularizer_data(regularizers: Mapping[str, Regularizer]) -> dict[str, Any]:
    """Each regularizer's data for no tokens, from copies: `token_data` may change its state."""
    empty = np.zeros(0)
    inputs = dataclasses.replace(
        make_credit_inputs((), collate(())),
        token_logp=empty,
        token_ref_logp=empty,
        token_value=empty,
        token_entropy=empty,
    )
    return {
        name: copy.deepcopy(regularizer).token_data(inputs, empty, empty, 0)
        for name, regularizer in regularizers.items()
    }
