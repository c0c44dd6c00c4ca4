"""Losses of utterance critics: twin Q and V with target networks (ArCHer, arXiv 2402.19446)."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agentrl_jax.learner.packing import Batch
from agentrl_jax.pytree import AnyArray, pytree_dataclass


@pytree_dataclass
class TransitionOutcome:
    """Reward and return after an utterance."""

    reward: Float[AnyArray, "*B"]
    has_next_value: Bool[AnyArray, "*B"]  # false: the target does not bootstrap (1 - done)
    return_to_go: Float[AnyArray, "*B"]  # discounted rewards of this turn and all after it
    continues: Bool[AnyArray, "*B"]  # the next column is the episode's next turn


@pytree_dataclass
class UtteranceCriticBatch:
    """The inputs of the loss."""

    batch: Batch  # what the critic reads, with a column for each turn of a row
    outcome: TransitionOutcome  # [B, T]


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
    # the columns of a row must be an episode's turns in order (`TransitionOutcome.continues`)
    needs_episodes: bool

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
    needs_episodes: bool = field(default=False, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        q_loss = squared_error(output.q, td_target(output, outcome, self.gamma))
        return q_loss, squared_error(output.v, output.target_q)


def lambda_return(
    output: UtteranceCriticOutput, outcome: TransitionOutcome, gamma: float, lam: float
) -> Float[Array, "k *B"]:
    """y_t = r_t + gamma ((1 - lambda) Vbar_k(s_{t+1}) + lambda y_{t+1}), from the last column to
    the first; where the next column is not the next turn, `td_target`.
    """
    one_step = td_target(output, outcome, gamma)
    continues = jnp.broadcast_to(outcome.continues, one_step.shape)
    difference = gamma * lam * jnp.where(continues, output.next_v, 0.0)
    weight = jnp.where(continues, jnp.float32(gamma * lam), 0.0)

    def add(after: Array, columns: tuple[Array, Array]) -> tuple[Array, Array]:
        y = columns[0] + columns[1] * after
        return y, y

    columns = jnp.moveaxis(one_step - difference, -1, 0), jnp.moveaxis(weight, -1, 0)
    last = jnp.zeros(one_step.shape[:-1], one_step.dtype)
    return jnp.moveaxis(jax.lax.scan(add, last, columns, reverse=True)[1], 0, -1)


@dataclass
class LambdaReturnLoss:
    """`OnPolicyTDLoss` with lambda-returns as Q's target: y_t = r_t + gamma ((1 - lambda)
    Vbar_k(s_{t+1}) + lambda y_{t+1}).

    lambda 0 is `OnPolicyTDLoss`, lambda 1 the return of the data's utterances. For critics that
    read whole episodes (`JointCriticTrainerConfig`); an episode that fills several rows is cut
    between them.
    """

    gamma: float = 0.95
    lam: float = 0.8
    needs_policy_utterances: bool = field(default=True, init=False)
    needs_episodes: bool = field(default=True, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        target = lambda_return(output, outcome, self.gamma, self.lam)
        return squared_error(output.q, target), squared_error(output.v, output.target_q)


@dataclass
class IQLLoss:
    """Offline: Q as online, and V_k(s) is regressed on the `tau` expectile of Qbar_k(s, a) over the
    data's utterances; .5 is SARSA.
    """

    gamma: float = 0.95
    tau: float = 0.9
    needs_policy_utterances: bool = field(default=False, init=False)
    needs_episodes: bool = field(default=False, init=False)

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
    needs_episodes: bool = field(default=False, init=False)

    def __call__(
        self, output: UtteranceCriticOutput, outcome: TransitionOutcome
    ) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        target = jnp.broadcast_to(outcome.return_to_go, output.q.shape)
        return squared_error(output.q, target), squared_error(output.v, target)


def utterance_critic_loss(
    critic_loss: UtteranceCriticLoss, *values_and_batch: Any
) -> tuple[Float[Array, "B T"], dict[str, Array]]:
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
