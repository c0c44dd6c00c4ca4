"""`UtteranceCriticTrainer`: trains critics that encode state and utterance separately, on batches
of few shapes from replayed turns.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.critic_invariants import CriticRowChecks
from agentrl_jax.algorithms.archer.critic_losses import TransitionOutcome, UtteranceCriticBatch
from agentrl_jax.algorithms.archer.replay_buffer import (
    RecentShare,
    ReplayBuffer,
    TokenizedText,
    Transition,
)
from agentrl_jax.algorithms.archer.text_batches import (
    TextBatch,
    bucket_length,
    column_batch,
    make_text_tokenizer,
    pad_texts,
    scatter_column,
)
from agentrl_jax.algorithms.archer.twin_critic import (
    StateUtteranceBatch,
    TransitionBatch,
    TwinEncoderCritic,
    UtteranceCritic,
)
from agentrl_jax.algorithms.archer.twin_trainer import (
    TwinCriticTrainer,
    TwinCriticTrainerConfig,
    UtteranceValues,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
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
class UtteranceCriticTrainerConfig(TwinCriticTrainerConfig):
    """Training a critic that encodes state and utterance separately."""

    critic: UtteranceCriticBuilder = field(kw_only=True)
    encoder: EncoderBuilder = field(kw_only=True)
    # lengths that states are padded to; longer ones are cut on the left
    state_lengths: Sequence[int] = (512,)
    utterance_lengths: Sequence[int] = (64,)
    microbatch: int = 256  # transitions per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "UtteranceCriticTrainer":
        return UtteranceCriticTrainer(self, policy, mesh, steps)


class UtteranceCriticTrainer(TwinCriticTrainer):
    """Trains and evaluates an `UtteranceCritic`; a row holds a turn."""

    def __init__(
        self, config: UtteranceCriticTrainerConfig, policy: Policy, mesh: Mesh, steps: int
    ) -> None:
        self._config, self._mesh = config, mesh
        c = config
        if (
            not (c.state_lengths and c.utterance_lengths)
            or min(c.batch, c.microbatch, *c.state_lengths, *c.utterance_lengths) < 1
        ):
            raise UserError(f"values need batch, microbatch and all lengths of at least 1: {c}")
        if c.loss.needs_episodes:
            raise UserError(
                f"{type(c.loss).__name__} needs a critic that reads whole episodes: "
                "JointCriticTrainerConfig in place of UtteranceCriticTrainerConfig"
            )
        self._encoder = c.encoder.build(policy)
        self._critic = c.critic.build(self._encoder)
        super().__init__(c, TwinEncoderCritic(self._critic), mesh, steps, c.microbatch)
        self._tokenize = make_text_tokenizer(c.encoder.build_tokenizer())
        self.row_checks = CriticRowChecks(
            self._tokenize, (max(c.state_lengths), max(c.utterance_lengths))
        )

    def use_invariants(self, invariants: Invariants) -> None:
        self.row_checks.invariants = invariants

    @property
    def max_pairs(self) -> int:
        return self._rows_per_microbatch

    def draw(
        self,
        replay: ReplayBuffer,
        count: int,
        rng: np.random.Generator,
        recent: RecentShare | None,
    ) -> list[Transition]:
        """Single turns, uniformly with replacement."""
        return replay.draw(count, rng, recent)

    def _initial_critic(self, key: Array, params: Params) -> Params:
        heads_key, encoder_key = jax.random.split(key)
        encoder = self._config.encoder.initial_params(
            self._encoder, params, encoder_key, self._mesh
        )
        return {**self._critic.init(heads_key), "encoder": encoder}

    def _padding_microbatches(
        self,
    ) -> Iterator[tuple[UtteranceCriticBatch, StateUtteranceBatch]]:
        c, indices, rows = self._config, np.arange(0), self._rows_per_microbatch
        weight = scatter_column([], indices, rows)
        for lengths in itertools.product(c.state_lengths, c.utterance_lengths):
            states, utterances = (pad_texts([], length, rows, indices) for length in lengths)
            pairs = StateUtteranceBatch(
                **vars(column_batch(weight)), states=states, utterances=utterances
            )
            transitions = TransitionBatch(
                **vars(pairs), next_states=states, value_utterances=utterances
            )
            outcome = TransitionOutcome(
                reward=weight,
                has_next_value=pairs.action_mask,
                return_to_go=weight,
                continues=pairs.action_mask,
            )
            yield UtteranceCriticBatch(batch=transitions, outcome=outcome), pairs

    def _training_microbatches(
        self,
        transitions: Sequence[Transition],
        value_utterances: Sequence[TokenizedText],
        process_group: ProcessGroup,
    ) -> list[UtteranceCriticBatch]:
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
        batch = TransitionBatch(
            **vars(column_batch(weight)),
            states=states,
            utterances=utterances,
            next_states=next_states,
            value_utterances=padded_value_utterances,
        )
        bootstraps = [c.has_next_value(t) for t in transitions]
        outcome = TransitionOutcome(
            reward=scatter_column([t.reward for t in transitions], indices, rows),
            has_next_value=scatter_column(bootstraps, indices, rows) > 0,
            return_to_go=scatter_column([t.return_to_go for t in transitions], indices, rows),
            continues=np.zeros((rows, 1), bool),
        )
        microbatches = split_bins(
            UtteranceCriticBatch(batch=batch, outcome=outcome), self._rows_per_microbatch
        )
        self.row_checks.check(microbatches, indices, transitions, value_utterances)
        return microbatches

    def values(
        self,
        state: TrainState,
        states: Sequence[TokenizedText],
        utterances: Sequence[Sequence[TokenizedText]],
        process_group: ProcessGroup,
    ) -> UtteranceValues:
        repeated = [s for s, texts in zip(states, utterances, strict=True) for _ in texts]
        flat = [text for texts in utterances for text in texts]
        shape = (len(states), len(flat) // max(len(states), 1))
        indices, rows = self._assign_rows(len(flat), process_group)
        if not rows:
            return UtteranceValues(np.zeros(shape, np.float32), np.zeros(0, np.float32))
        weight = scatter_column(np.ones(len(flat)), indices, rows)
        first, second = self._batch_texts(process_group, rows, indices, (repeated,), (flat,))
        pairs = StateUtteranceBatch(**vars(column_batch(weight)), states=first, utterances=second)
        q, v = self._score(state, split_bins(pairs, self._rows_per_microbatch))
        first_of_state = np.arange(len(states)) * shape[1]
        return UtteranceValues(q[indices, 0].reshape(shape), v[indices[first_of_state], 0])

    def min_target_q(
        self, target: Params, states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
    ) -> np.ndarray:
        indices, rows, padded = np.arange(len(states)), self._rows_per_microbatch, []
        for texts, lengths in (
            (states, self._config.state_lengths),
            (utterances, self._config.utterance_lengths),
        ):
            ids = self._tokenize(texts, max(lengths))
            length = bucket_length(lengths, max(map(len, ids), default=0))
            padded.append(pad_texts(ids, length, rows, indices))
        weight = scatter_column(np.ones(len(indices)), indices, rows)
        pairs = StateUtteranceBatch(
            **vars(column_batch(weight)), states=padded[0], utterances=padded[1]
        )
        return np.asarray(self._target_q_program(target, pairs))[indices, 0]

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
