"""Values of states and of whole utterances: twin Q and V with target networks, and their losses
(ArCHer, arXiv 2402.19446).
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from agentrl_jax.algorithms.archer.text_batches import TextBatch
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.target_network import soft_update
from agentrl_jax.policy import Params
from agentrl_jax.pytree import AnyArray, pytree_dataclass


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


@pytree_dataclass
class TransitionOutcome:
    """Reward and return after an utterance."""

    reward: Float[AnyArray, "*B"]
    has_next_value: Bool[AnyArray, "*B"]  # false: the target does not bootstrap (1 - done)
    return_to_go: Float[AnyArray, "*B"]  # discounted rewards of this turn and all after it


@pytree_dataclass
class UtteranceCriticBatch:
    """The inputs of the loss."""

    batch: TransitionBatch
    outcome: TransitionOutcome  # [B, 1]


@pytree_dataclass
class UtteranceCriticOutput:
    """Values of each copy k: Q_k(s, a), V_k(s), and of the target network, without a gradient,
    Vbar_k(s') and Qbar_k(s, a').
    """

    q: Float[Array, "k *B"]
    v: Float[Array, "k *B"]
    next_v: Float[Array, "k *B"]
    target_q: Float[Array, "k *B"]


def squared_error(
    value: Float[Array, "*shape"], target: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """(y - V)^2."""
    return (target - value) ** 2


def expectile_loss(
    value: Float[Array, "*shape"], target: Float[Array, "*shape"], *, tau: float
) -> Float[Array, "*shape"]:
    """|tau - 1(y < V)| (y - V)^2 (IQL, arXiv 2110.06169): half the squared error where tau is
    .5.
    """
    return jnp.where(target >= value, tau, 1.0 - tau) * (target - value) ** 2


def td_target(
    output: UtteranceCriticOutput, outcome: TransitionOutcome, gamma: float
) -> Float[Array, "k *B"]:
    """r + gamma (1 - done) Vbar_k(s'): of each copy, not the minimum."""
    not_done = jnp.broadcast_to(outcome.has_next_value, output.next_v.shape)
    return jnp.asarray(outcome.reward)[None] + gamma * jnp.where(not_done, output.next_v, 0.0)


@runtime_checkable
class UtteranceCriticLoss(Protocol):
    """The losses of each Q_k and each V_k."""

    gamma: float  # per turn
    # V's target is Qbar of new utterances of the policy; else of those of the data
    needs_policy_utterances: bool

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]: ...


@dataclass
class OnPolicyTDLoss:
    """Online: (Q_k(s, a) - y_k)^2 and (V_k(s) - Qbar_k(s, a'))^2, y_k = r + gamma (1 - done)
    Vbar_k(s'), a' ~ the policy at s.
    """

    gamma: float = 0.95
    needs_policy_utterances: bool = field(default=True, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        q_loss = squared_error(output.q, td_target(output, outcome, self.gamma))
        return q_loss, squared_error(output.v, output.target_q)


@dataclass
class IQLLoss:
    """Offline: Q as online, and V_k(s) is regressed on the `tau` expectile of Qbar_k(s, a) over the
    data's utterances; .5 is SARSA.
    """

    gamma: float = 0.95
    tau: float = 0.9
    needs_policy_utterances: bool = field(default=False, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        q_loss = squared_error(output.q, td_target(output, outcome, self.gamma))
        return q_loss, expectile_loss(output.v, output.target_q, tau=self.tau)


@dataclass
class MonteCarloLoss:
    """The Monte-Carlo critic: Q_k(s, a) and V_k(s) are both regressed on the discounted
    return-to-go of the episode.
    """

    gamma: float = 0.95
    needs_policy_utterances: bool = field(default=False, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        target = jnp.broadcast_to(outcome.return_to_go, output.q.shape)
        return squared_error(output.q, target), squared_error(output.v, target)


def utterance_critic_loss(
    critic_loss: UtteranceCriticLoss, *values_and_batch: Any
) -> tuple[Float[Array, "B 1"], dict[str, Array]]:
    """sum_k L(Q_k) + sum_k L(V_k) of each transition.

    Args:
        values_and_batch: the arrays of `TwinCritic.forward`, then an `UtteranceCriticBatch`.
    """
    *values, batch = values_and_batch
    q, v, next_v, target_q = jnp.stack(values).reshape(4, -1, *values[0].shape)
    output = UtteranceCriticOutput(
        q=q, v=v, next_v=jax.lax.stop_gradient(next_v), target_q=jax.lax.stop_gradient(target_q)
    )
    losses = critic_loss(output, jax.tree.map(jnp.asarray, batch.outcome))
    q_loss, v_loss = (jnp.sum(loss, axis=0) for loss in losses)
    return q_loss + v_loss, {"q_loss": q_loss, "v_loss": v_loss, "q": q[0], "v": v[0]}


@dataclass(frozen=True, eq=False)
class TwinCritic:
    """A critic and its target network, parameters `critic` and `target`, as a `Learner`'s model."""

    critic: UtteranceCritic

    def init(self, key: Key[Array, ""]) -> Params:
        return self.with_target(self.critic.init(key))

    def with_target(self, params: Params) -> Params:
        """Parameters whose target network equals the critic."""
        return {"critic": params, "target": params}

    def update_target(self, params: Params, rate: float) -> Params:
        """`target += rate (critic - target)`."""
        return {**params, "target": soft_update(params["target"], params["critic"], rate)}

    def axes(self) -> Any:
        return self.with_target(self.critic.axes())

    def trainable(self) -> Any:
        shapes = jax.eval_shape(self.critic.init, jax.random.key(0))
        return {
            "critic": jax.tree.map(lambda _: True, shapes),
            "target": jax.tree.map(lambda _: False, shapes),
        }

    def forward(
        self, params: Params, batch: TransitionBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        """The fields of an `UtteranceCriticOutput`, copy by copy, each [B, 1]."""
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

    def advantage(
        self, params: Params, batch: StateUtteranceBatch, key: Array | None
    ) -> tuple[tuple[Array, ...], None]:
        """min_k Q_k(s, a) - min_k V_k(s), [B, 1], of the critic, not its target network."""
        online = params["critic"]
        state = self.critic.encode(online, batch.states.tokens, batch.states.mask)
        q = self.min_q(online, state, batch.utterances)
        return (q - jnp.min(self.critic.v(online, state), axis=0)[:, None],), None

    def min_target_q(self, target: Params, pairs: StateUtteranceBatch) -> Float[Array, "B 1"]:
        """min_k Qbar_k(s, a) of the target network, by which CHAI selects (arXiv 2204.08426)."""
        state = self.critic.encode(target, pairs.states.tokens, pairs.states.mask)
        return self.min_q(target, state, pairs.utterances)

    def min_q(
        self, params: Params, state: Float[Array, "B D"], utterances: TextBatch
    ) -> Float[Array, "B 1"]:
        """min_k Q_k of utterances in encoded states."""
        action = self.critic.encode(params, utterances.tokens, utterances.mask)
        return jnp.min(self.critic.q(params, state, action), axis=0)[:, None]
