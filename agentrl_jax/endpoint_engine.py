"""`EndpointEngine`: samples from a server that takes and gives token ids over OpenAI's completions (docs/endpoint.md)."""

import asyncio
import bisect
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import numpy as np

from agentrl_jax.engine import Image
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, FinishReason, Key, Sampling, starts_with

# vLLM: "maximum context length is ..."; SGLang: "longer than the model's context length"; llama.cpp: "available context size".
FULL = re.compile(r"context[ _](length|size|window)", re.IGNORECASE)


@dataclass
class EndpointConfig:
    url: str  # requests go to {url}/completions: "http://127.0.0.1:8000/v1"
    model: str  # as the server names it
    positions: int  # longest prompt + action: vLLM's --max-model-len
    # Of which distribution the server's log-probs are: "processed", the one sampled from (vLLM --logprobs-mode processed_logprobs);
    # "tempered", before top-k, top-p and min-p (SGLang); "raw", before the temperature too (vLLM's default). Sampling for which
    # they would be wrong is refused. "none": they are not asked for, and recorded as NaN (a judge, a simulated user).
    logprobs: Literal["processed", "tempered", "raw", "none"] = "raw"
    api_key_variable: str = ""  # the environment variable that holds the key; empty: no key
    places: int = 64  # requests at once
    timeout: float = 300.0  # seconds for a call, its retries included
    retries: int = 4  # after a lost connection, an answer 429 or 5xx, or one that breaks off
    backoff: float = 0.5  # seconds before the first retry; doubled for each more


class _Hiccup(Exception):
    """What another try may mend."""


@dataclass(frozen=True, eq=False)
class _Request:
    ids: np.ndarray
    sampling: Sampling
    key: Key
    parent: Call | None


class EndpointEngine:
    """Implements `Engine`. A thread of its own holds the connections."""

    def __init__(
        self,
        config: EndpointConfig,
        text: Callable[[Sequence[int]], str] | None = None,
        publisher: Callable[[Params, int], None] | None = None,
        version: int = 0,
    ) -> None:
        """`text` decodes ids; only stop strings need it. `publisher` brings new weights to the server; it returns when they serve.

        A call is tagged with the version that was newest when it was sent: a publisher should pause the server, or drain it.
        """
        _check(config)
        key = os.environ.get(config.api_key_variable, "") if config.api_key_variable else ""
        if config.api_key_variable and not key:
            raise UserError(f"the environment variable {config.api_key_variable} should hold the API key of {config.url}: set it")
        self.config = config
        self._text, self._publisher, self._version = text, publisher, version
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else None,
            timeout=None,  # each call has one deadline for all that it does
            limits=httpx2.Limits(max_connections=config.places, max_keepalive_connections=config.places),
        )
        self._free = asyncio.Semaphore(config.places)
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    @property
    def places(self) -> int:
        return self.config.places

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`. Raises UserError where the server could not sample so, or not say with which log-probs.

        The future raises EnvironmentFailure where the server failed, DeadlineExceeded where it was silent for too long.
        """
        if len(ids) == 0:
            raise ValueError("a prompt needs at least one token")
        if images:
            raise UserError("images do not go to an endpoint yet: use a local engine for a vision model")
        if sampling.stop_strings and self._text is None:
            raise ValueError("stop strings need an engine that was given a decoder of ids")
        self._check_sampling(sampling)
        request = _Request(np.asarray(ids, np.int32), sampling, key, parent)
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine has stopped")
            return asyncio.run_coroutine_threadsafe(self._serve(request), self._loop)

    def release(self, call: Call) -> None: ...

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """See `Engine.publish`. Raises UserError without a publisher."""
        if self._publisher is None:
            raise UserError(f"the weights behind {self.config.url} cannot be changed from here: give the engine a publisher")
        if recompute:
            raise UserError(f"what {self.config.url} caches cannot be made anew from here: let the publisher reset the server's cache")
        self._publisher(params, version)
        self._version = version

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._client.aclose()

    def _check_sampling(self, s: Sampling) -> None:
        if 0 < s.temperature < 0.01:
            raise UserError(f"vLLM takes a temperature of {s.temperature} for 0.01 without saying so: use 0, or 0.01 and more")
        filtered = s.top_k > 0 or s.top_p < 1 or s.min_p > 0
        known = {"processed": True, "tempered": not filtered, "raw": not filtered and s.temperature == 1, "none": True}
        if s.temperature > 0 and not known[self.config.logprobs]:
            raise UserError(
                f"{self.config.logprobs} log-probs are not of the distribution that {s} samples from: run vLLM with"
                ' --logprobs-mode processed_logprobs and set logprobs to "processed", or to "none" if nobody needs them'
            )

    async def _serve(self, request: _Request) -> Call:
        try:
            # The place is waited for without a deadline of its own: those who have one keep theirs.
            async with self._free, asyncio.timeout(self.config.timeout):
                return await self._call(request)
        except TimeoutError:
            raise DeadlineExceeded(f"{self.config.url} did not finish a call within {self.config.timeout} seconds") from None
        except asyncio.CancelledError:
            if self._closed:
                raise RuntimeError("the engine has stopped") from None
            raise

    async def _call(self, request: _Request) -> Call:
        version = self._version
        tokens, logp = list(request.sampling.forced), [0.0] * len(request.sampling.forced)
        end = self._end(request, tokens)
        if end is None:
            choice = await self._choice(self._body(request))
            if choice is None:
                end = 0, "context"
            else:
                sampled, sampled_logp = self._read(choice, request)
                tokens, logp = tokens + sampled, logp + sampled_logp
                end = self._end(request, tokens)
                if end is None and choice["finish_reason"] != "length":
                    raise UserError(f"{self.config.url} ended a call after token {tokens[-1:]}: if that is a stop id, name it among them")
                end = end or (len(tokens), "context")  # the server's context is smaller than `positions`
        length, reason = end
        parent = request.parent if request.parent is not None and starts_with(request.ids, request.parent.ids) else None
        return Call(
            prompt=request.ids,
            action=np.asarray(tokens[:length], np.int32),
            sampler_logp=np.asarray(logp[:length], np.float32),
            version=np.full(length, version, np.int32),
            sampling=request.sampling,
            finish_reason=reason,
            key=request.key,
            parent=parent,
        )

    def _room(self, request: _Request) -> int:
        return max(0, min(request.sampling.budget, self.config.positions - len(request.ids)))

    def _end(self, request: _Request, tokens: Sequence[int]) -> tuple[int, FinishReason] | None:
        """How many of these tokens are the action, and why it ends there; None where it goes on.

        The ids decide, not the server: it may have written on behind a stop string, and stop for reasons of its own.
        """
        sampling, room = request.sampling, self._room(request)
        tokens = tokens[:room]
        first = min(len(tokens), len(sampling.forced))  # of forced tokens only the last may be a stop: those before it were meant so
        ends = [n for n, token in enumerate(tokens, 1) if n >= first and token in sampling.stop_ids][:1]

        def hit(n: int) -> bool:
            text = self._text(tokens[:n])  # type: ignore[misc]
            return any(stop in text for stop in sampling.stop_strings)

        if sampling.stop_strings and hit(len(tokens)):
            ends.append(bisect.bisect_left(range(len(tokens)), True, key=hit))
        if ends:
            return min(ends), "stop"
        if len(tokens) == room:
            return room, "budget" if room == sampling.budget else "context"
        return None

    def _body(self, request: _Request) -> dict[str, Any]:
        """The fields are vLLM's; what is left out would be filled in from the model's generation_config.json."""
        s = request.sampling
        return {
            "model": self.config.model,
            "prompt": [*request.ids.tolist(), *s.forced],
            "max_tokens": self._room(request) - len(s.forced),
            "temperature": s.temperature,
            "top_k": s.top_k or -1,
            "top_p": s.top_p,
            "min_p": s.min_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": seed_of(*request.key),
            "stop": list(s.stop_strings),
            "stop_token_ids": list(s.stop_ids),
            "ignore_eos": True,  # where it ends a call it is among the stop ids
            "add_special_tokens": False,
            "skip_special_tokens": False,  # or a stop string of special tokens would never be seen
            "return_token_ids": True,
            "logprobs": None if self.config.logprobs == "none" else 0,  # of the sampled token alone
        }

    async def _choice(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The server's one choice, after retries; None where the prompt does not fit its context."""
        delay = self.config.backoff
        for tried in range(1, self.config.retries + 2):
            try:
                return await self._try(body)
            except (_Hiccup, httpx2.RequestError) as error:
                problem = str(error) or type(error).__name__
            if tried <= self.config.retries:
                await asyncio.sleep(delay)
                delay *= 2
        raise EnvironmentFailure(f"{self.config.url} failed {tried} times, at last: {problem}")

    async def _try(self, body: dict[str, Any]) -> dict[str, Any] | None:
        reply = await self._client.post(f"{self.config.url}/completions", json=body)
        status = reply.status_code
        if status == 429 or status >= 500:
            raise _Hiccup(f"it answered {status}: {reply.text[:300]}")
        if status in (400, 413) and FULL.search(reply.text):
            return None
        if status != 200:
            raise UserError(f"{self.config.url} refuses a request with {status}: {reply.text[:300]}")
        try:
            (choice,) = reply.json()["choices"]
            reason = choice["finish_reason"]
        except (ValueError, KeyError, TypeError):
            raise _Hiccup(f"its answer is no completion: {reply.text[:300]}") from None
        if reason not in ("stop", "length"):
            raise _Hiccup(f"it broke a call off ({reason})")
        return choice

    def _read(self, choice: dict[str, Any], request: _Request) -> tuple[list[int], list[float]]:
        """The sampled ids and their log-probs. Raises UserError where the server does not tell them."""
        url, tokens = self.config.url, _numbers(choice.get("token_ids"), int)
        if tokens is None:
            raise UserError(
                f"{url} sends no token ids back, and text cannot stand for them: it must know return_token_ids (vLLM >= 0.10.2)"
            )
        prompt = choice.get("prompt_token_ids")
        if prompt is not None and prompt != [*request.ids.tolist(), *request.sampling.forced]:
            raise UserError(f"{url} changed a prompt before it went on from it: let it neither truncate nor add special tokens")
        if request.sampling.temperature == 0:
            return tokens, [0.0] * len(tokens)  # servers tell the log-prob of another distribution, greedy has but one outcome
        if self.config.logprobs == "none":
            return tokens, [float("nan")] * len(tokens)
        logp = _numbers((choice.get("logprobs") or {}).get("token_logprobs"), (int, float))
        if logp is None:
            raise UserError(f'{url} sends no log-probs back: set logprobs to "none" if nobody needs them')
        if len(logp) != len(tokens):
            raise UserError(f"{url} sent {len(logp)} log-probs for {len(tokens)} tokens: it is no server to train with")
        return tokens, logp


def _numbers(values: Any, kind: Any) -> list[Any] | None:
    """The values, if they are a list of such numbers."""
    return values if isinstance(values, list) and all(isinstance(value, kind) for value in values) else None


def _check(config: EndpointConfig) -> None:
    if not config.url.startswith(("http://", "https://")) or config.url.endswith("/"):
        raise UserError(f'an endpoint\'s url starts with http and goes up to /v1, as in "http://127.0.0.1:8000/v1": {config.url!r}')
    if config.logprobs not in ("processed", "tempered", "raw", "none"):
        raise UserError(f"logprobs of an endpoint are processed, tempered, raw or none: {config.logprobs!r}")
    if min(config.places, config.positions) < 1 or config.timeout <= 0 or config.retries < 0 or config.backoff < 0:
        raise UserError(f"an endpoint needs places, positions >= 1, timeout > 0 and retries, backoff >= 0: {config}")
