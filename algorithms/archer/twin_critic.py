"""Twin critics of utterances with their target networks, as models of a `Learner`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from agentrl_jax.algorithms.archer.text_batches import TextBatch
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.target_network import soft_update
from agentrl_jax.policy import Params
from agentrl_jax.pytree import pytree_dataclass


@runtime_checkable
class UtteranceCritic(Protocol):
    """An ensemble of k critics of whole utterances on an encoder; parameters `encoder` and others.

    Implemented by `models.utterance_critic.EncoderUtteranceCritic`; the critic of single tokens is
    `agentrl_jax.policy.TokenCritic`.
    """

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        ...

    def axes(self) -> Any:
        """As `Policy.axes`."""
        ...

    def encode(self, params: Params, tokens: Any, mask: Any) -> Float[Array, "B D"]:
        """One vector a text, from ids [B, T] and a mask that is true where a token is real."""
        ...

    def q(
        self, params: Params, state: Float[Array, "B D"], action: Float[Array, "B D"]
    ) -> Float[Array, "k B"]:
        """Q_k(s, a) of encoded texts."""
        ...

    def v(self, params: Params, state: Float[Array, "B D"]) -> Float[Array, "k B"]:
        """V_k(s) of encoded texts."""
        ...


@pytree_dataclass
class StateUtteranceBatch(Batch):
    """A state and an utterance per row; as a `Batch` it has one column, with a token where the row
    is not padding.
    """

    states: TextBatch
    utterances: TextBatch


@pytree_dataclass
class TransitionBatch(StateUtteranceBatch):
    """A `StateUtteranceBatch` with the next states and the utterances of V's target."""

    next_states: TextBatch
    value_utterances: TextBatch  # a' of Qbar_k(s, a')


class TwinCritic(ABC):
    """A critic and its target network, parameters `critic` and `target`; base class."""

    @abstractmethod
    def init_critic(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters of the critic alone."""

    @abstractmethod
    def critic_axes(self) -> Any:
        """As `Policy.axes`, of the critic alone."""

    @abstractmethod
    def critic_trainable(self) -> Any:
        """As `Policy.trainable`, of the critic alone."""

    @abstractmethod
    def forward(
        self, params: Params, batch: Any, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        """The fields of an `UtteranceCriticOutput`, copy by copy, each [B, T]; and an auxiliary
        loss of the critic's forward pass.
        """

    @abstractmethod
    def values(
        self, params: Params, batch: Any, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        """(min_k Q_k(s, a), min_k V_k(s)), each [B, T], of the critic, not its target network."""

    @abstractmethod
    def min_target_q(self, target: Params, batch: Any) -> Float[Array, "B T"]:
        """min_k Qbar_k(s, a) of the target network, by which CHAI selects (arXiv 2204.08426)."""

    def init(self, key: Key[Array, ""]) -> Params:
        return self.with_target(self.init_critic(key))

    def with_target(self, params: Params) -> Params:
        """Parameters whose target network equals the critic."""
        return {"critic": params, "target": params}

    def update_target(self, params: Params, rate: float) -> Params:
        """`target += rate (critic - target)`."""
        return {**params, "target": soft_update(params["target"], params["critic"], rate)}

    def axes(self) -> Any:
        return self.with_target(self.critic_axes())

    def trainable(self) -> Any:
        trainable = self.critic_trainable()
        return {"critic": trainable, "target": jax.tree.map(lambda _: False, trainable)}


@dataclass(frozen=True, eq=False)
class TwinEncoderCritic(TwinCritic):
    """A critic that encodes state and utterance separately."""

    critic: UtteranceCritic

    def init_critic(self, key: Key[Array, ""]) -> Params:
        return self.critic.init(key)

    def critic_axes(self) -> Any:
        return self.critic.axes()

    def critic_trainable(self) -> Any:
        return jax.tree.map(lambda _: True, jax.eval_shape(self.critic.init, jax.random.key(0)))

    def forward(
        self, params: Params, batch: TransitionBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        online, target, critic = params["critic"], params["target"], self.critic
        state, action = (
            critic.encode(online, x.tokens, x.mask) for x in (batch.states, batch.utterances)
        )
        target_state, target_next_state, target_action = (
            critic.encode(target, x.tokens, x.mask)
            for x in (batch.states, batch.next_states, batch.value_utterances)
        )
        outputs = (
            critic.q(online, state, action),
            critic.v(online, state),
            critic.v(target, target_next_state),
            critic.q(target, target_state, target_action),
        )
        return tuple(x[:, None] for values in outputs for x in values), None

    def values(
        self, params: Params, batch: StateUtteranceBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        online = params["critic"]
        state = self.critic.encode(online, batch.states.tokens, batch.states.mask)
        q = self._min_q(online, state, batch.utterances)
        return (q, jnp.min(self.critic.v(online, state), axis=0)[:, None]), None

    def min_target_q(self, target: Params, batch: StateUtteranceBatch) -> Float[Array, "B 1"]:
        state = self.critic.encode(target, batch.states.tokens, batch.states.mask)
        return self._min_q(target, state, batch.utterances)

    def _min_q(
        self, params: Params, state: Float[Array, "B D"], utterances: TextBatch
    ) -> Float[Array, "B 1"]:
        """min_k Q_k of utterances in encoded states."""
        action = self.critic.encode(params, utterances.tokens, utterances.mask)
        return jnp.min(self.critic.q(params, state, action), axis=0)[:, None]
