"""`RemoteEngine`: samples from a server through OpenAI's completions (docs/endpoint.md)."""

import asyncio
import bisect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.clock import epoch_seconds
from agentrl_jax.engine import PromptImage
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.inference.completions_client import CompletionsClient
from agentrl_jax.inference.remote_config import RemoteEngineConfig, validate_remote_config
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, CallTime, FinishReason, RandomKey, Sampling, starts_with

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _Request:
    """A call that the server is to sample."""

    ids: np.ndarray
    sampling: Sampling
    key: RandomKey
    parent: Call | None
    submitted: float = field(default_factory=epoch_seconds)


class RemoteEngine:
    """An `Engine` whose calls a server samples; its own thread holds the connections."""

    def __init__(
        self,
        config: RemoteEngineConfig,
        detokenize: Callable[[Sequence[int]], str] | None = None,
        publisher: Callable[[Params, int], None] | None = None,
        version: int = 0,
        checksum: CallChecksum = no_checksum,
    ) -> None:
        """Start the engine's thread; the server is first contacted by a call.

        A call is tagged with the version that was newest when it was sent: a publisher should pause
        or drain the server.

        Args:
            config: the server and its limits.
            detokenize: decodes token ids; only stop strings need it.
            publisher: transfers weights to the server and returns when they are in use.
            version: tags the tokens sampled before the first `publish`.
            checksum: of what it records of a call (`Invariants.call_checksum`).

        Raises:
            UserError: a field of the config is wrong, or the API key is missing.
        """
        validate_remote_config(config)
        self._client = CompletionsClient(config)
        self.config = config
        self._detokenize, self._publisher, self._version = detokenize, publisher, version
        self._checksum = checksum
        self._semaphore = asyncio.Semaphore(config.max_concurrent_requests)
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    @property
    def num_slots(self) -> int:
        """`max_concurrent_requests`: which caches a server keeps is not known here."""
        return self.config.max_concurrent_requests

    @property
    def positions(self) -> int:
        return self.config.positions

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """See `Engine.submit`.

        The future raises EnvironmentFailure if the server failed, and DeadlineExceeded if it did
        not finish in time.

        Raises:
            UserError: the server cannot sample so, or its log-probs would be wrong.
            ValueError: an empty prompt, or stop strings without `detokenize`.
        """
        if len(ids) == 0:
            raise ValueError("a prompt needs at least one token")
        if images:
            raise UserError(
                "images do not go to an endpoint yet: use a local engine for a vision model"
            )
        if sampling.stop_strings and self._detokenize is None:
            raise ValueError("stop strings need an engine that was given a decoder of ids")
        self._check_sampling(sampling)
        request = _Request(np.asarray(ids, np.int32), sampling, key, parent)
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine has stopped")
            return asyncio.run_coroutine_threadsafe(
                self._with_timeout(lambda: self._sample_call(request)), self._loop
            )

    def submit_score(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        """See `Scorer.submit`; the future raises as that of `submit`, and UserError where the
        server returns no log-probs of prompts.
        """
        ids = np.asarray(tokens, np.int32).tolist()
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine has stopped")
            return asyncio.run_coroutine_threadsafe(
                self._with_timeout(lambda: self._score(ids, np.asarray(is_scored, bool))),
                self._loop,
            )

    async def _score(self, ids: list[int], is_scored: np.ndarray) -> float:
        logp = np.asarray(await self._client.prompt_logp(ids))
        return float(logp[is_scored[1:]].sum())

    def release(self, call: Call) -> None:
        """See `Engine.release`; the server manages its own cache."""

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """See `Engine.publish`.

        Raises:
            UserError: there is no publisher, or `recompute` is asked for.
        """
        if self._publisher is None:
            raise UserError(
                f"the weights behind {self.config.url} cannot be changed from here: give the "
                "engine a publisher"
            )
        if recompute:
            raise UserError(
                f"the KV caches of {self.config.url} cannot be recomputed from here: let the "
                "publisher reset the server's cache"
            )
        self._publisher(params, version)
        self._version = version

    def close(self) -> None:
        """Cancel all calls and close the connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def _check_sampling(self, sampling: Sampling) -> None:
        """Raise UserError where the server would sample otherwise, or its log-probs be wrong."""
        if 0 < sampling.temperature < 0.01:
            raise UserError(
                f"vLLM silently replaces a temperature of {sampling.temperature} by 0.01: use 0 or "
                "at least 0.01"
            )
        filtered = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
        are_right = {
            "processed": True,
            "tempered": not filtered,
            "raw": not filtered and sampling.temperature == 1,
            "none": True,
        }
        if sampling.temperature > 0 and not are_right[self.config.logprobs]:
            raise UserError(
                f"{self.config.logprobs} log-probs are not of the distribution that {sampling} "
                "samples from: run vLLM with --logprobs-mode processed_logprobs and set logprobs "
                'to "processed", or to "none" if they are not needed'
            )

    async def _with_timeout(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            # The timeout does not include the wait for a free connection.
            async with self._semaphore, asyncio.timeout(self.config.timeout):
                return await request()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self.config.url} did not finish a call within {self.config.timeout} seconds"
            ) from None
        except asyncio.CancelledError:
            if self._closed:
                raise RuntimeError("the engine has stopped") from None
            raise

    async def _sample_call(self, request: _Request) -> Call:
        version, sent = self._version, epoch_seconds()
        tokens, logp = list(request.sampling.forced), [0.0] * len(request.sampling.forced)
        end = self._action_end(request, tokens)
        if end is None:
            completion = await self._client.complete(
                [*request.ids.tolist(), *tokens],
                request.sampling,
                request.key,
                self._max_action_tokens(request) - len(tokens),
            )
            if completion is None:
                end = 0, "context"
            else:
                tokens, logp = tokens + completion.tokens, logp + completion.logp
                end = self._action_end(request, tokens)
                if end is None and completion.finish_reason != "length":
                    raise UserError(
                        f"{self.config.url} ended a call after token {tokens[-1:]}: if that is a "
                        "stop id, add it to the stop ids"
                    )
                if end is None:  # the server's context is smaller than `positions`
                    end = len(tokens), "context"
        length, reason = end
        parent = request.parent
        if parent is not None and not starts_with(request.ids, parent.ids):
            parent = None
        action, versions = np.asarray(tokens[:length], np.int32), np.full(length, version, np.int32)
        recorded = request.ids, action, np.asarray(logp[:length], np.float32), versions
        return Call(
            *recorded,
            sampling=request.sampling,
            finish_reason=reason,
            key=request.key,
            parent=parent,
            time=CallTime(request.submitted, sent, sent, epoch_seconds()),
            checksum=self._checksum(*recorded, request.sampling.temperature),
        )

    def _max_action_tokens(self, request: _Request) -> int:
        return max(0, min(request.sampling.budget, self.config.positions - len(request.ids)))

    def _action_end(
        self, request: _Request, tokens: Sequence[int]
    ) -> tuple[int, FinishReason] | None:
        """How many of these tokens are the action, and why it ends there; None if it does not end.

        The ids decide, not the server, which may continue after a stop string, and stop for other
        reasons.
        """
        sampling, max_tokens = request.sampling, self._max_action_tokens(request)
        tokens = tokens[:max_tokens]
        # Of the forced tokens only the last may be a stop; stop ids before it are intended.
        first = min(len(tokens), len(sampling.forced))
        ends = [
            n for n, token in enumerate(tokens, 1) if n >= first and token in sampling.stop_ids
        ][:1]

        def has_stop_string(n: int) -> bool:
            text = self._detokenize(tokens[:n])  # type: ignore[misc]
            return any(stop in text for stop in sampling.stop_strings)

        if sampling.stop_strings and has_stop_string(len(tokens)):
            ends.append(bisect.bisect_left(range(len(tokens)), True, key=has_stop_string))
        if ends:
            return min(ends), "stop"
        if len(tokens) == max_tokens:
            return max_tokens, "budget" if max_tokens == sampling.budget else "context"
        return None


@dataclass(frozen=True)
class RemoteScorer:
    """A `Scorer` by the server of an engine, which is closed by itself."""

    engine: RemoteEngine

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        """See `RemoteEngine.submit_score`."""
        return self.engine.submit_score(tokens, is_scored)

    def close(self) -> None: ...
