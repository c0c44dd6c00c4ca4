"""Responses of OpenAI's completions, of chats and of texts, streamed or not."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.capture.requests import CompletionChoice, CompletionRequest

ChoiceFields = Mapping[str, Any]  # of one choice


@runtime_checkable
class ResponseFormat(Protocol):
    """How responses to a kind of request are written."""

    @property
    def object_type(self) -> str: ...

    @property
    def chunk_object_type(self) -> str: ...

    def first_delta(self) -> ChoiceFields | None:
        """The first chunk of each choice in a stream."""
        ...

    def text_delta(self, text: str) -> ChoiceFields:
        """A chunk with more text."""
        ...

    def final_delta(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        """The last chunk, after all text."""
        ...

    def full_choice(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        """A choice that is not streamed."""
        ...


@dataclass(frozen=True)
class ChatFormat:
    """Implements `ResponseFormat` for chats."""

    object_type: str = "chat.completion"
    chunk_object_type: str = "chat.completion.chunk"

    def first_delta(self) -> ChoiceFields:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def text_delta(self, text: str) -> ChoiceFields:
        return {"delta": {"content": text}, "logprobs": None}

    def final_delta(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        calls = [
            {"index": i, **call} for i, call in enumerate(_message(choice).get("tool_calls", []))
        ]
        return {
            "delta": {"tool_calls": calls} if calls else {},
            "logprobs": _chat_logprobs(choice) if request.logprobs else None,
        }

    def full_choice(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        return {
            "message": _message(choice),
            "logprobs": _chat_logprobs(choice) if request.logprobs else None,
        }


@dataclass(frozen=True)
class TextFormat:
    """Implements `ResponseFormat` for completions of text."""

    object_type: str = "text_completion"
    chunk_object_type: str = "text_completion"

    def first_delta(self) -> None: ...

    def text_delta(self, text: str) -> ChoiceFields:
        return {"text": text, "logprobs": None}

    def final_delta(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        ids = (
            {
                "token_ids": choice.call.action.tolist(),
                "prompt_token_ids": choice.call.prompt.tolist(),
            }
            if request.return_token_ids
            else {}
        )
        return {
            "text": "",
            "logprobs": _text_logprobs(choice) if request.logprobs else None,
            **ids,
        }

    def full_choice(self, request: CompletionRequest, choice: CompletionChoice) -> ChoiceFields:
        return {**self.final_delta(request, choice), "text": choice.message.text}


def completion_response(
    response_format: ResponseFormat,
    request: CompletionRequest,
    completion_id: str,
    created: int,
    choices: Sequence[CompletionChoice],
) -> dict[str, Any]:
    """The response to a request that is not streamed."""
    return {
        "id": completion_id,
        "object": response_format.object_type,
        "created": created,
        "model": request.model,
        "choices": [
            {
                "index": i,
                "finish_reason": choice.finish_reason,
                **response_format.full_choice(request, choice),
            }
            for i, choice in enumerate(choices)
        ],
        "usage": token_usage(choices),
    }


def token_usage(choices: Sequence[CompletionChoice]) -> dict[str, int]:
    """The `usage` of a response."""
    prompt = len(choices[0].call.prompt)
    completion = sum(len(choice.call.action) for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _message(choice: CompletionChoice) -> dict[str, Any]:
    """The assistant's message in OpenAI's form."""
    data = choice.message.to_dict()
    return {
        **data,
        "content": None if choice.message.tool_calls and not data["content"] else data["content"],
        "refusal": None,
    }


def _finite_logprobs(choice: CompletionChoice) -> list[float]:
    """The sampler's log-prob of each token, finite as JSON requires."""
    return [logp if math.isfinite(logp) else -9999.0 for logp in choice.call.sampler_logp.tolist()]


def _chat_logprobs(choice: CompletionChoice) -> dict[str, Any]:
    content = [
        {"token": text, "logprob": logp, "bytes": _utf8_bytes(text), "top_logprobs": []}
        for text, logp in zip(choice.tokens, _finite_logprobs(choice))
    ]
    return {"content": content, "refusal": None}


def _text_logprobs(choice: CompletionChoice) -> dict[str, Any]:
    offsets = list(itertools.accumulate((len(text) for text in choice.tokens[:-1]), initial=0))
    return {
        "tokens": list(choice.tokens),
        "token_logprobs": _finite_logprobs(choice),
        "top_logprobs": None,
        "text_offset": offsets,
    }


def _utf8_bytes(text: str) -> list[int] | None:
    """None if the token is a part of a character."""
    return None if "\ufffd" in text else list(text.encode())
