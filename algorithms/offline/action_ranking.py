"""Ranking given actions instead of generating one: how LMRL-Gym evaluates its mazes (arXiv
2311.18232).
"""

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

from agentrl_jax.algorithms.offline.token_values import PolicyWithValues, TrainableValues
from agentrl_jax.algorithms.policy_gradient.scoring import scoring_sequence
from agentrl_jax.distributed.resharding import reshard
from agentrl_jax.distributed.sharding import batch_sharding, weight_shardings, with_auto_axes
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.keys import seed_of
from agentrl_jax.learner.chunked_logp import make_logp_forward
from agentrl_jax.learner.packing import Batch, PackedLayout, pack_branches, split_bins
from agentrl_jax.learner.sequences import TrainingSequence
from agentrl_jax.policy import Params, Policy
from agentrl_jax.renderer import TokenIds
from agentrl_jax.trajectories import Call, RandomKey, Sampling

# a score of each token given all before it, [B, T]
TokenScoreFn = Callable[[Params, Batch], Array]
# of a policy; an action's score is the sum over its tokens
TokenScoreBuilder = Callable[[Any], TokenScoreFn]


def log_likelihood(policy: Policy) -> TokenScoreFn:
    """log pi(token): the score of behavior cloning."""
    forward = make_logp_forward(policy)
    return lambda params, batch: forward(params, batch, None)[0][0]


def token_advantage(policy: Policy) -> TokenScoreFn:
    """min_k Qbar_k(token) - V: the score of ILQL."""
    forward = _trainable_values(policy).forward

    def score_tokens(params: Params, batch: Batch) -> Array:
        v, _, q, *_ = forward(params, batch, None)[0]
        return q - v

    return score_tokens


def action_value(policy: Policy) -> TokenScoreFn:
    """min_k Qbar_k(token): the score of Monte-Carlo returns, which train no V."""
    forward = _trainable_values(policy).forward
    return lambda params, batch: forward(params, batch, None)[0][2]


def _trainable_values(policy: Policy) -> TrainableValues:
    if not isinstance(policy, PolicyWithValues):
        raise UserError(
            f"{type(policy).__name__} has no values to rank by: "
            "make the policy a ValueGuidedConfig, or rank by likelihood"
        )
    return TrainableValues(policy)


def choose_action(
    actions: Sequence[TokenIds], scores: np.ndarray, temperature: float, rng: np.random.Generator
) -> tuple[int, np.ndarray]:
    """The index of the best action, of equal ones the first, or above temperature 0 of one sampled
    by softmax(scores / temperature), and its tokens' log-probs.

    These add up to the action's: a token's log-prob is conditioned on the actions that share all
    tokens before it.
    """
    if temperature:
        p = scipy.special.softmax(scores / temperature)
        chosen = int(rng.choice(len(p), p=p))
    else:
        chosen = int(np.argmax(scores))
        p = np.eye(len(scores))[chosen]
    action = actions[chosen]
    prefix_probability = [
        sum(p[i] for i, other in enumerate(actions) if np.array_equal(other[:n], action[:n]))
        for n in range(len(action) + 1)
    ]
    return chosen, np.diff(np.log(prefix_probability)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class RankingRequest:
    """A prompt and its candidate actions."""

    prompt: TokenIds
    actions: Sequence[TokenIds]
    sampling: Sampling
    key: RandomKey
    parent: Call | None
    future: "Future[Call]" = field(default_factory=Future)

    @property
    def prompt_action_pairs(self) -> list[tuple[bytes, bytes]]:
        """(prompt, action) of each candidate, as bytes of int32 ids."""
        return [(self.prompt.tobytes(), action.tobytes()) for action in self.actions]

    def to_call(self, scores: np.ndarray, version: int) -> Call:
        chosen, logp = choose_action(
            self.actions,
            scores,
            self.sampling.temperature,
            np.random.default_rng(seed_of(*self.key)),
        )
        versions = np.full(len(logp), version, np.int32)
        return Call(
            self.prompt,
            self.actions[chosen],
            logp,
            versions,
            self.sampling,
            "stop",
            "ranked",
            self.key,
            parent=self.parent,
        )


class ActionRanker:
    """Scores actions on an engine's devices with its own copy of the weights: one program over bins
    of a prompt and its actions.

    Where the policy supports branches, a prompt is computed once for `actions_per_row` of its
    actions, of at most `max_action_tokens` tokens. Requests that arrive during a pass are batched
    into the next; the scores of a (prompt, action) are cached until the weights change.
    """

    def __init__(
        self,
        score: TokenScoreBuilder,
        policy: Policy,
        engine: EngineConfig,
        params: Params,
        version: int = 0,
        max_action_tokens: int = 16,
        actions_per_row: int = 8,
    ) -> None:
        self._mesh, self._axes = with_auto_axes(engine.devices()), policy.axes()
        self._max_length, self._max_action_tokens = engine.positions, max_action_tokens
        self._actions_per_row = actions_per_row if policy.supports_branches else 1
        self._bins_per_microbatch = -(-engine.rows // self._actions_per_row)
        score_tokens = score(policy)
        self._score_program = jax.jit(
            lambda params, batch: jnp.where(batch.action_mask, score_tokens(params, batch), 0.0)
        )
        # the learner's next step donates its own
        self._copy_params = jax.jit(lambda params: jax.tree.map(jnp.copy, params))
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "ranker")
        self._pending: list[RankingRequest] = []
        self.set_weights(params, version)
        # compiled here and not during the first request
        self.scores([(bytes(4), bytes(4))], self._snapshot[0])

    def set_weights(self, params: Params, version: int) -> None:
        """Copy new weights."""
        shardings = weight_shardings(self._mesh, self._axes, params)
        placed = jax.tree.map(reshard, params, shardings)
        # weights, their version, and the scores by these weights by digest of (prompt, action)
        self._snapshot = (self._copy_params(placed), version, dict[bytes, float]())

    def submit(self, request: RankingRequest) -> "Future[Call]":
        """The call of the chosen action."""
        with self._lock:
            self._pending.append(request)
        self._thread.submit(self._process_pending)
        return request.future

    def scores(
        self, prompt_action_pairs: Sequence[tuple[bytes, bytes]], params: Params
    ) -> np.ndarray:
        """The score of each (prompt, action), bytes of int32 ids, float64.

        Raises:
            UserError: one is too long.
        """
        sequences = [_ranking_sequence(*pair) for pair in prompt_action_pairs]
        for sequence in sequences:
            if len(sequence) > self._max_length:
                raise UserError(
                    f"a prompt with an action has {len(sequence)} tokens, the engine holds "
                    f"{self._max_length}: raise config.engine.positions"
                )
            if (count := np.sum(sequence.action_mask)) > self._max_action_tokens:
                raise UserError(
                    f"an action has {count} tokens, {self._max_action_tokens} are ranked: "
                    "give RankedActions a larger max_action_tokens"
                )
        layout = self._layout(sequences)
        batch = layout.to_batch(np.zeros((layout.num_bins, layout.bin_length), np.float32))
        with jax.set_mesh(self._mesh):
            packed = [
                self._score_program(params, jax.device_put(part, batch_sharding(self._mesh)))
                for part in split_bins(batch, self._bins_per_microbatch)
            ]
        positions = [np.flatnonzero(sequence.action_mask) for sequence in sequences]
        index = np.repeat(np.arange(len(sequences)), [len(x) for x in positions])
        coordinates = layout.packed_coordinates(index, np.concatenate(positions))
        token_scores = np.concatenate([np.asarray(x, np.float64) for x in packed])[coordinates]
        return np.bincount(index, token_scores, minlength=len(sequences))

    def _layout(self, sequences: Sequence[TrainingSequence]) -> PackedLayout:
        """The columns of an action depend only on its index among those of its prompt, so that
        other requests cannot change its score.
        """
        if self._actions_per_row > 1:
            return pack_branches(
                sequences,
                self._max_length - self._max_action_tokens,
                self._max_action_tokens + 1,
                self._actions_per_row,
                self._bins_per_microbatch,
            )
        count, multiple = len(sequences), self._bins_per_microbatch
        bins, zeros = -(-count // multiple) * multiple, np.zeros(count, np.int64)
        return PackedLayout(sequences, self._max_length, bins, np.arange(count), zeros, zeros)

    def _process_pending(self) -> None:
        """All pending requests."""
        with self._lock:
            requests, self._pending = self._pending, []
        requests = [x for x in requests if x.future.set_running_or_notify_cancel()]
        if not requests:
            return
        try:
            params, version, scores = self._snapshot
            digests = [[_pair_digest(x) for x in r.prompt_action_pairs] for r in requests]
            new = {
                digest: pair
                for row, request in zip(digests, requests)
                for digest, pair in zip(row, request.prompt_action_pairs)
                if digest not in scores
            }
            if new:
                scores.update(zip(new, self.scores([*new.values()], params).tolist()))
            for request, row in zip(requests, digests):
                call = request.to_call(np.array([scores[digest] for digest in row]), version)
                request.future.set_result(call)
        except Exception as error:
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(error)


def _pair_digest(prompt_action: tuple[bytes, bytes]) -> bytes:
    prompt, action = prompt_action
    return hashlib.blake2b(prompt + action, digest_size=16, salt=len(prompt).to_bytes(8)).digest()


def _ranking_sequence(prompt: bytes, action: bytes) -> TrainingSequence:
    tokens = np.frombuffer(prompt + action, np.int32)
    is_action = np.arange(len(tokens)) >= len(prompt) // tokens.itemsize
    return scoring_sequence(tokens, is_action)
