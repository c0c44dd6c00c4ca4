"""`LocalEngine`: samples on this process's devices; keys and values stay in their row from turn to turn."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import jax
import numpy as np
from jax.sharding import Mesh

from agentrl_jax.decoding import Burst
from agentrl_jax.engine import Generation, Image
from agentrl_jax.errors import UserError
from agentrl_jax.keys import key_data
from agentrl_jax.places import Move, Place, Places, Request
from agentrl_jax.policy import Params, Policy
from agentrl_jax.resident import WIDE, Resident
from agentrl_jax.sampling import FEED, STOPS
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.trajectories import Call, FinishReason, Key, Sampling


@dataclass
class EngineConfig:
    rows: int = 64  # calls at once
    parked: int = 0  # more episodes whose cache is kept while their environments think
    positions: int = 256  # longest prompt + action
    chunk: int = 16  # prompt tokens a row per prefill program
    burst: int = 8  # tokens a row after which a decode program ends as soon as some call has
    longest: int = 32  # tokens a row after which it ends anyway
    # Attention reads positions / 2^(spans-1), ..., positions / 2 or all positions, as the longest live row needs. More than one
    # span is faster for long contexts, but then what else is in the batch can change the last bits of a log-prob.
    spans: int = 1
    patience: float = 0.02  # seconds that it waits at most for one more request before it runs a program
    alternatives: int = 0  # how many of the likeliest tokens are recorded with every token
    images: bool = False  # whether prompts may hold images
    finish_first: bool = False  # new weights wait until the calls at work have ended
    mesh: MeshConfig = field(default_factory=lambda: MeshConfig(data=1))  # `data` splits rows; `tensor` and `expert` weights
    first_device: int = 0  # of this process's
    engines: int = 1  # that work as one, each with all of the above on devices of its own; their weights are swapped one by one

    def devices(self) -> Mesh:
        """The engine's mesh. Raises UserError where this process has too few devices."""
        m, local = self.mesh, jax.local_devices()[self.first_device :]
        if m.fsdp != 1:
            raise UserError("an engine splits its weights over tensor and expert; over fsdp they would be gathered for every token")
        if m.each or m.memory_gb or set(m.over_network()) != {1}:
            raise UserError("an engine's devices are of one process: of its mesh only data, expert and tensor may be set")
        sizes = (m.data, m.expert, m.tensor)
        wanted = len(local) if -1 in sizes else int(np.prod(sizes))
        if wanted > len(local):
            raise UserError(f"the engine's {m} needs {wanted} devices; from first_device={self.first_device} on there are {len(local)}")
        return make_mesh(m, local[:wanted])


def check(config: EngineConfig, parts: int) -> None:
    """Raise UserError where the numbers do not fit each other; `parts` is the size of the mesh's data axis."""
    c = config
    if min(c.rows, c.chunk, c.burst, c.spans) < 1 or min(c.parked, c.alternatives) < 0 or c.positions < 2 ** (c.spans - 1):
        raise UserError(f"an engine needs rows, chunk, burst, spans >= 1 and positions >= 2^(spans-1): {c}")
    if c.engines != 1:
        raise UserError(f"config.engine.engines must be at least 1, not {c.engines}")
    if c.longest < c.burst:
        raise UserError(f"an engine's longest decode program cannot be shorter than its burst: {c.longest} < {c.burst}")
    if c.rows % parts or c.parked % parts:
        raise UserError(f"an engine's rows ({c.rows}) and parked places ({c.parked}) must be multiples of its {parts} data devices")


class LocalEngine:
    """Implements `Engine`. A thread of its own is the only one that runs its programs."""

    def __init__(
        self, policy: Policy, config: EngineConfig, params: Params, version: int = 0, text: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        """`text` decodes ids; only stop strings need it."""
        self.config, self._text, c = config, text, config
        mesh = config.devices()
        parts = mesh.shape["data"]
        check(config, parts)
        parked = c.parked + parts if c.parked else 0  # one more each, through which a row and a parked one change places
        self._resident = Resident(policy, mesh, c.rows, parked, c.positions, c.chunk, c.longest, c.alternatives, c.images)
        self._places = Places(parts, c.rows // parts, parked // parts)
        self._spans = [c.positions // 2**i for i in reversed(range(c.spans))]
        self._counts = {"prefill_tokens": 0, "fed_tokens": 0, "sampled_tokens": 0, "prefills": 0, "bursts": 0}
        self.busy: float = 0.0  # seconds that its programs ran
        self._queue: deque[Request] = deque()
        self._moves: list[Move] = []
        self._news = threading.Condition()
        self._last_news, self._last_run = 0.0, 0.0
        self._gap = 0.0  # seconds between two requests, a moving average
        self._closed = False
        self._error: BaseException | None = None
        self._next: tuple[Params, int, bool] | None = None
        self._params, self._version = self._resident.placed(params), version
        self._resident.warm_up(self._params, self._spans)
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    @property
    def places(self) -> int:
        return self.config.rows + self.config.parked

    @property
    def version(self) -> int:
        """Of the weights that it samples with."""
        return self._version

    @property
    def counts(self) -> dict[str, int]:
        """Tokens, programs and copies since the start."""
        return {**self._counts, **self._places.counts}

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`. Raises ValueError on an empty prompt, too many stop ids, or images that do not fit."""
        if len(ids) == 0:
            raise ValueError("a prompt needs at least one token")
        if len(sampling.stop_ids) > STOPS:
            raise ValueError(f"a call can have at most {STOPS} stop ids, not {len(sampling.stop_ids)}")
        if sampling.stop_strings and self._text is None:
            raise ValueError("stop strings need an engine that was given a decoder of ids")
        width = self._resident.width
        if images and not width:
            raise ValueError("this engine was made for prompts without images: set images=True in its config")
        for image in images:
            if image.embeddings.shape[1:] != (width,) or image.start < 0 or image.start + len(image.embeddings) >= len(ids):
                where = f"{image.embeddings.shape} at {image.start}"
                raise ValueError(f"an image is [n, {width}] and ends before the prompt's last token, not {where}")
        request = Request(np.asarray(ids, np.int32), sampling, key, key_data(key), parent, tuple(images), Generation())
        with self._news:
            if self._error is not None or self._closed:
                raise RuntimeError("the engine has stopped") from self._error
            self._queue.append(request)
            self._gap += (min(time.monotonic() - self._last_news, self._last_run) - self._gap) / 8
            self._tell()
        return request.future

    def release(self, call: Call) -> None:
        with self._news:
            self._places.release(call)
            self._tell()

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        copy = self._resident.placed(params)
        with self._news:
            self._next = copy, version, recompute or (self._next is not None and self._next[2])
            self._tell()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._tell()
        self._thread.join()

    def _tell(self) -> None:
        self._last_news = time.monotonic()
        self._news.notify_all()

    def _serve(self) -> None:
        try:
            while True:
                with self._news:
                    while not (self._closed or self._queue or self._next or any(self._places.working)):
                        self._news.wait()
                    if self._closed:
                        break
                    self._wait_for_company()
                    self._admit(evict=True)
                    params, version = self._params, self._version
                began = time.monotonic()
                self._run(params, version)
                self._last_run = time.monotonic() - began
                self.busy += self._last_run
        except BaseException as error:
            self._error = error
        with self._news:
            stopped = RuntimeError("the engine has stopped")
            stopped.__cause__ = self._error
            for request in [*self._queue, *(request for _, _, request in self._places.working)]:
                if not request.future.done():
                    request.future.set_exception(stopped)

    def _wait_for_company(self) -> None:
        """Wait for more requests while that pays: a program takes as long for one row as for all.

        With k rows ready, a program of C seconds and a request every g seconds, one more request makes the program worth (k + 1) / k
        and costs (C + g) / C: so wait while k < C / g, until nothing came for 2 g. A sixteenth of C is waited anyhow: calls come
        together, where a batch begins and where a burst has ended many, but not evenly.
        """
        while not self._closed:
            self._admit(evict=False)
            ready, rows = sum(1 for _ in self._places.working), len(self._places.rows)
            if ready * self._gap >= self._last_run or ready == rows:
                return
            if ready + len(self._queue) >= rows and self._gap > self._last_run / 16:  # others take the places of those that think
                return
            grace = max(2 * self._gap if self._places.thinking else 0.0, self._last_run / 16)
            left = self._last_news + min(grace, self.config.patience) - time.monotonic()
            if left <= 0:
                return
            self._news.wait(left)

    def _admit(self, evict: bool) -> None:
        """Take up new weights, then give queued requests a row: their parent's, a free one, or that of one which thinks."""
        if self._next is not None:
            if self.config.finish_first and any(self._places.working):
                return
            self._params, self._version, recompute = self._next
            self._next = None
            self._places.renew(recompute)
        waiting: list[Request] = []
        for request in self._queue:
            if not request.future.running() and not request.future.set_running_or_notify_cancel():
                continue  # whoever asked gave up; from here on it cannot
            if not self._places.stay(request):  # those first: others may want the rows that think
                waiting.append(request)
        self._queue.clear()
        for request in waiting:
            moves = self._places.admit(request, evict)
            if moves is None:
                self._queue.append(request)
            else:
                self._moves += moves

    def _run(self, params: Params, version: int) -> None:
        """What was admitted is copied and prefilled; then every row at work decodes a burst."""
        for row in self._places.rows:
            if row.request is not None:
                self._begin(row, row.request, version)
        moves, self._moves = self._moves, []
        self._resident.move([move for move in moves if not move.late])
        self._prefill(params)
        self._resident.move([move for move in moves if move.late])
        self._decode(params, version)

    def _begin(self, row: Place, request: Request, version: int) -> None:
        """What a call that was not worked on yet is given: its forced tokens, or its end where its prompt fills the context."""
        forced = request.sampling.forced[: request.sampling.budget]
        if not request.tokens and forced:
            n = len(forced)
            request.tokens, request.version = list(forced), [version] * n
            request.logp, request.entropy = [0.0] * n, [0.0] * n
            k = self.config.alternatives
            request.alternatives, request.alternative_logp = [np.full(k, -1)] * n, [np.zeros(k, np.float32)] * n
        if request.length >= self.config.positions:
            request.cut(max(0, self.config.positions - len(request.ids)))
            self._finish(row, request, "context")
        elif forced and len(request.tokens) == len(forced) and (reason := self._reason(request, row)):
            self._finish(row, request, reason)

    def _span(self, longest: int) -> int:
        return next(span for span in self._spans if span >= min(longest, self._spans[-1]))

    def _prefill(self, params: Params) -> None:
        """All but the last token of every prompt; what is left to the decode program when it is little.

        Which program works on a row follows from that row alone: others in its place could change its last bits.
        """
        pending = [(i, row, request) for i, row, request in self._places.working if request.length - 1 - row.cached > FEED]
        narrow = WIDE // 2 * self.config.chunk
        self._prefill_by(params, [x for x in pending if x[2].length - 1 - x[1].cached <= narrow], self.config.chunk, False)
        self._prefill_by(params, [x for x in pending if x[2].length - 1 - x[1].cached > narrow], WIDE * self.config.chunk, True)

    def _prefill_by(self, params: Params, pending: list[tuple[int, Place, Request]], chunk: int, wide: bool) -> None:
        while pending:
            now = pending
            if wide:  # the program has room for some rows of each part
                room = self._resident.wide_rows
                parts = [[x for x in pending if x[1].part == part][:room] for part in range(self._resident.parts)]
                now = [x for part in parts for x in part]
            span = self._span(max(min(row.cached + chunk, request.length - 1) for _, row, request in now))
            pieces = [(i, row.cached, request) for i, row, request in now]
            self._counts["prefill_tokens"] += self._resident.prefill(params, span, pieces, wide)
            self._counts["prefills"] += 1
            for _, row, request in now:
                row.cached = min(row.cached + chunk, request.length - 1)
            pending = [(i, row, request) for i, row, request in pending if row.cached < request.length - 1]

    def _decode(self, params: Params, version: int) -> None:
        board, longest, most = self._resident.board, 0, self.config.longest
        board.ints[:] = 0
        for i, row, request in self._places.working:
            s, n = request.sampling, request.length
            left = min(s.budget - len(request.tokens), self.config.positions - n)
            board.write(
                i, request.piece(row.cached, n), row.cached, left, len(request.tokens), s.top_k, request.key_data, s.stop_ids,
                (s.temperature, s.top_p, s.min_p),
            )  # fmt: skip
            most = self.config.burst if s.stop_strings else most
            longest = max(longest, n + min(left, self.config.longest))
        if not board.ints.any():
            return
        burst = self._resident.decode(params, self._span(longest), self.config.burst, most)
        self._counts["bursts"] += 1
        self._counts["sampled_tokens"] += int(burst.written.sum())
        self._counts["fed_tokens"] += int(burst.fed.sum())
        for i, row, request in list(self._places.working):
            self._take(burst, i, row, request, version)
            reason = self._reason(request, row) if burst.written[i] else None
            if reason:
                self._finish(row, request, reason)
            elif request.future.unwanted:
                with self._news:
                    self._places.abandon(row)
                request.future.set_exception(RuntimeError("the call was given up: nobody waited for it any more"))
            elif request.future.heard:
                request.future.heard(list(request.tokens))

    def _take(self, burst: Burst, i: int, row: Place, request: Request, version: int) -> None:
        """What a burst wrote in row `i`."""
        fed, n = int(burst.fed[i]), int(burst.written[i])
        span = slice(fed, fed + n)
        request.tokens += burst.tokens[i, span].tolist()
        request.logp += burst.logp[i, span].tolist()
        request.entropy += burst.entropy[i, span].tolist()
        request.version += [version] * n
        if self.config.alternatives:
            request.alternatives += list(burst.alternatives[i, span])
            request.alternative_logp += list(burst.alternative_logp[i, span])
        row.cached += fed + n

    def _reason(self, request: Request, row: Place) -> FinishReason | None:
        sampling = request.sampling
        if sampling.stop_strings and self._cut_at_stop_string(request, row):
            return "stop"
        if request.tokens and request.tokens[-1] in sampling.stop_ids:
            return "stop"
        if len(request.tokens) >= sampling.budget:
            return "budget"
        return "context" if request.length >= self.config.positions else None

    def _cut_at_stop_string(self, request: Request, row: Place) -> bool:
        """Drop what follows the first stop string from the record and from the cache."""
        assert self._text is not None

        def hit(n: int) -> bool:
            text = self._text(request.tokens[:n])  # type: ignore[misc]
            return any(stop in text for stop in request.sampling.stop_strings)

        if not hit(len(request.tokens)):
            return False
        request.cut(next(n for n in range(1, len(request.tokens) + 1) if hit(n)))
        row.cached = min(row.cached, request.length - 1)
        return True

    def _finish(self, row: Place, request: Request, reason: FinishReason) -> None:
        call = request.call(reason)
        with self._news:
            self._places.finish(row, call)
            self._last_news = row.used
        request.future.set_result(call)
