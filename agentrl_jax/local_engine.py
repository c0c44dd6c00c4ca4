"""`LocalEngine`: samples on this process's devices; keys and values stay in their row from turn to turn."""

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.decoding import STOPS, Burst, Knobs, compile_programs
from agentrl_jax.engine import Image
from agentrl_jax.errors import UserError
from agentrl_jax.keys import key_data
from agentrl_jax.policy import Params, Policy
from agentrl_jax.trajectories import Call, FinishReason, Key, Sampling, starts_with


@dataclass
class EngineConfig:
    rows: int = 64  # calls at once
    positions: int = 256  # longest prompt + action
    chunk: int = 16  # prompt tokens a row per prefill program
    burst: int = 8  # tokens a row per decode program
    # Attention reads positions / 2^(spans-1), ..., positions / 2 or all positions, as the longest live row needs. More than one
    # span is faster for long contexts, but then what else is in the batch can change the last bits of a log-prob.
    spans: int = 1
    patience: float = 0.02  # seconds without news after which it no longer waits for rows whose environment thinks


@dataclass(eq=False)
class _Request:
    ids: np.ndarray
    sampling: Sampling
    key: Key
    parent: Call | None
    future: "Future[Call]"
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    version: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Row:
    """A place in the batch: the request at work, or the finished call whose cache it keeps."""

    request: _Request | None = None
    held: Call | None = None
    cached: int = 0  # positions of the request's ids (or of the held call's) that are in the cache
    used: float = 0.0


class LocalEngine:
    """Implements `Engine`. A thread of its own is the only one that runs its programs."""

    def __init__(
        self, policy: Policy, config: EngineConfig, params: Params, version: int = 0, text: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        """`text` decodes ids; only stop strings need it."""
        if config.rows < 1 or config.chunk < 1 or config.burst < 1 or config.spans < 1 or config.positions < 2 ** (config.spans - 1):
            raise UserError(f"an engine needs rows, chunk, burst, spans >= 1 and positions >= 2^(spans-1): {config}")
        self.config = config
        self.counts = {"prefill_tokens": 0, "sampled_tokens": 0, "bursts": 0, "evictions": 0}
        self._text = text
        self._spans = [config.positions // 2**i for i in reversed(range(config.spans))]
        self._prefill, self._decode = compile_programs(policy, config.burst)
        # A copy: putting equal shardings aliases, and the learner's next donation would delete the engine's weights.
        self._copy = jax.jit(lambda p: jax.tree.map(jnp.copy, policy.unstack(p)))
        # One place for weights and cache: programs compiled in the warm-up fit whatever mesh weights are published from.
        self._device = jax.local_devices()[0]
        self._cache = jax.device_put(policy.init_cache(config.rows, config.positions), self._device)
        self._rows = [_Row() for _ in range(config.rows)]
        self._row_of: dict[int, int] = {}  # id of a held call -> its row
        self._queue: deque[_Request] = deque()
        self._news = threading.Condition()
        self._last_news = 0.0
        self._closed = False
        self._error: BaseException | None = None
        self.publish(params, version)
        self._warm_up()
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        return self.config.rows

    @property
    def places(self) -> int:
        return self.config.rows

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`. Raises ValueError on an empty prompt or too many stop ids."""
        if len(ids) == 0:
            raise ValueError("a prompt needs at least one token")
        if len(sampling.stop_ids) > STOPS:
            raise ValueError(f"a call can have at most {STOPS} stop ids, not {len(sampling.stop_ids)}")
        if sampling.stop_strings and self._text is None:
            raise ValueError("stop strings need an engine that was given a decoder of ids")
        request = _Request(np.asarray(ids, np.int32), sampling, key, parent, Future())
        with self._news:
            if self._error is not None or self._closed:
                raise RuntimeError("the engine has stopped") from self._error
            self._queue.append(request)
            self._tell()
        return request.future

    def release(self, call: Call) -> None:
        with self._news:
            row = self._row_of.pop(id(call), None)
            if row is not None:
                self._rows[row].held = None
            self._tell()

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        copy = jax.block_until_ready(self._copy(jax.device_put(params, self._device)))
        with self._news:
            self._params, self._version = copy, version

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._tell()
        self._thread.join()

    def _tell(self) -> None:
        self._last_news = time.monotonic()
        self._news.notify_all()

    def _warm_up(self) -> None:
        """Compile every program for every span before the first request."""
        for span in self._spans:
            zero = np.zeros(self.rows, np.int32)
            tokens = np.zeros((self.rows, self.config.chunk), np.int32)
            cache = self._prefill(self._params, dataclasses.replace(self._cache, span=span), tokens, zero, zero)
            self._cache, _ = self._decode(self._params, cache, self._knobs())

    def _serve(self) -> None:
        try:
            while True:
                with self._news:
                    while not self._closed and not self._queue and not any(r.request for r in self._rows):
                        self._news.wait()
                    if self._closed:
                        break
                    self._wait_for_company()
                    self._admit(evict=True)
                    params, version = self._params, self._version
                self._run_prefill(params)
                self._run_decode(params, version)
        except BaseException as error:
            self._error = error
        with self._news:
            stopped = RuntimeError("the engine has stopped")
            stopped.__cause__ = self._error
            for request in [*self._queue, *(r.request for r in self._rows if r.request)]:
                if not request.future.done():
                    request.future.set_exception(stopped)

    def _wait_for_company(self) -> None:
        """A burst costs the same for one row as for all: wait while rows think and news keeps coming."""
        while not self._closed:
            self._admit(evict=False)
            if not any(row.held is not None for row in self._rows):
                return
            left = self._last_news + self.config.patience - time.monotonic()
            if left <= 0:
                return
            self._news.wait(left)

    def _admit(self, evict: bool) -> None:
        """Give queued requests a row: their parent's, a free one, or (`evict`) the one that has been thinking longest."""
        waiting: deque[_Request] = deque()
        while self._queue:
            request = self._queue.popleft()
            if not request.future.running() and not request.future.set_running_or_notify_cancel():
                continue  # whoever asked gave up; from here on it cannot
            index = self._row_of.pop(id(request.parent), None)
            if index is not None:
                row, parent = self._rows[index], request.parent
                assert parent is not None and row.held is parent
                cached = row.cached if starts_with(request.ids, parent.ids[: row.cached]) else 0
            else:
                index, cached = self._free_row(evict), 0
            if index is None:
                waiting.append(request)
                continue
            # The last prompt token is fed by the decode program, so it never counts as cached.
            self._rows[index] = _Row(request, None, min(cached, len(request.ids) - 1))
        self._queue = waiting

    def _free_row(self, evict: bool) -> int | None:
        idle = [i for i, row in enumerate(self._rows) if row.request is None]
        free = [i for i in idle if self._rows[i].held is None]
        if free:
            return free[0]
        if not idle or not evict:
            return None
        oldest = min(idle, key=lambda i: self._rows[i].used)
        held = self._rows[oldest].held
        assert held is not None
        del self._row_of[id(held)]  # its next turn will be prefilled anew
        self.counts["evictions"] += 1
        return oldest

    def _span(self, longest: int) -> int:
        return next(span for span in self._spans if span >= min(longest, self._spans[-1]))

    def _run_prefill(self, params: Params) -> None:
        for i, row in enumerate(self._rows):
            if row.request and len(row.request.ids) >= self.config.positions:
                self._finish(i, row, row.request, "context")
        pending = [(i, row, row.request) for i, row in enumerate(self._rows) if row.request and row.cached < len(row.request.ids) - 1]
        while pending:
            tokens = np.zeros((self.rows, self.config.chunk), np.int32)
            start, count = np.zeros(self.rows, np.int32), np.zeros(self.rows, np.int32)
            for i, row, request in pending:
                piece = request.ids[row.cached : min(row.cached + self.config.chunk, len(request.ids) - 1)]
                tokens[i, : len(piece)], start[i], count[i] = piece, row.cached, len(piece)
                row.cached += len(piece)
            span = self._span(int((start + count).max()))
            self._cache = self._prefill(params, dataclasses.replace(self._cache, span=span), tokens, start, count)
            self.counts["prefill_tokens"] += int(count.sum())
            pending = [(i, row, request) for i, row, request in pending if row.cached < len(request.ids) - 1]

    def _knobs(self) -> Knobs:
        n = self.rows
        knobs = Knobs(
            last=np.zeros(n, np.int32), length=np.zeros(n, np.int32), left=np.zeros(n, np.int32), written=np.zeros(n, np.int32),
            key=np.zeros((n, 2), np.uint32), temperature=np.ones(n, np.float32), top_k=np.zeros(n, np.int32),
            top_p=np.ones(n, np.float32), min_p=np.zeros(n, np.float32), stops=np.full((n, STOPS), -1, np.int32),
        )  # fmt: skip
        for i, row in enumerate(self._rows):
            if row.request is None:
                continue
            request, s = row.request, row.request.sampling
            knobs.last[i] = request.tokens[-1] if request.tokens else request.ids[-1]
            knobs.length[i], knobs.written[i] = row.cached, len(request.tokens)
            knobs.left[i] = min(s.budget - len(request.tokens), self.config.positions - row.cached - 1)
            knobs.key[i] = key_data(request.key)
            knobs.temperature[i], knobs.top_k[i], knobs.top_p[i], knobs.min_p[i] = s.temperature, s.top_k, s.top_p, s.min_p
            knobs.stops[i, : len(s.stop_ids)] = s.stop_ids
        return knobs

    def _run_decode(self, params: Params, version: int) -> None:
        knobs = self._knobs()
        if not knobs.left.any():
            return
        longest = int(np.max(np.where(knobs.left > 0, knobs.length + np.minimum(knobs.left, self.config.burst), 0)))
        self._cache, burst = self._decode(params, dataclasses.replace(self._cache, span=self._span(longest)), knobs)
        out: Burst = jax.device_get(burst)
        self.counts["bursts"] += 1
        self.counts["sampled_tokens"] += int(out.written.sum())
        for i, row in enumerate(self._rows):
            if row.request is None:
                continue
            request, n = row.request, int(out.written[i])
            request.tokens += out.tokens[i, :n].tolist()
            request.logp += out.logp[i, :n].tolist()
            request.entropy += out.entropy[i, :n].tolist()
            request.version += [version] * n
            row.cached += n
            reason = self._reason(request, row)
            if reason:
                self._finish(i, row, request, reason)

    def _reason(self, request: _Request, row: _Row) -> FinishReason | None:
        sampling = request.sampling
        if sampling.stop_strings and self._cut_at_stop_string(request, row):
            return "stop"
        if request.tokens and request.tokens[-1] in sampling.stop_ids:
            return "stop"
        if len(request.tokens) >= sampling.budget:
            return "budget"
        return "context" if row.cached + 1 >= self.config.positions else None

    def _cut_at_stop_string(self, request: _Request, row: _Row) -> bool:
        """Drop what follows the first stop string from the record and from the cache."""
        assert self._text is not None

        def hit(n: int) -> bool:
            text = self._text(request.tokens[:n])  # type: ignore[misc]
            return any(stop in text for stop in request.sampling.stop_strings)

        if not hit(len(request.tokens)):
            return False
        keep = next(n for n in range(1, len(request.tokens) + 1) if hit(n))
        row.cached -= len(request.tokens) - keep
        for column in (request.tokens, request.logp, request.entropy, request.version):
            del column[keep:]
        return True

    def _finish(self, index: int, row: _Row, request: _Request, reason: FinishReason) -> None:
        call = Call(
            prompt=request.ids,
            action=np.asarray(request.tokens, np.int32),
            sampler_logp=np.asarray(request.logp, np.float32),
            version=np.asarray(request.version, np.int32),
            sampling=request.sampling,
            finish_reason=reason,
            key=request.key,
            entropy=np.asarray(request.entropy, np.float32),
            parent=request.parent if request.parent is not None and starts_with(request.ids, request.parent.ids) else None,
        )
        with self._news:
            row.request, row.held, row.used = None, call, time.monotonic()
            self._row_of[id(call)] = index
            self._last_news = row.used
        request.future.set_result(call)
