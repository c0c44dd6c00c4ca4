"""Ranking given actions instead of writing one: how LMRL-Gym evaluates its mazes (arXiv 2311.18232)."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from agentrl_jax.algorithms.token_values import TrainedValues, Valued
from agentrl_jax.batch import Batch, Layout, pack_branches, split
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.learner import likelihoods
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rendering import Ids
from agentrl_jax.rows import Row
from agentrl_jax.sharding import automatic, batch_sharding, weight_shardings
from agentrl_jax.shares import brought
from agentrl_jax.trajectories import Call, Key, Sampling

OfTokens = Callable[[Params, Batch], Array]  # a number for each token given all before it, [B, T]
Score = Callable[[Any], OfTokens]  # of a policy; an action's score is the sum over its tokens


def likelihood(policy: Policy) -> OfTokens:
    """log pi(token): what behaviour cloning ranks by."""
    read = likelihoods(policy)
    return lambda params, batch: read(params, batch, None)[0][0]


def advantage(policy: Policy) -> OfTokens:
    """min_k Qbar_k(token) - V: ILQL's."""
    read = _values(policy).read

    def of_tokens(params: Params, batch: Batch) -> Array:
        v, _, q, *_ = read(params, batch, None)[0]
        return q - v

    return of_tokens


def action_value(policy: Policy) -> OfTokens:
    """min_k Qbar_k(token): that of Monte-Carlo returns, which train no V."""
    read = _values(policy).read
    return lambda params, batch: read(params, batch, None)[0][2]


def _values(policy: Policy) -> TrainedValues:
    if not isinstance(policy, Valued):
        raise UserError(f"{type(policy).__name__} has no values to rank by: make the policy a SteeredConfig, or rank by likelihood")
    return TrainedValues(policy)


def decided(actions: Sequence[Ids], scores: np.ndarray, temperature: float, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """The best action, of equals the first; above temperature 0 one drawn by softmax(scores / temperature). And its tokens' log-probs.

    These add up to the action's: a token's is that of going on with it, given all actions that agree with it so far.
    """
    if temperature:
        p = scipy.special.softmax(scores / temperature)
        chosen = int(rng.choice(len(p), p=p))
    else:
        chosen = int(np.argmax(scores))
        p = np.eye(len(scores))[chosen]
    action = actions[chosen]
    agree = [sum(p[i] for i, other in enumerate(actions) if np.array_equal(other[:n], action[:n])) for n in range(len(action) + 1)]
    return chosen, np.diff(np.log(agree)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Choice:
    """A prompt, and the actions of which one will follow it."""

    prompt: Ids
    actions: Sequence[Ids]
    sampling: Sampling
    key: Key
    parent: Call | None
    future: "Future[Call]" = field(default_factory=Future)

    @property
    def rows(self) -> list[tuple[bytes, bytes]]:
        """Prompt and action of each."""
        return [(self.prompt.tobytes(), action.tobytes()) for action in self.actions]

    def call(self, scores: np.ndarray, version: int) -> Call:
        chosen, logp = decided(self.actions, scores, self.sampling.temperature, np.random.default_rng(seed_of(*self.key)))
        versions = np.full(len(logp), version, np.int32)
        return Call(self.prompt, self.actions[chosen], logp, versions, self.sampling, "stop", "ranked", self.key, parent=self.parent)


class Ranker:
    """Scores actions on an engine's devices, with weights of its own: one program over bins of a prompt and its actions.

    A prompt is read once for `together` of its actions, of at most `longest` tokens, where the policy takes rows with branches.
    Whoever asks while it is at work is answered together; an action is scored once for the weights that are held.
    """

    def __init__(
        self, score: Score, policy: Policy, engine: EngineConfig, params: Params, version: int = 0, longest: int = 16, together: int = 8
    ) -> None:
        self._mesh, self._axes, self._length, self._longest = automatic(engine.devices()), policy.axes(), engine.positions, longest
        self._together = together if getattr(policy, "branches", False) else 1
        self._bins = -(-engine.rows // self._together)
        of_tokens = score(policy)
        self._program = jax.jit(lambda params, batch: jnp.where(batch.action_mask, of_tokens(params, batch), 0.0))
        self._copy = jax.jit(lambda params: jax.tree.map(jnp.copy, params))  # the learner's next step deletes its own
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "ranker")
        self._waiting: list[Choice] = []
        self.hold(params, version)
        self.scores([(bytes(4), bytes(4))], self._held[0])  # compiled now, and not while somebody waits

    def hold(self, params: Params, version: int) -> None:
        """Copy new weights."""
        where = weight_shardings(self._mesh, self._axes, params)
        own = self._copy(jax.tree.map(lambda x, sharding: jax.device_put(brought(x), sharding), params, where))
        self._held = own, version, dict[bytes, float]()  # a row's digest -> its score by these weights

    def choose(self, choice: Choice) -> "Future[Call]":
        """The call, once it is decided."""
        with self._lock:
            self._waiting.append(choice)
        self._thread.submit(self._answer)
        return choice.future

    def scores(self, rows: Sequence[tuple[bytes, bytes]], params: Params) -> np.ndarray:
        """The score of each (prompt, action), int32 as bytes, float64. Raises UserError where one is too long."""
        made = [_row(*row) for row in rows]
        for row in made:
            if len(row) > self._length:
                raise UserError(
                    f"a prompt with an action has {len(row)} tokens, the engine holds {self._length}: raise config.engine.positions"
                )
            if (count := np.sum(row.action_mask)) > self._longest:
                raise UserError(f"an action has {count} tokens, {self._longest} are ranked: give Ranked a larger `longest`")
        layout = self._layout(made)
        batch = layout.batch(np.zeros((layout.bins, layout.length), np.float32))
        with jax.set_mesh(self._mesh):
            found = [self._program(params, jax.device_put(part, batch_sharding(self._mesh))) for part in split(batch, self._bins)]
        places = [np.flatnonzero(row.action_mask) for row in made]
        owner = np.repeat(np.arange(len(made)), [len(some) for some in places])
        of_token = np.concatenate([np.asarray(x, np.float64) for x in found])[layout.place(owner, np.concatenate(places))]
        return np.bincount(owner, of_token, minlength=len(made))

    def _layout(self, rows: Sequence[Row]) -> Layout:
        """Where an action stands follows from its place among those of its prompt: whoever else is asked cannot matter."""
        if self._together > 1:
            return pack_branches(rows, self._length - self._longest, self._longest + 1, self._together, self._bins)
        bins, none = -(-len(rows) // self._bins) * self._bins, np.zeros(len(rows), np.int64)
        return Layout(rows, self._length, bins, np.arange(len(rows)), none, none)

    def _answer(self) -> None:
        """All choices that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        waiting = [choice for choice in waiting if choice.future.set_running_or_notify_cancel()]
        if not waiting:
            return
        try:
            params, version, known = self._held
            asked = [[(_digest(row), row) for row in choice.rows] for choice in waiting]
            if new := {digest: row for rows in asked for digest, row in rows if digest not in known}:
                known.update(zip(new, self.scores([*new.values()], params).tolist()))
            for choice, rows in zip(waiting, asked):
                choice.future.set_result(choice.call(np.array([known[digest] for digest, _ in rows]), version))
        except Exception as error:
            for choice in waiting:
                if not choice.future.done():
                    choice.future.set_exception(error)


def _digest(row: tuple[bytes, bytes]) -> bytes:
    prompt, action = row
    return hashlib.blake2b(prompt + action, digest_size=16, salt=len(prompt).to_bytes(8)).digest()


def _row(prompt: bytes, action: bytes) -> Row:
    tokens = np.frombuffer(prompt + action, np.int32)
    n, written = len(tokens), np.arange(len(tokens)) >= len(prompt) // tokens.itemsize
    return Row(
        tokens, written, np.zeros(n, np.float32), np.full(n, -1, np.int32), np.ones(n, np.float32), np.where(written, 0, -1)
    )  # fmt: skip
