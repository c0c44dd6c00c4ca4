"""`TwinCriticTrainer`: what the trainers of utterance critics have in common: their settings, an
optimizer step, the target network's update, and the values of utterances.
"""

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.critic_losses import (
    OnPolicyTDLoss,
    UtteranceCriticBatch,
    UtteranceCriticLoss,
    utterance_critic_loss,
)
from agentrl_jax.algorithms.archer.replay_buffer import (
    RecentShare,
    ReplayBuffer,
    TokenizedText,
    Transition,
)
from agentrl_jax.algorithms.archer.twin_critic import TwinCritic
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy


@dataclass
class TwinCriticTrainerConfig:
    """The mean over a batch of sum_k L(Q_k) + sum_k L(V_k), L of `loss`; after each step target +=
    `polyak` (critic - target). Base class.
    """

    loss: UtteranceCriticLoss = field(default_factory=OnPolicyTDLoss)
    polyak: float = 0.1
    # a time limit counts as done, as published; False: the target bootstraps from the next state
    truncation_is_terminal: bool = True
    batch: int = 256  # transitions a step, of all processes
    # factor on the loss; m reproduces the released code's sum over m microbatches of their means
    loss_scale: float = 1.0
    optimizer: OptimizerConfig = field(default_factory=lambda: AdamWConfig(2e-5))

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "TwinCriticTrainer":
        raise NotImplementedError

    def has_next_value(self, transition: Transition) -> bool:
        """Whether Q's target bootstraps from the next state."""
        cut = transition.truncated and self.truncation_is_terminal
        return not (transition.terminated or cut)


@dataclass(frozen=True, eq=False)
class UtteranceValues:
    """Values of k utterances in each of n states, minima over the ensemble."""

    q: np.ndarray  # float32 [n, k]
    v: np.ndarray  # float32 [n]


class TwinCriticTrainer(ABC):
    """A critic, its target network and their optimizer, over the mesh of the policy. Base class:
    trainers differ in how they batch texts.
    """

    def __init__(
        self,
        config: TwinCriticTrainerConfig,
        twin_critic: TwinCritic,
        mesh: Mesh,
        steps: int,
        microbatch: int,
    ) -> None:
        """`microbatch`: rows per gradient call. Raises UserError where a setting makes no sense."""
        c = config
        if not 0 < c.polyak <= 1 or not 0 <= c.loss.gamma <= 1 or c.loss_scale <= 0:
            raise UserError(f"values need polyak in (0, 1], gamma in [0, 1] and scale > 0: {c}")
        self.loss, self.batch = c.loss, c.batch
        self.twin_critic = twin_critic
        loss, tx = functools.partial(utterance_critic_loss, c.loss), c.optimizer.build(steps)
        self._learner = Learner(
            twin_critic, tx, loss, mesh, twin_critic.forward, twin_critic.values
        )
        self._target_q_program = jax.jit(twin_critic.min_target_q)
        self._target_update_program = jax.jit(
            functools.partial(twin_critic.update_target, rate=c.polyak), donate_argnums=0
        )
        self._rows_per_microbatch = self._learner.data_shard.num_local_rows(microbatch)

    def use_invariants(self, invariants: Invariants) -> None:  # noqa: B027  most have no checks
        """Check training batches with these from now on, where a trainer has checks."""

    @property
    @abstractmethod
    def max_pairs(self) -> int:
        """How many pairs of a state and an utterance are scored at once."""

    @abstractmethod
    def draw(
        self,
        replay: ReplayBuffer,
        count: int,
        rng: np.random.Generator,
        recent: RecentShare | None,
    ) -> list[Transition]:
        """About `count` transitions for a critic step."""

    @abstractmethod
    def _initial_critic(self, key: Array, params: Params) -> Params:
        """The critic's first weights; `params` are the policy's."""

    @abstractmethod
    def _padding_microbatches(self) -> Iterator[tuple[UtteranceCriticBatch, Any]]:
        """Microbatches of padding alone, of each shape: of an update, and of `values`."""

    @abstractmethod
    def _training_microbatches(
        self,
        transitions: Sequence[Transition],
        value_utterances: Sequence[TokenizedText],
        process_group: ProcessGroup,
    ) -> list[UtteranceCriticBatch]:
        """The microbatches of a step, as many in every process."""

    @abstractmethod
    def values(
        self,
        state: TrainState,
        states: Sequence[TokenizedText],
        utterances: Sequence[Sequence[TokenizedText]],
        process_group: ProcessGroup,
    ) -> UtteranceValues:
        """The values of this process's states, and of as many utterances in each of them."""

    @abstractmethod
    def min_target_q(
        self, target: Params, states: Sequence[TokenizedText], utterances: Sequence[TokenizedText]
    ) -> np.ndarray:
        """min_k Qbar_k(s, a) of at most `max_pairs` pairs, computed on the devices of `target`, a
        copy of the target network, float32 [n].
        """

    def init(self, key: Array, params: Params) -> TrainState:
        """A critic equal to its target network; `params` are the policy's. Compiles the programs of
        all shapes.
        """
        critic = self._initial_critic(key, params)
        state = self._learner.init(key, self.twin_critic.with_target(critic))
        for training, scoring in self._padding_microbatches():
            self._learner.warm_up(state, training)
            self._learner.score(state.params, scoring)
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
        microbatches = self._training_microbatches(transitions, value_utterances, process_group)
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
        values = self.values(state, states, [[text] for text in utterances], process_group)
        return values.q.reshape(-1) - values.v

    def warm_up_target_q(self, target: Params) -> None:
        """Compile `min_target_q` for all shapes."""
        for _, scoring in self._padding_microbatches():
            self._target_q_program(target, scoring)

    def _assign_rows(self, count: int, process_group: ProcessGroup) -> tuple[np.ndarray, int]:
        """This process's rows among those of its replica group, and the number of rows of every
        replica group: whole microbatches.
        """
        shard, counts = self._learner.data_shard, process_group.all_gather("exchanges", count)
        before = sum(counts[p] for p in shard.replica_processes if p < shard.process_index)
        most = max(sum(counts[p] for p in group) for group in shard.replica_groups)
        return before + np.arange(count), self._whole_microbatches(most)

    def _whole_microbatches(self, rows: int) -> int:
        """The number of rows, rounded up to whole microbatches."""
        return math.ceil(rows / self._rows_per_microbatch) * self._rows_per_microbatch

    def _score(self, state: TrainState, microbatches: Sequence[Any]) -> list[np.ndarray]:
        """The local rows of `TwinCritic.values`, [rows, T] each; all microbatches are dispatched
        before the first is fetched.
        """
        scores = [self._learner.score(state.params, batch) for batch in microbatches]
        local_rows = self._learner.data_shard.local_rows
        return [np.concatenate([local_rows(score[i]) for score in scores]) for i in (0, 1)]
