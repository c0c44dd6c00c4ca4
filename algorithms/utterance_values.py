"""Values of states and of whole utterances: twin Q and V with slow copies, and what they are drawn to (ArCHer, arXiv 2402.19446)."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from agentrl_jax.algorithms.texts import Texts
from agentrl_jax.batch import Batch
from agentrl_jax.policy import Params
from agentrl_jax.record import AnyArray, record


@runtime_checkable
class Critic(Protocol):
    """Heads on an encoder; parameters `encoder` and others (`models.utterance_critic.UtteranceCritic`)."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def encode(self, params: Params, tokens: Any, mask: Any) -> Float[Array, "B D"]: ...

    def q(self, params: Params, state: Float[Array, "B D"], action: Float[Array, "B D"]) -> Float[Array, "k B"]: ...

    def v(self, params: Params, state: Float[Array, "B D"]) -> Float[Array, "k B"]: ...


@record
class Pairs(Batch):
    """States and utterances, one of each a row; as a `Batch` they have one column, with a token where the row is real."""

    states: Texts
    utterances: Texts


@record
class Exchanges(Pairs):
    """And the states after them, and the utterances that V is judged by."""

    following: Texts
    judged: Texts


@record
class Outcome:
    """What came of an utterance."""

    reward: Float[AnyArray, "*B"]
    goes_on: Bool[AnyArray, "*B"]  # the state after it has a value
    to_go: Float[AnyArray, "*B"]  # discounted rewards of this turn and all after it


@record
class CriticBatch:
    """What the loss reads."""

    batch: Exchanges
    outcome: Outcome  # [B, 1]


@record
class Read:
    """What critic and target say of copy k: Q_k(s, a), V_k(s), and without a gradient Vbar_k(s'), Qbar_k(s, a')."""

    q: Float[Array, "k *B"]
    v: Float[Array, "k *B"]
    following: Float[Array, "k *B"]
    judged: Float[Array, "k *B"]


def squared(value: Float[Array, "*shape"], target: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """(y - V)^2."""
    return (target - value) ** 2


def expectile(value: Float[Array, "*shape"], target: Float[Array, "*shape"], *, tau: float) -> Float[Array, "*shape"]:
    """|tau - 1(y < V)| (y - V)^2 (IQL, arXiv 2110.06169): half the squared error where tau is .5."""
    return jnp.where(target >= value, tau, 1.0 - tau) * (target - value) ** 2


def bootstrapped(read: Read, outcome: Outcome, gamma: float) -> Float[Array, "k *B"]:
    """r + gamma (1 - done) Vbar_k(s'): each copy its own, not the least."""
    goes_on = jnp.broadcast_to(outcome.goes_on, read.following.shape)
    return jnp.asarray(outcome.reward)[None] + gamma * jnp.where(goes_on, read.following, 0.0)


@runtime_checkable
class Goal(Protocol):
    """The losses of each Q_k and each V_k."""

    gamma: float  # of a turn
    fresh: bool  # V is judged by new utterances of the policy; else by those of the data

    def __call__(self, read: Read, outcome: Outcome) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]: ...


@dataclass
class Sampled:
    """Online: (Q_k(s, a) - y_k)^2 and (V_k(s) - Qbar_k(s, a'))^2, y_k = r + gamma (1 - done) Vbar_k(s'), a' ~ the policy at s."""

    gamma: float = 0.95
    fresh: bool = field(default=True, init=False)

    def __call__(self, read: Read, outcome: Outcome) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        return squared(read.q, bootstrapped(read, outcome, self.gamma)), squared(read.v, read.judged)


@dataclass
class OnData:
    """Offline: Q as online, and V_k(s) is drawn to the `tau` expectile of Qbar_k(s, a) over the data's utterances; .5 is SARSA."""

    gamma: float = 0.95
    tau: float = 0.9
    fresh: bool = field(default=False, init=False)

    def __call__(self, read: Read, outcome: Outcome) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        return squared(read.q, bootstrapped(read, outcome, self.gamma)), expectile(read.v, read.judged, tau=self.tau)


@dataclass
class Returns:
    """The Monte-Carlo critic: Q_k(s, a) and V_k(s) are both drawn to the discounted rewards that the episode still earned."""

    gamma: float = 0.95
    fresh: bool = field(default=False, init=False)

    def __call__(self, read: Read, outcome: Outcome) -> tuple[Float[Array, "k *B"], Float[Array, "k *B"]]:
        to_go = jnp.broadcast_to(outcome.to_go, read.q.shape)
        return squared(read.q, to_go), squared(read.v, to_go)


def utterance_loss(goal: Goal, *rest: Any) -> tuple[Float[Array, "B 1"], dict[str, Array]]:
    """sum_k L(Q_k) + sum_k L(V_k) of each exchange. `rest`: what `Twins.read` reads, and the batch."""
    values, batch = rest[:-1], rest[-1]
    q, v, following, judged = jnp.stack(values).reshape(4, -1, *values[0].shape)
    read = Read(q=q, v=v, following=jax.lax.stop_gradient(following), judged=jax.lax.stop_gradient(judged))
    q_loss, v_loss = (jnp.sum(loss, axis=0) for loss in goal(read, jax.tree.map(jnp.asarray, batch.outcome)))
    return q_loss + v_loss, {"q_loss": q_loss, "v_loss": v_loss, "q": q[0], "v": v[0]}


@dataclass(frozen=True, eq=False)
class Twins:
    """A critic and its slow copy, parameters `critic` and `target`: what a `Learner` trains."""

    critic: Critic

    def init(self, key: Key[Array, ""]) -> Params:
        return self.around(self.critic.init(key))

    def around(self, params: Params) -> Params:
        """Both alike."""
        return {"critic": params, "target": params}

    def axes(self) -> Any:
        return self.around(self.critic.axes())

    def trainable(self) -> Any:
        shapes = jax.eval_shape(self.critic.init, jax.random.key(0))
        return {"critic": jax.tree.map(lambda _: True, shapes), "target": jax.tree.map(lambda _: False, shapes)}

    def read(self, params: Params, batch: Exchanges, key: Array | None) -> tuple[tuple[Array, ...], None]:
        """The arrays of a `Read`, one after another, each [B, 1]."""
        online, target, critic = params["critic"], params["target"], self.critic
        state, action = (critic.encode(online, x.tokens, x.mask) for x in (batch.states, batch.utterances))
        before, after, other = (critic.encode(target, x.tokens, x.mask) for x in (batch.states, batch.following, batch.judged))
        found = critic.q(online, state, action), critic.v(online, state), critic.v(target, after), critic.q(target, before, other)
        return tuple(x[:, None] for values in found for x in values), None

    def advantage(self, params: Params, batch: Pairs, key: Array | None) -> tuple[tuple[Array, ...], None]:
        """min_k Q_k(s, a) - min_k V_k(s), [B, 1], of the critic itself."""
        own = params["critic"]
        state = self.critic.encode(own, batch.states.tokens, batch.states.mask)
        return (self.least(own, state, batch.utterances) - jnp.min(self.critic.v(own, state), axis=0)[:, None],), None

    def worth(self, target: Params, pairs: Pairs) -> Float[Array, "B 1"]:
        """min_k Qbar_k(s, a) of the slow copy, by which CHAI chooses (arXiv 2204.08426)."""
        return self.least(target, self.critic.encode(target, pairs.states.tokens, pairs.states.mask), pairs.utterances)

    def least(self, params: Params, state: Float[Array, "B D"], utterances: Texts) -> Float[Array, "B 1"]:
        """min_k Q_k of utterances in encoded states."""
        action = self.critic.encode(params, utterances.tokens, utterances.mask)
        return jnp.min(self.critic.q(params, state, action), axis=0)[:, None]
