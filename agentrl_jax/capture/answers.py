"""OpenAI's completions as they leave: a chat's next message, or the rest of a text; whole or piece by piece."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.capture.wire import Asked, Choice

Fields = Mapping[str, Any]  # of one choice


@runtime_checkable
class Form(Protocol):
    """How answers to a kind of request are written."""

    @property
    def kind(self) -> str: ...

    @property
    def kind_of_chunks(self) -> str: ...

    def opening(self) -> Fields | None:
        """What a stream says first of each choice."""
        ...

    def piece(self, text: str) -> Fields:
        """Some more text."""
        ...

    def end(self, asked: Asked, choice: Choice) -> Fields:
        """What is left to say once all text is said."""
        ...

    def whole(self, asked: Asked, choice: Choice) -> Fields:
        """A choice that is not streamed."""
        ...


@dataclass(frozen=True)
class Chat:
    """Implements `Form` for chats."""

    kind: str = "chat.completion"
    kind_of_chunks: str = "chat.completion.chunk"

    def opening(self) -> Fields:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, text: str) -> Fields:
        return {"delta": {"content": text}, "logprobs": None}

    def end(self, asked: Asked, choice: Choice) -> Fields:
        calls = [{"index": i, **call} for i, call in enumerate(_message(choice).get("tool_calls", []))]
        return {"delta": {"tool_calls": calls} if calls else {}, "logprobs": _logprobs(choice) if asked.logprobs else None}

    def whole(self, asked: Asked, choice: Choice) -> Fields:
        return {"message": _message(choice), "logprobs": _logprobs(choice) if asked.logprobs else None}


@dataclass(frozen=True)
class Text:
    """Implements `Form` for texts."""

    kind: str = "text_completion"
    kind_of_chunks: str = "text_completion"

    def opening(self) -> None: ...

    def piece(self, text: str) -> Fields:
        return {"text": text, "logprobs": None}

    def end(self, asked: Asked, choice: Choice) -> Fields:
        ids = {"token_ids": choice.call.action.tolist(), "prompt_token_ids": choice.call.prompt.tolist()} if asked.token_ids else {}
        return {"text": "", "logprobs": _logprobs_of_text(choice) if asked.logprobs else None, **ids}

    def whole(self, asked: Asked, choice: Choice) -> Fields:
        return {**self.end(asked, choice), "text": choice.message.text}


def completion(form: Form, request: Asked, identity: str, created: int, choices: Sequence[Choice]) -> dict[str, Any]:
    """The answer to a request that is not streamed."""
    return {
        "id": identity,
        "object": form.kind,
        "created": created,
        "model": request.model,
        "choices": [{"index": i, "finish_reason": choice.finish_reason, **form.whole(request, choice)} for i, choice in enumerate(choices)],
        "usage": usage_of(choices),
    }


def usage_of(choices: Sequence[Choice]) -> dict[str, int]:
    prompt, completion = len(choices[0].call.prompt), sum(len(choice.call.action) for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _message(choice: Choice) -> dict[str, Any]:
    """The assistant's message in OpenAI's form."""
    data = choice.message.to_dict()
    return {**data, "content": None if choice.message.tool_calls and not data["content"] else data["content"], "refusal": None}


def _finite(choice: Choice) -> list[float]:
    """The log-prob of each token under the distribution that it was sampled from."""
    return [logp if math.isfinite(logp) else -9999.0 for logp in choice.call.sampler_logp.tolist()]


def _logprobs(choice: Choice) -> dict[str, Any]:
    content = [
        {"token": text, "logprob": logp, "bytes": _bytes(text), "top_logprobs": []} for text, logp in zip(choice.tokens, _finite(choice))
    ]
    return {"content": content, "refusal": None}


def _logprobs_of_text(choice: Choice) -> dict[str, Any]:
    offsets = list(itertools.accumulate((len(text) for text in choice.tokens[:-1]), initial=0))
    return {"tokens": list(choice.tokens), "token_logprobs": _finite(choice), "top_logprobs": None, "text_offset": offsets}


def _bytes(text: str) -> list[int] | None:
    """None where the token is a part of a character."""
    return None if "\ufffd" in text else list(text.encode())
