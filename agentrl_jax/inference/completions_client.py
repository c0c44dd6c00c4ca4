"""`CompletionsClient`: requests to a server with OpenAI's completions of token ids."""

import asyncio
import os
import re
from typing import Any, Literal, NamedTuple

import httpx2

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.inference.remote_config import RemoteEngineConfig
from agentrl_jax.keys import seed_of
from agentrl_jax.trajectories import RandomKey, Sampling

# vLLM: "maximum context length is ..."; SGLang: "longer than the model's context length";
# llama.cpp: "available context size".
CONTEXT_OVERFLOW_PATTERN = re.compile(r"context[ _](length|size|window)", re.IGNORECASE)


class _TransientError(Exception):
    """An error that a retry may resolve."""


class Completion(NamedTuple):
    """The tokens that a server sampled for one prompt."""

    tokens: list[int]
    logp: list[float]
    finish_reason: Literal["stop", "length"]  # the server's


class CompletionsClient:
    """The connections to one server; only one event loop may use them."""

    def __init__(self, config: RemoteEngineConfig) -> None:
        """The server is first contacted by a request.

        Raises:
            UserError: the API key is missing.
        """
        key = os.environ.get(config.api_key_variable, "") if config.api_key_variable else ""
        if config.api_key_variable and not key:
            raise UserError(
                f"the environment variable {config.api_key_variable} should hold the API key of "
                f"{config.url}: set it"
            )
        self._config = config
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else None,
            timeout=None,  # each call has one deadline, for all of its requests
            limits=httpx2.Limits(
                max_connections=config.max_concurrent_requests,
                max_keepalive_connections=config.max_concurrent_requests,
            ),
        )

    async def complete(
        self, prompt: list[int], sampling: Sampling, key: RandomKey, max_tokens: int
    ) -> Completion | None:
        """The server's continuation of a prompt; None if the prompt does not fit its context.

        Raises:
            EnvironmentFailure: the server failed at every attempt.
            UserError: it refuses the request, or its response lacks something.
        """
        body = self._request_body(prompt, sampling, key, max_tokens)
        choice = await self._request_choice(body)
        return None if choice is None else self._parse_choice(choice, prompt, sampling)

    async def prompt_logp(self, prompt: list[int]) -> list[float]:
        """log P(token | tokens before it) of each token of a prompt but the first, by the field
        `prompt_logprobs` of vLLM; one token is sampled and ignored.

        Raises:
            EnvironmentFailure: the server failed at every attempt.
            UserError: it refuses the request, its response lacks the log-probs, or the prompt does
                not fit its context.
        """
        body = self._request_body(prompt, Sampling(), (), max_tokens=1)
        choice = await self._request_choice({**body, "prompt_logprobs": 1})
        entries = None if choice is None else choice.get("prompt_logprobs")
        if not isinstance(entries, list) or len(entries) != len(prompt):
            raise UserError(
                f"{self._config.url} returns no prompt_logprobs for {len(prompt)} tokens: score "
                "with vLLM, and with texts that fit its context"
            )
        try:
            return [
                float(entry[str(token)]["logprob"]) for token, entry in zip(prompt[1:], entries[1:])
            ]
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{self._config.url} returns prompt_logprobs without the prompt's own tokens: "
                "score with vLLM"
            ) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _request_body(
        self, prompt: list[int], sampling: Sampling, key: RandomKey, max_tokens: int
    ) -> dict[str, Any]:
        """The request, with vLLM's fields.

        The server would fill in missing fields from the model's generation_config.json.
        """
        logprobs = None if self._config.logprobs == "none" else 0
        return {
            "model": self._config.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or -1,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": seed_of(*key),
            "stop": list(sampling.stop_strings),
            "stop_token_ids": list(sampling.stop_ids),
            "ignore_eos": True,  # if it ends a call, it is one of the stop ids
            "add_special_tokens": False,
            "skip_special_tokens": False,  # or stop strings of special tokens would never match
            "return_token_ids": True,
            "logprobs": logprobs,  # 0: of the sampled token alone
        }

    async def _request_choice(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The server's one choice, after retries; None if the prompt does not fit its context."""
        delay = self._config.backoff
        for attempt in range(1, self._config.retries + 2):
            try:
                return await self._post_request(body)
            except (_TransientError, httpx2.RequestError) as error:
                problem = str(error) or type(error).__name__
            if attempt <= self._config.retries:
                await asyncio.sleep(delay)
                delay *= 2
        raise EnvironmentFailure(f"{self._config.url} failed {attempt} times, at last: {problem}")

    async def _post_request(self, body: dict[str, Any]) -> dict[str, Any] | None:
        reply = await self._http.post(f"{self._config.url}/completions", json=body)
        status = reply.status_code
        if status == 429 or status >= 500:
            raise _TransientError(f"it answered {status}: {reply.text[:300]}")
        if status in (400, 413) and CONTEXT_OVERFLOW_PATTERN.search(reply.text):
            return None
        if status != 200:
            raise UserError(
                f"{self._config.url} refuses a request with {status}: {reply.text[:300]}"
            )
        try:
            (choice,) = reply.json()["choices"]
            reason = choice["finish_reason"]
        except (ValueError, KeyError, TypeError):
            raise _TransientError(f"its answer is no completion: {reply.text[:300]}") from None
        if reason not in ("stop", "length"):
            raise _TransientError(f"it broke a call off ({reason})")
        return choice

    def _parse_choice(
        self, choice: dict[str, Any], prompt: list[int], sampling: Sampling
    ) -> Completion:
        """The sampled ids and their log-probs. Raises UserError if the response lacks them."""
        reason = choice["finish_reason"]
        url, tokens = self._config.url, _number_list(choice.get("token_ids"), int)
        if tokens is None:
            raise UserError(
                f"{url} returns no token ids, and text cannot replace them: it must support "
                "return_token_ids (vLLM >= 0.10.2)"
            )
        returned_prompt = choice.get("prompt_token_ids")
        if returned_prompt is not None and returned_prompt != prompt:
            raise UserError(
                f"{url} changed a prompt before it extended it: let it neither truncate nor add "
                "special tokens"
            )
        if sampling.temperature == 0:
            # Servers return log-probs of another distribution; greedy has only one outcome.
            return Completion(tokens, [0.0] * len(tokens), reason)
        if self._config.logprobs == "none":
            return Completion(tokens, [float("nan")] * len(tokens), reason)
        logp = _number_list((choice.get("logprobs") or {}).get("token_logprobs"), (int, float))
        if logp is None:
            raise UserError(
                f'{url} returns no log-probs: set logprobs to "none" if they are not needed'
            )
        if len(logp) != len(tokens):
            raise UserError(
                f"{url} returned {len(logp)} log-probs for {len(tokens)} tokens: training needs "
                "one for each"
            )
        return Completion(tokens, logp, reason)


def _number_list(values: Any, kind: Any) -> list[Any] | None:
    """The values, if they are a list of `kind`."""
    return (
        values
        if isinstance(values, list) and all(isinstance(value, kind) for value in values)
        else None
    )
