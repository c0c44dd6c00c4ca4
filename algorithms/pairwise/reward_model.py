"""Reward models: a policy's trunk with a value head, trained on preferences between two
trajectories (Bradley-Terry).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.algorithms.pairwise.bradley_terry import (
    bradley_terry,
    preference_loss,
    score_at_end,
)
from agentrl_jax.algorithms.pairwise.preference_invariants import preferences
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig, CriticHeadConfig, ValueModel
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.keys import uniform_of
from agentrl_jax.learner.batch_invariants import packed_rows, trained_replies
from agentrl_jax.learner.data_shards import agree_on_layout
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import Batch, PackedLayout, split_bins
from agentrl_jax.learner.sequences import TrainingSequence, sequences_of
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import AnyArray, pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm, OtherModelConfig
from agentrl_jax.trajectories import Group, Trajectory

# as `bradley_terry.preference_loss`
PreferenceLoss = Callable[[Array, Array, Array, Array, Array, Array], Array]


@pytree_dataclass
class PreferenceBatch:
    """Rows 2i and 2i + 1 are a pair, the preferred one first; the weight of a pair is on one token
    of the first.
    """

    batch: Batch
    length: Int[AnyArray, "B"]
    pair_mask: Float[AnyArray, "B"]  # 1 for rows of a pair, 0 for padding


def final_token_loss(
    chosen: Array,
    rejected: Array,
    chosen_tokens: Array,
    rejected_tokens: Array,
    chosen_length: Array,
    rejected_length: Array,
) -> Float[Array, "B"]:
    """Bradley-Terry on the values of the last tokens; `bradley_terry.preference_loss` counts every
    token from the first that differs.
    """
    chosen_score = score_at_end(chosen, chosen_length)
    return bradley_terry(chosen_score, score_at_end(rejected, rejected_length))


@dataclass
class RewardModelConfig(OtherModelConfig):
    """Takes groups of two or more trajectories; every pair with different returns is a preference.
    A trajectory must be one context.

    As the algorithm of a phase it trains a model that `reward_scorer.RewardModel` names.
    """

    head: CriticHeadConfig  # `models.heads.HeadConfig`
    loss: PreferenceLoss = preference_loss
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    max_length: int = 256  # tokens of the longest trajectory
    microbatch: int = 16  # pairs per gradient call
    label_noise: float = 0.0  # fraction of the preferences that are reversed, at random

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "RewardModelTrainer":
        return RewardModelTrainer(self, policy, mesh, steps)


class RewardModelTrainer(Algorithm):
    """Implements `Algorithm`; the state's parameters are the reward model's."""

    def __init__(self, config: RewardModelConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        if not 0 <= config.label_noise < 1:
            raise UserError(
                f"label_noise is a fraction of the preferences, not {config.label_noise}"
            )
        self._config, self._model = config, CriticConfig(config.head).build_model(policy)
        self._learner = Learner(
            self._model,
            config.optimizer.build(steps),
            self._loss,
            mesh,
            self._model.values_after_tokens,
        )
        self._rows_per_microbatch = self._learner.data_shard.num_local_rows(2 * config.microbatch)
        if self._rows_per_microbatch % 2:
            raise UserError(
                "a pair's two rows are on one process: choose a microbatch that the mesh splits "
                "into pairs"
            )

    @property
    def model(self) -> ValueModel:
        return self._model

    def init(self, key: Key[Array, ""], params: Params) -> TrainState:
        """A fresh head on a policy's weights."""
        return self._learner.init(key, self._model.init_from_policy(params, key))

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def _loss(self, score: Array, batch: PreferenceBatch) -> tuple[Array, dict[str, Array]]:
        tokens, length = jnp.asarray(batch.batch.tokens), jnp.asarray(batch.length)
        pair_mask = jnp.asarray(batch.pair_mask)
        # both sequences padded in the same way
        score = jnp.where(jnp.arange(score.shape[1])[None] < length[:, None], score, 0.0)
        pairs = [x[i::2] for x in (score, tokens, length) for i in (0, 1)]
        loss = self._config.loss(*pairs)
        margin = score_at_end(score[0::2], length[0::2]) - score_at_end(score[1::2], length[1::2])
        metrics = {
            "preference_loss": loss,
            "accuracy": (margin > 0).astype(loss.dtype),
            "margin": margin,
        }

        def per_token(x: Array) -> Array:
            return jnp.broadcast_to((jnp.repeat(x, 2) * pair_mask)[:, None], score.shape)

        return per_token(loss), {name: per_token(x) for name, x in metrics.items()}

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """One optimizer step on the mean over all pairs. Without any it is a counted skip."""
        process_group, invariants = runtime.process_group, runtime.invariants
        pairs = self.annotated_pairs(experience)
        invariants.check(preferences, pairs, self._config.label_noise)
        num_pairs = sum(process_group.all_gather("pairs", len(pairs)))
        trajectories = [trajectory for pair in pairs for trajectory in pair]
        sequences = list(map(_trajectory_sequence, trajectories))
        invariants.check(trained_replies, [t.calls for t in trajectories], sequences)
        batches = self._microbatches(sequences, num_pairs, process_group, invariants)
        if not batches:
            return state, {"pairs": 0.0, "skipped": 1.0, "device": []}
        state, metrics = self._learner.update(state, batches)
        return state, {"pairs": float(num_pairs), "skipped": 0.0, "device": [metrics]}

    def annotated_pairs(self, groups: Sequence[Group]) -> list[tuple[Trajectory, Trajectory]]:
        """The preferences of `ranked_pairs`, some of them reversed by `label_noise`."""
        return [
            (b, a) if _annotation_noise(a, b) < self._config.label_noise else (a, b)
            for group in groups
            for a, b in ranked_pairs(group)
        ]

    def _microbatches(
        self,
        sequences: list[TrainingSequence],
        num_pairs: int,
        process_group: ProcessGroup,
        invariants: Invariants,
    ) -> list[PreferenceBatch]:
        c, count = self._config, len(sequences)
        if (longest := max(map(len, sequences), default=0)) > c.max_length:
            raise UserError(
                f"a trajectory has {longest} tokens but the reward model reads {c.max_length}: "
                "raise max_length"
            )
        zeros = np.zeros(count, np.int64)
        layout = agree_on_layout(
            process_group,
            self._learner.data_shard,
            PackedLayout(sequences, c.max_length, count, np.arange(count), zeros, zeros),
            self._rows_per_microbatch,
        )
        if layout is None:
            return []
        bins = layout.bin_index
        weight = np.zeros((layout.num_bins, c.max_length), np.float32)
        length = np.zeros(layout.num_bins, np.int32)
        pair_mask = np.zeros(layout.num_bins, np.float32)
        last_action = [int(np.flatnonzero(x.action_mask)[-1]) for x in sequences]
        weight[bins[0::2], last_action[0::2]] = 1.0 / num_pairs
        length[bins], pair_mask[bins] = [len(x) for x in sequences], 1.0
        batch = PreferenceBatch(batch=layout.to_batch(weight), length=length, pair_mask=pair_mask)
        microbatches = split_bins(batch, self._rows_per_microbatch)
        invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        return microbatches


def ranked_pairs(group: Group) -> list[tuple[Trajectory, Trajectory]]:
    """All (preferred, other) pairs of a group's trajectories: those with different returns."""
    members = [trajectory for trajectory in group.trajectories if trajectory.turns]
    return [(a, b) for a in members for b in members if a.total_reward > b.total_reward]


def _annotation_noise(a: Trajectory, b: Trajectory) -> float:
    """A uniform number in [0, 1) that belongs to a pair, whenever and wherever it is ranked."""
    keys = [number for x in (a, b) for number in (x.seed, x.sample, *x.calls[-1].key)]
    return uniform_of(*keys)


def _trajectory_sequence(trajectory: Trajectory) -> TrainingSequence:
    """The whole trajectory as one sequence."""
    sequences = sequences_of(trajectory)
    if len(sequences) != 1:
        raise UserError(
            "a reward model reads a trajectory as one context: keep the whole history in it"
        )
    return sequences[0]
