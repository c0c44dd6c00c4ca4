"""`BatchScorer`: scores given texts on this process's devices, in batches of a few shapes."""

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from agentrl_jax.distributed.resharding import reshard
from agentrl_jax.distributed.sharding import (
    BATCH_AXES,
    batch_sharding,
    num_shards,
    weight_shardings,
    with_auto_axes,
)
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.chunked_logp import make_logp_forward
from agentrl_jax.learner.packing import Batch
from agentrl_jax.policy import Params, Policy

RowScore = Callable[[Params, Batch], Float[Array, "B"]]  # one number per row


def continuation_logp(policy: Policy) -> RowScore:
    """sum_t log pi(token_t | tokens before it), over the tokens of the action mask."""
    forward = make_logp_forward(policy)

    def score_rows(params: Params, batch: Batch) -> Float[Array, "B"]:
        (logp, _), _ = forward(params, batch, None)
        return jnp.sum(jnp.where(jnp.asarray(batch.action_mask), logp, 0.0), axis=1)

    return score_rows


@dataclass(frozen=True, eq=False)
class _Request:
    """A text, and which of its tokens are scored."""

    tokens: np.ndarray
    is_scored: np.ndarray
    future: "Future[float]" = field(default_factory=Future)


class BatchScorer:
    """A `Scorer` with its own copy of some weights, on an engine's devices.

    A text is padded to the smallest of three lengths (the engine's positions, their half, their
    quarter), and a pass has a fixed number of rows, so that three programs score everything and
    other requests cannot change a score. What arrives during a pass is batched into the next.
    Weights are loaded, and the programs compiled, at the first request.
    """

    def __init__(
        self,
        score_rows: RowScore,
        axes: Any,
        load: Callable[[], Params],
        engine: EngineConfig,
        rows: int = 32,
    ) -> None:
        """
        Args:
            score_rows: One number for each row of a batch.
            axes: The logical axes of the weights (`Policy.axes`).
            load: Returns the weights.
            engine: Its devices, and the longest text (`positions`).
            rows: Texts per pass, rounded up to a multiple of the data devices.
        """
        self._axes, self._load, self._engine, self._min_rows = axes, load, engine, rows
        self._program = jax.jit(score_rows)
        self._copy = jax.jit(lambda params: jax.tree.map(jnp.copy, params))
        self.lengths = sorted({max(2, engine.positions // part) for part in (1, 2, 4)})
        self.num_passes = 0
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "scorer")
        self._pending: list[_Request] = []
        self._mesh: Mesh | None = None
        self._params: Params = None

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        """See `Scorer.submit`.

        Raises:
            UserError: the text is too long.
            ValueError: its first token is scored, or there is none.
        """
        if len(tokens) == 0 or is_scored[0]:
            raise ValueError("a text to score begins with a token that is not scored")
        if len(tokens) > self.lengths[-1]:
            raise UserError(
                f"a text to score has {len(tokens)} tokens, the model reads {self.lengths[-1]}: "
                "raise the positions of its engine"
            )
        if self._params is None:
            self.set_weights(self._load())
        request = _Request(np.asarray(tokens, np.int32), np.asarray(is_scored, bool))
        with self._lock:
            self._pending.append(request)
        self._thread.submit(self._process_pending)
        return request.future

    def set_weights(self, params: Params) -> None:
        """Score with a copy of these weights from now on."""
        if self._mesh is None:
            self._mesh = with_auto_axes(self._engine.devices())
        shardings = weight_shardings(self._mesh, self._axes, params)
        is_first = self._params is None
        self._params = self._copy(jax.tree.map(reshard, params, shardings))
        for length in self.lengths if is_first else ():
            self._score_pass([_Request(np.zeros(1, np.int32), np.zeros(1, bool))], length)

    def close(self) -> None:
        """Finish the pass in progress; requests that wait are cancelled."""
        self._thread.shutdown(cancel_futures=True)
        for request in self._pending:
            request.future.cancel()

    def _process_pending(self) -> None:
        """Score all pending requests."""
        with self._lock:
            requests, self._pending = self._pending, []
        requests = [x for x in requests if x.future.set_running_or_notify_cancel()]
        try:
            for shorter, length in itertools.pairwise([0, *self.lengths]):
                fitting = [x for x in requests if shorter < len(x.tokens) <= length]
                for i in range(0, len(fitting), self._num_rows):
                    part = fitting[i : i + self._num_rows]
                    for request, score in zip(part, self._score_pass(part, length)):
                        request.future.set_result(float(score))
        except Exception as error:
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(error)

    @property
    def _num_rows(self) -> int:
        assert self._mesh is not None
        parts = num_shards(self._mesh, BATCH_AXES)
        return math.ceil(self._min_rows / parts) * parts

    def _score_pass(self, requests: Sequence[_Request], length: int) -> np.ndarray:
        """The scores of at most `_num_rows` texts of at most `length` tokens, float32."""
        assert self._mesh is not None
        batch = _padded_batch(requests, self._num_rows, length)
        self.num_passes += 1
        with jax.set_mesh(self._mesh):
            scores = self._program(self._params, jax.device_put(batch, batch_sharding(self._mesh)))
        return np.asarray(scores)[: len(requests)]


def _padded_batch(requests: Sequence[_Request], rows: int, length: int) -> Batch:
    """A text per row, padded on the right; the other rows are empty."""
    shape = rows, length
    tokens, is_scored = np.zeros(shape, np.int32), np.zeros(shape, bool)
    is_token = np.zeros(shape, np.int32)
    for i, request in enumerate(requests):
        n = len(request.tokens)
        tokens[i, :n], is_scored[i, :n], is_token[i, :n] = request.tokens, request.is_scored, 1
    return Batch(
        tokens=tokens,
        positions=np.arange(length, dtype=np.int32)[None] * is_token,
        segment_ids=is_token,
        turns=np.where(is_scored, 0, -1).astype(np.int32),
        action_mask=is_scored,
        sampler_logp=np.zeros(shape, np.float32),
        version=np.full(shape, -1, np.int32),
        temperature=np.ones(shape, np.float32),
        weight=np.zeros(shape, np.float32),
    )
