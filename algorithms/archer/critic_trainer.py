"""Training and evaluating utterance critics: batches of few shapes from replayed turns, an
optimizer step, the target network's update.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.critic_losses import (
    OnPolicyTDLoss,
    StateUtteranceBatch,
    TransitionBatch,
    TransitionOutcome,
    TwinCritic,
    UtteranceCritic,
    UtteranceCriticBatch,
    UtteranceCriticLoss,
    utterance_critic_loss,
)
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.algorithms.archer.text_batches import (
    TextBatch,
    bucket_length,
    make_text_tokenizer,
    pad_texts,
    scatter_column,
    single_column_batch,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import split_bins
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Encoder, Params, Policy


@runtime_checkable
class EncoderBuilder(Protocol):
    """A config of the critic's encoder (`models.utterance_critic`: `FreshEncoderConfig`,
    `PretrainedEncoderConfig`, `PolicyTrunkEncoderConfig`).
    """

    def build(self, policy: Policy) -> Encoder: ...

    def initial_params(self, encoder: Any, params: Params, key: Any, mesh: Any) -> Params:
        """The encoder's initial weights; `params` are the policy's."""
        ...

    def build_tokenizer(self) -> Any | None:
        """The encoder's tokenizer; None: it takes the policy's ids."""
        ...


@runtime_checkable
class UtteranceCriticBuilder(Protocol):
    """A config of the heads (`models.utterance_critic.UtteranceCriticConfig`)."""

    def build(self, encoder: Any) -> UtteranceCritic: ...


@dataclass
class UtteranceCriticTrainerConfig:
    """The mean over a batch of sum_k L(Q_k) + sum_k L(V_k), L of `loss`; after each step target +=
    `polyak` (critic - target).
    """

    critic: UtteranceCriticBuilder
    encoder: EncoderBuilder
    loss: UtteranceCriticLoss = field(default_factory=OnPolicyTDLoss)
    polyak: float = 0.1
    # a time limit counts as done, as published; False: the target bootstraps from the next state
    truncation_is_terminal: bool = True
    batch: int = 256  # transitions a step, of all processes
    # factor on the loss; m reproduces the released code's sum over m microbatches of their means
    loss_scale: float = 1.0
    optimizer: OptimizerConfig = field(default_factory=lambda: AdamWConfig(2e-5))
    # lengths that states are padded to; longer ones are cut on the left
    state_lengths: Sequence[int] = (512,)
    utterance_lengths: Sequence[int] = (64,)
    microbatch: int = 256  # transitions per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "UtteranceCriticTrainer":
        return UtteranceCriticTrainer(self, policy, mesh, steps)


class UtteranceCriticTrainer:
    """The critic, its target network and their optimizer, over the mesh of the policy."""

    def __init__(
        self, config: UtteranceCriticTrainerConfig, policy: Policy, mesh: Mesh, steps: int
    ) -> None:
        self._config, self._mesh = config, mesh
        c = config
        if not 0 < c.polyak <= 1 or not 0 <= c.loss.gamma <= 1 or c.loss_scale <= 0:
            raise UserError(f"values need polyak in (0, 1], gamma in [0, 1] and scale > 0: {c}")
        if (
            not (c.state_lengths and c.utterance_lengths)
            or min(c.batch, c.microbatch, *c.state_lengths, *c.utterance_lengths) < 1
        ):
            raise UserError(f"values need batch, microbatch and all lengths of at least 1: {c}")
        self._encoder = c.encoder.build(policy)
        self._critic = c.critic.build(self._encoder)
        self.twin_critic = TwinCritic(self._critic)
        loss, tx = functools.partial(utterance_critic_loss, c.loss), c.optimizer.build(steps)
        self._learner = Learner(self.twin_critic, tx, loss, mesh, self.twin_critic.forward)
        self._advantage_learner = Learner(
            self.twin_critic, tx, loss, mesh, self.twin_critic.advantage
        )
        self._target_q_program = jax.jit(self.twin_critic.min_target_q)
        self._target_update_program = jax.jit(
            functools.partial(self.twin_critic.update_target, rate=c.polyak), donate_argnums=0
        )
        self._tokenize = make_text_tokenizer(c.encoder.build_tokenizer())
        self.rows_per_microbatch = self._learner.data_shard.num_local_rows(c.microbatch)

    def init(self, key: Array, params: Params) -> TrainState:
        """A critic equal to its target network; `params` are the policy's. Compiles the programs of
        all text lengths.
        """
        heads_key, encoder_key = jax.random.split(key)
        encoder = self._config.encoder.initial_params(
            self._encoder, params, encoder_key, self._mesh
        )
        critic = {**self._critic.init(heads_key), "encoder": encoder}
        state = self._learner.init(key, self.twin_critic.with_target(critic))
        for pairs in self._empty_microbatches():
            transitions = TransitionBatch(
                **vars(pairs), next_states=pairs.states, value_utterances=pairs.utterances
            )
            outcome = TransitionOutcome(
                reward=pairs.weight, has_next_value=pairs.action_mask, return_to_go=pairs.weight
            )
            self._learner.warm_up(state, UtteranceCriticBatch(batch=transitions, outcome=outcome))
            self._advantage_learner.score(state.params, pairs)
        return state

    def update(
        self,
        state: TrainState,
        transitions: Sequence[Transition],
        value_utterances: Sequence[TokenizedText],
        process_group: ProcessGroup,
    ) -> tuple[TrainState, dict[str, Array]]:
        """One optimizer step on this process's transitions, then the target network's update.

        Args:
            value_utterances: of each transition, the a' of V's target Qbar_k(s, a').
        """
        c = self._config
        indices, rows = self._assign_rows(len(transitions), process_group)
        states, next_states, utterances, padded_value_utterances = self._batch_texts(
            process_group,
            rows,
            indices,
            ([t.state for t in transitions], [t.next_state for t in transitions]),
            ([t.utterance for t in transitions], value_utterances),
        )
        weight = scatter_column(np.full(len(transitions), c.loss_scale / c.batch), indices, rows)
        not_done = [
            not (t.terminated or (t.truncated and c.truncation_is_terminal)) for t in transitions
        ]
        batch = TransitionBatch(
            **vars(single_column_batch(weight)),
            states=states,
            utterances=utterances,
            next_states=next_states,
            value_utterances=padded_value_utterances,
        )
        outcome = TransitionOutcome(
            reward=scatter_column([t.reward for t in transitions], indices, rows),
            has_next_value=scatter_column(not_done, indices, rows) > 0,
            return_to_go=scatter_column([t.return_to_go for t in transitions], indices, rows),
        )
        microbatches = split_bins(
            UtteranceCriticBatch(batch=batch, outcome=outcome), self.rows_per_microbatch
        )
        state, metrics = self._learner.update(state, microbatches)
        return dataclasses.replace(state, params=self._target_update_program(state.params)), metrics

    def advantage(
        self,
        state: TrainState,
        states: Sequence[TokenizedText],
        utterances: Sequence[TokenizedText],
        process_group: ProcessGroup,
    ) -> np.ndarray:
        """min_k Q_k(s, a) - min_k V_k(s) of this process's pairs, float32 [n]."""
        indices, rows = self._assign_rows(len(states), process_group)
        if not rows:
            return np.zeros(0, np.float32)
        weight = scatter_column(np.ones(len(states)), indices, rows)
        first, second = self._batch_texts(process_group, rows, indices, (states,), (utterances,))
        pairs = StateUtteranceBatch(
            **vars(single_column_batch(weight)), states=first, utterances=second
        )
        # all are dispatched before the first is fetched
        advantages = [
            self._advantage_learner.score(state.params, part)[0]
            for part in split_bins(pairs, self.rows_per_microbatch)
        ]
        data_shard = self._advantage_learner.data_shard
        return np.concatenate([data_shard.local_rows(x) for x in advantages])[indices, 0]

    def warm_up_target_q(self, target: Params) -> None:
        """Compile `min_target_q` for all text lengths."""
        for pairs in self._empty_microbatches():
            self._target_q_program(target, pairs)

    def min_target_q(
        self, target: Params, states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
    ) -> np.ndarray:
        """min_k Qbar_k(s, a) of at most `rows_per_microbatch` pairs, computed on the devices of
        `target`, a copy of the target network, float32 [n].
        """
        indices, rows, padded = np.arange(len(states)), self.rows_per_microbatch, []
        for texts, lengths in (
            (states, self._config.state_lengths),
            (utterances, self._config.utterance_lengths),
        ):
            ids = self._tokenize(texts, max(lengths))
            length = bucket_length(lengths, max(map(len, ids), default=0))
            padded.append(pad_texts(ids, length, rows, indices))
        weight = scatter_column(np.ones(len(indices)), indices, rows)
        pairs = StateUtteranceBatch(
            **vars(single_column_batch(weight)), states=padded[0], utterances=padded[1]
        )
        return np.asarray(self._target_q_program(target, pairs))[indices, 0]

    def _empty_microbatches(self) -> Iterator[StateUtteranceBatch]:
        """A microbatch of padding alone, of each shape."""
        c, indices, rows = self._config, np.arange(0), self.rows_per_microbatch
        weight = scatter_column([], indices, rows)
        for lengths in itertools.product(c.state_lengths, c.utterance_lengths):
            states, utterances = (pad_texts([], length, rows, indices) for length in lengths)
            yield StateUtteranceBatch(
                **vars(single_column_batch(weight)), states=states, utterances=utterances
            )

    def _assign_rows(self, count: int, process_group: ProcessGroup) -> tuple[np.ndarray, int]:
        """The rows of this process's texts among those of its replica group, and the number of rows
        of every replica group: whole microbatches.
        """
        shard, counts = self._learner.data_shard, process_group.all_gather("exchanges", count)
        before = sum(counts[p] for p in shard.replica_processes if p < shard.process_index)
        most = max(sum(counts[p] for p in group) for group in shard.replica_groups)
        num_microbatches = math.ceil(most / self.rows_per_microbatch)
        return before + np.arange(count), num_microbatches * self.rows_per_microbatch

    def _batch_texts(
        self,
        process_group: ProcessGroup,
        num_rows: int,
        row_indices: np.ndarray,
        *kinds: Sequence[Sequence[TokenizedText]],
    ) -> list[TextBatch]:
        """Texts of two kinds, states and utterances; all of a kind are padded to one length, the
        same in all processes.
        """
        lengths = self._config.state_lengths, self._config.utterance_lengths
        ids = [
            [self._tokenize(texts, max(buckets)) for texts in kind]
            for kind, buckets in zip(kinds, lengths)
        ]
        longest = [max((len(row) for texts in kind for row in texts), default=0) for kind in ids]
        most = np.max(process_group.all_gather("the longest texts", longest), axis=0).tolist()
        batches = []
        for kind, buckets, length in zip(ids, lengths, most):
            padded_length = bucket_length(buckets, length)
            batches += [pad_texts(texts, padded_length, num_rows, row_indices) for texts in kind]
        return batches
