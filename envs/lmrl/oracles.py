"""Oracles: whoever answers questions about something hidden. Scripted ones live with their worlds; here is the one that asks a model."""

import atexit
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError

Ask = Callable[[str], str]  # what a language model makes of a prompt
LARGEST = 2**20  # bytes of an answer that are read


@runtime_checkable
class Oracle(Protocol):
    """`answer` is a function of its arguments: asked again, it says the same."""

    def answer(self, hidden: str, question: str) -> str: ...


@cache
def _http() -> tuple[Any, Any]:
    """The HTTP library, which workers that ask nobody need not have, and the one client of this process."""
    import httpx2

    client = httpx2.Client()
    atexit.register(client.close)
    return httpx2, client


class _Hiccup(Exception):
    """What another try may mend."""


@dataclass(frozen=True)
class Endpoint:
    """Asks a server with OpenAI's chat completions, greedily: this project's capture endpoint, vLLM, or any other.

    A lost connection, 429, 5xx and an answer that is no completion are tried again, `retries` times, each wait twice the last; then
    EnvironmentFailure. DeadlineExceeded where `timeout` seconds, tries and waits included, were not enough. Any other refusal is a
    UserError.
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
                return self._try(prompt, end)
            except _Hiccup as error:
                problem = str(error)
            if time.monotonic() + delay > end:
                raise DeadlineExceeded(f"{self.url} had no answer within {self.timeout:g} s, at last: {problem}")
            time.sleep(delay)
            delay *= 2
        raise EnvironmentFailure(f"{self.url} failed {self.retries + 1} times, at last: {problem}")

    def _headers(self) -> dict[str, str]:
        if not self.api_key_variable:
            return {}
        key = os.environ.get(self.api_key_variable, "")
        if not key:
            raise UserError(f"the environment variable {self.api_key_variable} should hold the API key of {self.url}: set it")
        return {"Authorization": f"Bearer {key}"}

    def _try(self, prompt: str, end: float) -> str:
        httpx2, client = _http()
        clean = prompt.encode("utf-8", "replace").decode()
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": clean}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }
        target, read = f"{self.url}/chat/completions", b""
        try:
            with client.stream("POST", target, json=body, headers=self._headers(), timeout=max(end - time.monotonic(), 0.001)) as reply:
                for piece in reply.iter_bytes():
                    read += piece
                    if len(read) > LARGEST:
                        raise EnvironmentFailure(f"{self.url} answered more than {LARGEST:,} bytes", "flood")
                    if time.monotonic() > end:
                        raise DeadlineExceeded(f"{self.url} was not done within {self.timeout:g} s")
                status = reply.status_code
        except httpx2.RequestError as error:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"{self.url} did not answer within {self.timeout:g} s") from error
            raise _Hiccup(str(error) or type(error).__name__) from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise UserError(f"{self.url!r} is no address of a server: {error}") from error
        said = read[:300].decode(errors="replace")
        if status == 429 or status >= 500:
            raise _Hiccup(f"it answered {status}: {said}")
        if status != 200:
            raise UserError(f"{self.url} refuses a request with {status}: {said}")
        try:
            content = json.loads(read)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise _Hiccup(f"its answer is no completion: {said}") from None
        if not isinstance(content, str):
            raise _Hiccup(f"its answer has no text: {said}")
        return content


@dataclass(frozen=True)
class Asked:
    """A language model as an oracle: `prompt(hidden, question)` is asked, and `read(hidden, reply)` is the answer."""

    ask: Ask
    prompt: Callable[[str, str], str]
    read: Callable[[str, str], str]

    def answer(self, hidden: str, question: str) -> str:
        return self.read(hidden, self.ask(self.prompt(hidden, question)))


def endpoint(options: Any) -> Endpoint:
    """The endpoint that plain data describe, such as {"url": ..., "model": ...}. Raises UserError where they do not."""
    if not isinstance(options, Mapping):
        raise UserError(f"an oracle is named, or is an endpoint such as {{'url': ..., 'model': ...}}, not {options!r}")
    try:
        return Endpoint(**options)
    except TypeError as error:
        raise UserError(f"an endpoint does not take {dict(options)}: {error}") from error


@dataclass(frozen=True)
class Agreement:
    """How far two oracles agree: the share of equal answers, and Cohen's kappa, which takes off what chance would give."""

    count: int
    share: float
    kappa: float


def agreement(one: Oracle, other: Oracle, questions: Iterable[tuple[str, str]]) -> Agreement:
    """What two oracles say to the same (hidden, question) pairs.

    kappa = (share - chance) / (1 - chance), chance = sum over answers of the product of both frequencies; 1 where chance is 1.
    """
    pairs = [(one.answer(*asked), other.answer(*asked)) for asked in questions]
    if not pairs:
        raise UserError("agreement needs at least one question")
    ones, others = zip(*pairs)
    share = sum(a == b for a, b in pairs) / len(pairs)
    chance = sum(ones.count(a) * others.count(a) for a in set(ones)) / len(pairs) ** 2
    return Agreement(len(pairs), share, 1.0 if chance == 1 else (share - chance) / (1 - chance))
