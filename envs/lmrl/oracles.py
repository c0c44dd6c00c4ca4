"""Oracles, which answer questions about a hidden target: the protocol, and language models."""

import atexit
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError

CompletionFunction = Callable[[str], str]  # prompt -> completion
MAX_RESPONSE_BYTES = 2**20


@runtime_checkable
class Oracle(Protocol):
    """Answers questions; the answer depends on the arguments alone."""

    def answer(self, hidden: str, question: str) -> str: ...


@cache
def _http() -> tuple[Any, Any]:
    """The HTTP library, imported only where it is used, and the one client of this process."""
    import httpx2

    client = httpx2.Client()
    atexit.register(client.close)
    return httpx2, client


class _TransientError(Exception):
    """A failure that is retried."""


@dataclass(frozen=True)
class ChatEndpoint:
    """A greedy client of a server with OpenAI's chat completions, such as vLLM or this library's
    capture endpoint.

    A lost connection, 429, 5xx and a malformed completion are retried `retries` times with
    exponential backoff.

    Raises:
        EnvironmentFailure: all tries failed, or the response is too long.
        DeadlineExceeded: `timeout` seconds, retries and waits included, were not enough.
        UserError: the server refused the request, or the URL or API key is wrong.
    """

    url: str  # requests go to {url}/chat/completions: "http://127.0.0.1:8000/v1"
    model: str  # as the server names it
    max_tokens: int = 64
    api_key_variable: str = ""  # the environment variable that holds the key; empty: no key
    timeout: float = 60.0
    retries: int = 4
    backoff: float = 0.5

    def __call__(self, prompt: str) -> str:
        end, delay, problem = time.monotonic() + self.timeout, self.backoff, ""
        for _ in range(self.retries + 1):
            try:
                return self._request(prompt, end)
            except _TransientError as error:
                problem = str(error)
            if time.monotonic() + delay > end:
                raise DeadlineExceeded(
                    f"{self.url} had no answer within {self.timeout:g} s, at last: {problem}"
                )
            time.sleep(delay)
            delay *= 2
        raise EnvironmentFailure(f"{self.url} failed {self.retries + 1} times, at last: {problem}")

    def _headers(self) -> dict[str, str]:
        if not self.api_key_variable:
            return {}
        key = os.environ.get(self.api_key_variable, "")
        if not key:
            raise UserError(
                f"the environment variable {self.api_key_variable} should hold the API key of "
                f"{self.url}: set it, and name it in config.environment.pass_variables, without "
                "which worker processes do not get it"
            )
        return {"Authorization": f"Bearer {key}"}

    def _request(self, prompt: str, deadline: float) -> str:
        httpx2, client = _http()
        clean = prompt.encode("utf-8", "replace").decode()
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": clean}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }
        target, content_bytes = f"{self.url}/chat/completions", b""
        try:
            with client.stream(
                "POST",
                target,
                json=body,
                headers=self._headers(),
                timeout=max(deadline - time.monotonic(), 0.001),
            ) as reply:
                for piece in reply.iter_bytes():
                    content_bytes += piece
                    if len(content_bytes) > MAX_RESPONSE_BYTES:
                        raise EnvironmentFailure(
                            f"{self.url} answered more than {MAX_RESPONSE_BYTES:,} bytes", "flood"
                        )
                    if time.monotonic() > deadline:
                        raise DeadlineExceeded(f"{self.url} was not done within {self.timeout:g} s")
                status = reply.status_code
        except httpx2.RequestError as error:
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"{self.url} did not answer within {self.timeout:g} s"
                ) from error
            raise _TransientError(str(error) or type(error).__name__) from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise UserError(f"{self.url!r} is no address of a server: {error}") from error
        excerpt = content_bytes[:300].decode(errors="replace")
        if status == 429 or status >= 500:
            raise _TransientError(f"it answered {status}: {excerpt}")
        if status != 200:
            raise UserError(f"{self.url} refuses a request with {status}: {excerpt}")
        try:
            content = json.loads(content_bytes)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise _TransientError(f"its answer is no completion: {excerpt}") from None
        if not isinstance(content, str):
            raise _TransientError(f"its answer has no text: {excerpt}")
        return content


@dataclass(frozen=True)
class LLMOracle:
    """A language model as an oracle, with the format of its prompts and replies."""

    complete: CompletionFunction
    make_prompt: Callable[[str, str], str]
    parse_reply: Callable[[str, str], str]

    def answer(self, hidden: str, question: str) -> str:
        return self.parse_reply(hidden, self.complete(self.make_prompt(hidden, question)))


def make_endpoint(options: Any) -> ChatEndpoint:
    """The endpoint that plain data describe, such as {"url": ..., "model": ...}.

    Raises:
        UserError: the data describe none.
    """
    if not isinstance(options, Mapping):
        raise UserError(
            f"an oracle is named, or is an endpoint such as {{'url': ..., 'model': ...}}, not "
            f"{options!r}"
        )
    try:
        return ChatEndpoint(**options)
    except TypeError as error:
        raise UserError(f"an endpoint does not take {dict(options)}: {error}") from error


@dataclass(frozen=True)
class OracleAgreement:
    """Agreement of two oracles: the fraction of equal answers, and Cohen's kappa."""

    count: int
    equal_fraction: float
    kappa: float


def measure_agreement(
    first: Oracle, second: Oracle, questions: Iterable[tuple[str, str]]
) -> OracleAgreement:
    """Agreement on the same (hidden, question) pairs.

    kappa = (fraction - chance) / (1 - chance), with chance the sum over answers of the product of
    both frequencies; 1 where chance is 1.
    """
    pairs = [(first.answer(*question), second.answer(*question)) for question in questions]
    if not pairs:
        raise UserError("agreement needs at least one question")
    first_answers, second_answers = zip(*pairs)
    fraction = sum(a == b for a, b in pairs) / len(pairs)
    chance = (
        sum(first_answers.count(a) * second_answers.count(a) for a in set(first_answers))
        / len(pairs) ** 2
    )
    return OracleAgreement(
        len(pairs), fraction, 1.0 if chance == 1 else (fraction - chance) / (1 - chance)
    )
