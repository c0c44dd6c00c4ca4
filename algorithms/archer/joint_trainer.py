"""`JointCriticTrainer`: trains critics that read whole episodes, on packed rows with the policy's
utterances as branches.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.critic_losses import TransitionOutcome, UtteranceCriticBatch
from agentrl_jax.algorithms.archer.episode_rows import (
    EpisodeTurn,
    PackedTurns,
    RowShape,
    fill_rows,
    pack_episodes,
)
from agentrl_jax.algorithms.archer.joint_critic import (
    EpisodeBatch,
    JointCriticBuilder,
    TwinJointCritic,
)
from agentrl_jax.algorithms.archer.replay_buffer import (
    RecentShare,
    ReplayBuffer,
    TokenizedText,
    Transition,
)
from agentrl_jax.algorithms.archer.text_batches import column_batch
from agentrl_jax.algorithms.archer.twin_trainer import (
    TwinCriticTrainer,
    TwinCriticTrainerConfig,
    UtteranceValues,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.packing import split_bins
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy


@dataclass
class JointCriticTrainerConfig(TwinCriticTrainerConfig):
    """Training a critic that reads an episode once: V_k at the last token before an utterance, Q_k
    at the utterance's last token.

    A step takes whole episodes of about `batch` turns in all, and the mean over their turns. The
    utterances of V's target are branches of the rows.
    """

    critic: JointCriticBuilder = dataclasses.field(kw_only=True)
    row_length: int = 512  # tokens per packed row; at least those of a turn with its next state
    # lengths that branches are padded to, at least the agent's budget
    utterance_lengths: Sequence[int] = (64,)
    # columns for branches in a row, and so turns times the padded length
    branch_tokens: int = 1024
    microbatch: int = 8  # rows per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "JointCriticTrainer":
        return JointCriticTrainer(self, policy, mesh, steps)


class JointCriticTrainer(TwinCriticTrainer):
    """Trains and evaluates a `JointUtteranceCritic`; a row holds episodes."""

    def __init__(
        self, config: JointCriticTrainerConfig, policy: Policy, mesh: Mesh, steps: int
    ) -> None:
        self._config = c = config
        if min(c.batch, c.microbatch, c.row_length, *c.utterance_lengths, 1) < 1 or (
            c.branch_tokens < max(c.utterance_lengths, default=c.branch_tokens + 1)
        ):
            raise UserError(
                "a joint critic needs batch, microbatch, row_length and all utterance_lengths of "
                f"at least 1, and branch_tokens for one utterance: {c}"
            )
        if not policy.supports_branches:
            raise UserError(
                f"{type(policy).__name__} does not support rows with branches, in which a joint "
                "critic reads utterances: use an EncoderUtteranceCritic"
            )
        self._critic = c.critic.build(policy)
        super().__init__(c, TwinJointCritic(self._critic), mesh, steps, c.microbatch)
        lengths = sorted(c.utterance_lengths)
        self._branched = [RowShape(c.row_length, n, c.branch_tokens // n) for n in lengths]
        self._plain = [RowShape(c.row_length, 0, c.branch_tokens // lengths[0])]

    @property
    def max_pairs(self) -> int:
        return self._branched[-1].num_turns * self._rows_per_microbatch

    @property
    def _training_shapes(self) -> Sequence[RowShape]:
        return self._branched if self.loss.needs_policy_utterances else self._plain

    def draw(
        self,
        replay: ReplayBuffer,
        count: int,
        rng: np.random.Generator,
        recent: RecentShare | None,
    ) -> list[Transition]:
        """Whole episodes, uniformly with replacement."""
        return replay.draw_episodes(count, rng, recent)

    def _initial_critic(self, key: Array, params: Params) -> Params:
        return self._config.critic.initial_params(self._critic, params, key)

    def _padding_microbatches(self) -> Iterator[tuple[UtteranceCriticBatch, EpisodeBatch]]:
        shapes = self._training_shapes
        nothing = np.zeros(0)
        for i, scoring in enumerate(self._branched):
            training, pairs = (
                fill_rows((), (), shape, np.arange(0), self._rows_per_microbatch)
                for shape in (shapes[min(i, len(shapes) - 1)], scoring)
            )
            batch, outcome = _episode_batch(training, nothing), _outcome(training, (), nothing)
            yield UtteranceCriticBatch(batch=batch, outcome=outcome), _episode_batch(pairs, nothing)

    def _pack(
        self,
        turns: Sequence[EpisodeTurn],
        shapes: Sequence[RowShape],
        process_group: ProcessGroup | None,
    ) -> list[PackedTurns]:
        """The turns in rows of the shapes, each turn in the first whose branches are long enough;
        shapes of which no process has a row are left out.

        Args:
            process_group: whose processes all pack turns; None: this one alone.

        Raises:
            UserError: an utterance is longer than any branch, or a turn than a row.
        """
        needed = np.array([len(turn.branch) for turn in turns if turn.branch is not None], int)
        longest = shapes[-1].branch_length
        if len(needed) and needed.max() > longest:
            raise UserError(
                f"an utterance has {needed.max()} tokens, but the longest of a joint critic's "
                f"utterance_lengths is {longest}: let them reach the agent's budget"
            )
        lengths = [shape.branch_length for shape in shapes]
        shape_of_turn = np.searchsorted(lengths, needed) if len(needed) else np.zeros(len(turns))
        packed = []
        for i, shape in enumerate(shapes):
            rows = pack_episodes(turns, np.flatnonzero(shape_of_turn == i).tolist(), shape)
            indices, num_rows = np.arange(len(rows)), self._whole_microbatches(len(rows))
            if process_group is not None:
                indices, num_rows = self._assign_rows(len(rows), process_group)
            if num_rows:
                packed.append(fill_rows(rows, turns, shape, indices, num_rows))
        return packed

    def _training_microbatches(
        self,
        transitions: Sequence[Transition],
        value_utterances: Sequence[TokenizedText],
        process_group: ProcessGroup,
    ) -> list[UtteranceCriticBatch]:
        c = self._config
        bootstraps = np.array([c.has_next_value(t) for t in transitions], bool)
        branches = [
            text.ids if self.loss.needs_policy_utterances else None for text in value_utterances
        ]
        turns = [
            EpisodeTurn(
                t.state.ids, t.utterance.ids, t.next_state.ids if has_next else None, branch
            )
            for t, has_next, branch in zip(transitions, bootstraps.tolist(), branches, strict=True)
        ]
        total = sum(process_group.all_gather("turns of a critic step", len(turns)))
        weights = np.full(len(turns), c.loss_scale / max(total, 1))
        microbatches = []
        for packed in self._pack(turns, self._training_shapes, process_group):
            batch = UtteranceCriticBatch(
                batch=_episode_batch(packed, weights),
                outcome=_outcome(packed, transitions, bootstraps),
            )
            microbatches += split_bins(batch, self._rows_per_microbatch)
        return microbatches

    def values(
        self,
        state: TrainState,
        states: Sequence[TokenizedText],
        utterances: Sequence[Sequence[TokenizedText]],
        process_group: ProcessGroup,
    ) -> UtteranceValues:
        """As `TwinCriticTrainer.values`; utterances of a state that are equal are read once."""
        turns: list[EpisodeTurn] = []
        turn_of_pair: list[int] = []
        for s, texts in zip(states, utterances, strict=True):
            first: dict[bytes, int] = {}
            for text in texts:
                turn_of_pair.append(first.setdefault(text.ids.tobytes(), len(turns)))
                if turn_of_pair[-1] == len(turns):
                    turns.append(EpisodeTurn(s.ids, branch=text.ids))
        q, v = np.zeros((2, len(turns)), np.float32)
        for packed in self._pack(turns, self._branched, process_group):
            batch = _episode_batch(packed, np.ones(len(turns)))
            scores = self._score(state, split_bins(batch, self._rows_per_microbatch))
            for values, score in zip((q, v), scores):
                values[packed.turn] = score[packed.row, packed.column]
        count = len(turn_of_pair) // max(len(states), 1)
        pairs = np.array(turn_of_pair, np.int64).reshape(len(states), count)
        return UtteranceValues(q[pairs], v[pairs[:, 0]] if count else v)

    def min_target_q(
        self, target: Params, states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
    ) -> np.ndarray:
        turns = [EpisodeTurn(s.ids, branch=text.ids) for s, text in zip(states, utterances)]
        q = np.zeros(len(turns), np.float32)
        for packed in self._pack(turns, self._branched, None):
            batch = _episode_batch(packed, np.ones(len(turns)))
            parts = split_bins(batch, self._rows_per_microbatch)
            scores = np.concatenate([self._target_q_program(target, part) for part in parts])
            q[packed.turn] = scores[packed.row, packed.column]
        return q


def _episode_batch(packed: PackedTurns, weights: np.ndarray) -> EpisodeBatch:
    """The rows with the loss weights of the turns, [n]."""
    batch = column_batch(packed.scatter(weights))
    return EpisodeBatch(**vars(batch), columns=packed.columns)


def _outcome(
    packed: PackedTurns, transitions: Sequence[Transition], bootstraps: np.ndarray
) -> TransitionOutcome:
    return TransitionOutcome(
        reward=packed.scatter(np.array([t.reward for t in transitions])),
        has_next_value=packed.scatter(bootstraps) > 0,
        return_to_go=packed.scatter(np.array([t.return_to_go for t in transitions])),
        continues=packed.continues,
    )
