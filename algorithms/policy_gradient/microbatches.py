"""From credited tokens to packed microbatches, for the policy and for the critic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.policy_gradient.credit_invariants import EpochTokens, token_advantages
from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch, TokenColumns
from agentrl_jax.algorithms.policy_gradient.critic import CriticBatch, CriticConfig
from agentrl_jax.algorithms.policy_gradient.device_loss import PolicyGradientBatch
from agentrl_jax.algorithms.policy_gradient.scoring import ScoringPass, packed_sequence_ids
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.invariants import Invariants
from agentrl_jax.learner.batch_invariants import packed_rows
from agentrl_jax.learner.data_shards import DataShard, agree_on_layout
from agentrl_jax.learner.image_rows import ImagePacker
from agentrl_jax.learner.packing import PackedLayout, pack, pack_branches, split_bins
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence

TokenPositions = tuple[np.ndarray, np.ndarray]  # (sequence, position within it) of each token


@dataclass
class PromptSharing:
    """Training sequences that begin with the same prompt store it once per bin.

    A bin holds `prompt_tokens` columns for the prompt, then the remaining tokens of up to
    `sequences` sequences. The update is the same; it needs less compute where prompts are long and
    the sequences of a group are of similar length.
    """

    prompt_tokens: int = 0  # 0: off; what exceeds it belongs to each sequence
    sequences: int = 8


@dataclass(frozen=True)
class MicrobatchPacker:
    """Packs training sequences into microbatches of one shape."""

    data_shard: DataShard
    bin_length: int
    prompt_sharing: PromptSharing
    microbatch_rows: int  # of this process's microbatch
    images: ImagePacker | None = None  # None: sequences with images are refused

    def scoring_pass(
        self,
        sequences: Sequence[TrainingSequence],
        indices: TokenIndex,
        process_group: ProcessGroup,
    ) -> ScoringPass:
        """All sequences, for models to score."""
        return ScoringPass(
            self._agreed_layout(sequences, process_group), indices, self.microbatch_rows
        )

    def policy_microbatches(
        self,
        credited_batch: CreditedBatch,
        groups: np.ndarray,
        process_group: ProcessGroup,
        invariants: Invariants,
        epoch: EpochTokens,
    ) -> list[PolicyGradientBatch]:
        """Microbatches of some groups. Sequences whose every loss is exactly 0 are left out; their
        weights still count. What is packed is checked to be what was credited, and `epoch` notes
        the groups' tokens.
        """
        inputs, tokens, local_tokens = credited_batch.select_groups(groups)
        epoch.add(credited_batch.recorded.advantage_digests[local_tokens])
        is_local = credited_batch.global_groups.local_token_mask[tokens]
        weight = credited_batch.targets.loss_weights(inputs, tokens)[is_local]
        columns = credited_batch.token_columns.select(local_tokens)
        sequence = credited_batch.local_inputs.token_sequence[local_tokens]
        position = credited_batch.local_inputs.token_position[local_tokens]
        used = np.unique(sequence[_has_loss(columns) & (weight != 0)])
        layout = self._agreed_layout([credited_batch.sequences[s] for s in used], process_group)
        if layout is None:
            return []
        keep = np.isin(sequence, used)
        positions = np.searchsorted(used, sequence[keep]), position[keep]
        batch = _policy_batch(layout, positions, columns.select(keep), weight[keep])
        microbatches = split_bins(batch, self.microbatch_rows)
        digests = credited_batch.recorded.advantage_digests[local_tokens][keep]
        invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        invariants.check(
            token_advantages, digests, columns.select(keep), weight[keep], microbatches
        )
        return microbatches

    def critic_microbatches(
        self,
        credited_batch: CreditedBatch,
        groups: np.ndarray,
        config: CriticConfig,
        process_group: ProcessGroup,
        invariants: Invariants,
    ) -> list[CriticBatch]:
        """Microbatches of all tokens of some groups, masked ones too."""
        inputs, tokens, local_tokens = credited_batch.select_groups(groups)
        is_local = credited_batch.global_groups.local_token_mask[tokens]
        weight = config.aggregation(inputs)[is_local]
        sequence = credited_batch.local_inputs.token_sequence[local_tokens]
        used = np.unique(sequence)
        layout = self._agreed_layout([credited_batch.sequences[s] for s in used], process_group)
        if layout is None:
            return []
        position = credited_batch.local_inputs.token_position[local_tokens]
        positions = np.searchsorted(used, sequence), position
        columns = credited_batch.token_columns
        batch = CriticBatch(
            batch=layout.to_batch(layout.scatter(weight, *positions)),
            target=layout.scatter(columns.value_target[local_tokens], *positions),
            proximal_value=layout.scatter(columns.value[local_tokens], *positions),
        )
        microbatches = split_bins(batch, self.microbatch_rows)
        invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        return microbatches

    def padding_microbatch(self, regularizer_data: dict[str, Any]) -> PolicyGradientBatch:
        """A microbatch of all processes without any sequence; `regularizer_data` is that of no
        tokens.
        """
        floats, ints = np.zeros(0), np.zeros(0, np.int64)
        columns = TokenColumns(
            advantage=floats,
            nll_weight=floats,
            sequence_key=ints,
            proximal_logp=floats,
            ref_logp=floats,
            value=floats,
            value_target=floats,
            regularizer_data=regularizer_data,
        )
        rows = self.microbatch_rows * len(self.data_shard.replica_groups)
        return _policy_batch(
            pack((), self.bin_length, rows, self.images), (ints, ints), columns, floats
        )

    def _agreed_layout(
        self, sequences: Sequence[TrainingSequence], process_group: ProcessGroup
    ) -> PackedLayout | None:
        if self.prompt_sharing.prompt_tokens:
            layout = pack_branches(
                sequences,
                self.prompt_sharing.prompt_tokens,
                self.bin_length,
                self.prompt_sharing.sequences,
                self.microbatch_rows,
            )
        else:
            layout = pack(sequences, self.bin_length, self.microbatch_rows, self.images)
        return agree_on_layout(process_group, self.data_shard, layout, self.microbatch_rows)


def _has_loss(columns: TokenColumns) -> np.ndarray:
    """Whether a token has a loss other than 0, bool [n]."""
    factors = (columns.advantage, columns.nll_weight, *jax.tree.leaves(columns.regularizer_data))
    return np.logical_or.reduce([factor != 0 for factor in factors])


def _policy_batch(
    layout: PackedLayout, positions: TokenPositions, columns: TokenColumns, weight: np.ndarray
) -> PolicyGradientBatch:
    def packed(values: np.ndarray) -> np.ndarray:
        return layout.scatter(values, *positions)

    sequence_ids = packed_sequence_ids(layout, *positions, columns.sequence_key)
    return PolicyGradientBatch(
        batch=layout.to_batch(packed(weight)),
        sequence_ids=packed(sequence_ids).astype(np.int32),
        advantage=packed(columns.advantage),
        nll_weight=packed(columns.nll_weight),
        proximal_logp=packed(columns.proximal_logp),
        ref_logp=packed(columns.ref_logp),
        regularizer_data=jax.tree.map(packed, columns.regularizer_data),
    )
