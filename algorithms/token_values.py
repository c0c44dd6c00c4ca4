"""Values of tokens, learned offline: Q over the vocabulary and V, by ILQL or by Monte-Carlo returns (LMRL-Gym, arXiv 2311.18232)."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.returns import accumulated, continues, token_rewards
from agentrl_jax.algorithms.scoring import Scored
from agentrl_jax.batch import Batch, pack, split
from agentrl_jax.errors import UserError
from agentrl_jax.learner import Learner, TrainState, over_vocabulary
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Critic, Output, Params, Policy
from agentrl_jax.pooled import pooled
from agentrl_jax.record import AnyArray, record
from agentrl_jax.rows import Evidence, Indices, collate, distinct, evidence_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import settle
from agentrl_jax.trajectories import Group


@runtime_checkable
class Valued(Protocol):
    """A policy that carries values: parameters `policy`, `values` (`trunk`, `q`, `v`) and `target` (`trunk`, `q`)."""

    policy: Policy
    q: Critic  # k copies, [k, *shape, V]
    v: Critic

    @property
    def vocab_size(self) -> int: ...

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any: ...

    def trainable(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Read:
    """What the values say of each written token, float64 [N]."""

    v: np.ndarray  # of the state that it is written in
    after: np.ndarray  # V of the state with it
    q: np.ndarray  # of itself: the least of the target's


@dataclass(frozen=True, eq=False)
class Goal:
    """What values are drawn to, [N]; `v` None: V is not trained."""

    q: np.ndarray
    v: np.ndarray | None = None


@dataclass
class Expectile:
    """ILQL (arXiv 2206.11871): y = r + gamma V(next state), and V the `tau` expectile of the least target Q.

    The next state is the one before the trajectory's next written token: what the world says in between is passed over. After the last
    one there is none, y = r, unless the episode was cut and `after_cut` asks for the V that it was cut at.
    """

    gamma: float = 0.99
    tau: float = 0.7
    after_cut: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 < self.tau < 1):
            raise UserError(f"gamma is between 0 and 1 and tau strictly between them, not {self.gamma} and {self.tau}")

    def __call__(self, evidence: Evidence, read: Callable[[], Read]) -> Goal:
        owner, values = evidence.token_trajectory, read()
        cut = np.array([self.after_cut and trajectory.truncated for trajectory in evidence.trajectories], bool)
        following = np.where(continues(owner), np.append(values.v, 0.0)[1:], np.where(cut[owner], values.after, 0.0))
        return Goal(token_rewards(evidence) + self.gamma * following, values.q)


@dataclass
class MonteCarlo:
    """y = G: the discounted sum of what the trajectory still earned, token by token."""

    gamma: float = 0.99

    def __call__(self, evidence: Evidence, read: Callable[[], Read]) -> Goal:
        return Goal(accumulated(token_rewards(evidence), self.gamma * continues(evidence.token_trajectory)))


@record
class ValueBatch:
    """What the loss reads beside the batch, all [B, T]."""

    batch: Batch
    q: Float[AnyArray, "B T"]
    v: Float[AnyArray, "B T"]


@dataclass
class TokenValuesConfig:
    """mean over written tokens of sum_k (Q_k - y)^2 / 2 + w (V - z)^2 / 2 + `conservative` sum_k CE(softmax Q_k, token).

    w = tau where z >= V, else 1 - tau, with y and z of `goal` (z = min_k Qbar_k for ILQL), held fixed. After each update target +=
    `polyak` (values - target). The policy itself stays as it is: fine-tune it before, and steer it by the values (`SteeredConfig`).
    """

    goal: Expectile | MonteCarlo
    conservative: float = 0.01  # CQL's weight
    polyak: float = 0.005
    aggregation: Callable[[Indices], np.ndarray] = token_mean
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256
    microbatch: int = 32

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "TokenValues":
        if not isinstance(policy, Valued):
            raise UserError(f"{type(policy).__name__} has no values to learn: make the policy a SteeredConfig")
        return TokenValues(self, policy, mesh, steps)


@dataclass(frozen=True, eq=False)
class TrainedValues:
    """A `Valued` policy whose values are trained, and nothing else: what a `Learner` trains."""

    policy: Valued

    def init(self, key: Key[Array, ""]) -> Params:
        return self.policy.init(key)

    def axes(self) -> Any:
        return self.policy.axes()

    def trainable(self) -> Any:
        frozen = jax.tree.map(lambda _: False, self.policy.trainable())
        return {**frozen, "values": jax.tree.map(lambda _: True, frozen["values"])}

    def read(self, params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Array | None]:
        """What `stand` reads, then each Q of each token, then log-sum-exp of each Q, all [B, T]."""
        found, own = self._stand(params, batch, key)
        q = params["values"]["q"]
        count = jax.eval_shape(lambda: self.policy.q.apply(q, own.hidden[:1, :1])).shape[0]
        return (*found, *self._over(2 * count, _all_of, q, batch, own.hidden)), own.aux

    def stand(self, params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Array | None]:
        """V before and after each token and the least target Q of it, all [B, T]: what goals are made from."""
        found, own = self._stand(params, batch, key)
        return found, own.aux

    def _stand(self, params: Params, batch: Batch, key: Array | None) -> tuple[tuple[Array, ...], Output]:
        values, target = params["values"], params["target"]
        own = self.policy.policy.apply(values["trunk"], batch.inputs, key=key)
        slow = self.policy.policy.apply(target["trunk"], batch.inputs)
        after = self.policy.v.apply(values["v"], own.hidden)
        (least,) = self._over(1, _least_of, target["q"], batch, slow.hidden)
        return (jnp.pad(after[:, :-1], ((0, 0), (1, 0))), after, least), own

    def _over(self, count: int, of: Callable[..., tuple[Array, ...]], params: Params, batch: Batch, hidden: Array) -> tuple[Array, ...]:
        def of_token(params: Params, hidden: Array, token: Array, temperature: Array) -> tuple[Array, ...]:
            q = self.policy.q.apply(params, hidden)  # [k, N, V]
            here = jax.lax.broadcasted_iota(jnp.int32, q.shape, 2) == token[None, :, None]
            return of(q, jnp.sum(jnp.where(here, q, 0.0), axis=-1))

        return over_vocabulary(of_token, count, self.policy.vocab_size, params, batch, hidden)


def _all_of(q: Array, chosen: Array) -> tuple[Array, ...]:
    return (*chosen, *jax.nn.logsumexp(q, axis=-1))


def _least_of(q: Array, chosen: Array) -> tuple[Array, ...]:
    return (jnp.min(chosen, axis=0),)


class TokenValues:
    """Implements `Algorithm`: read the values, set their goals, update them, move the target."""

    def __init__(self, config: TokenValuesConfig, policy: Valued, mesh: Mesh, steps: int) -> None:
        self._config = c = config
        if not 0 < c.polyak <= 1 or c.conservative < 0:
            raise UserError(f"polyak is in (0, 1] and conservative at least 0, not {c.polyak} and {c.conservative}")
        self._learner = Learner(model := TrainedValues(policy), c.optimizer.build(steps), self._loss, mesh, model.read, model.stand)
        self._rows = self._learner.share.rows(c.microbatch)
        self._follow = jax.jit(functools.partial(_followed, c.polyak), donate_argnums=0)

    def init(self, key: Array, params: Params) -> TrainState:
        """Both trunks start from the policy's weights."""
        trunk, q = params["policy"], params["values"]["q"]
        copies = {"values": {**params["values"], "trunk": trunk}, "target": {"trunk": trunk, "q": q}}
        return self._learner.init(key, jax.tree.map(jnp.copy, {**params, **copies}))

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        c, hosts, whole = self._config, runtime.hosts, collate(experience)
        evidence = evidence_of(experience, whole)
        everyone = pooled(hosts, whole.indices, len(experience))
        rows, which = distinct(whole.rows)  # what a small world shows again and again is computed once
        indices = dataclasses.replace(whole.indices, token_row=which[whole.indices.token_row])
        layout = settle(hosts, self._learner.share, pack(rows, c.bin_length, self._rows), self._rows)
        if layout is None:
            return state, {"skipped": 1.0, "tokens": 0.0, "device": []}
        goal = c.goal(evidence, lambda: Read(*Scored(layout, indices, self._rows).read(self._learner, state.params)))
        weight = c.aggregation(everyone.indices)[everyone.mine]
        at = layout.place(indices.token_row, indices.token_position)
        total, *means = averaged((layout.bins, layout.length), at, weight, goal.q, goal.q if goal.v is None else goal.v)
        batches = split(ValueBatch(batch=layout.batch(total), q=means[0], v=means[1]), self._rows)
        state, on_device = self._learner.update(state, batches)
        state = dataclasses.replace(state, params=self._follow(state.params))
        return state, {"skipped": 0.0, "tokens": float(len(everyone.mine)), "device": [on_device]}

    def _loss(self, v: Array, after: Array, least: Array, *rest: Any) -> tuple[Array, dict[str, Array]]:
        """`rest`: each Q, log-sum-exp of each Q, the batch."""
        c, values, batch = self._config, rest[:-1], rest[-1]
        count = len(values) // 2
        goal, expected = jnp.asarray(batch.q), jnp.asarray(batch.v)
        off = [q - goal for q in values[:count]]
        cross = [total - q for q, total in zip(values[:count], values[count:])]
        loss = jnp.sum(0.5 * jnp.stack(off) ** 2 + c.conservative * jnp.stack(cross), axis=0)
        metrics = {"q": values[0], "q_error": jnp.abs(off[0]), "cross_entropy": cross[0]}
        if isinstance(c.goal, Expectile):
            short = expected - v
            loss += 0.5 * jnp.where(short >= 0, c.goal.tau, 1 - c.goal.tau) * short**2
            metrics |= {"v": v, "v_error": jnp.abs(short)}
        return loss, metrics


def averaged(shape: tuple[int, int], at: tuple[np.ndarray, np.ndarray], weight: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """At each place the sum of weights, and the mean of each of the values by these: a squared error's gradient is no other, float32."""

    def gathered(numbers: np.ndarray) -> np.ndarray:
        out = np.zeros(shape)
        np.add.at(out, at, numbers)
        return out

    total = gathered(weight)
    means = [gathered(weight * one) / np.where(total == 0, 1.0, total) for one in values]
    return [x.astype(np.float32) for x in (total, *means)]


def _followed(rate: float, params: Params) -> Params:
    """target += rate (values - target)."""
    fresh = {"trunk": params["values"]["trunk"], "q": params["values"]["q"]}
    return {**params, "target": jax.tree.map(lambda old, new: old + rate * (new - old), params["target"], fresh)}
