"""`Completion`: a response, or server-sent events: text in pieces, then tool calls, then usage."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.prompts import Prompt
from agentrl_jax.capture.requests import CompletionChoice, CompletionRequest, truncate_at_stop
from agentrl_jax.capture.responses import (
    ChoiceFields,
    ResponseFormat,
    completion_response,
    token_usage,
)
from agentrl_jax.capture.session import CaptureSession

KEEPALIVE_SECONDS = 10.0  # without an event, after which a comment keeps the connection open


class Completion:
    """A request whose calls are under way: its events, or its response."""

    def __init__(
        self,
        session: CaptureSession,
        request: CompletionRequest,
        prompt: Prompt,
        created: int,
        response_format: ResponseFormat,
    ) -> None:
        """Start the request's calls. Raises APIError if there is nothing to sample."""
        self._session, self._request = session, request
        self._created, self._response_format = created, response_format
        self._updates: asyncio.Queue[Callable[[], list[dict[str, Any]]]] = asyncio.Queue()
        self._sent_text = [""] * request.n
        has_partial_text = request.stream and not request.parse_tool_calls
        self._completion_id, self._tasks = session.start(
            request, prompt, self._on_tokens if has_partial_text else None
        )
        for i, task in enumerate(self._tasks):
            task.add_done_callback(
                lambda task, i=i: self._updates.put_nowait(lambda: self._final_chunks(i, task))
            )

    @property
    def is_streamed(self) -> bool:
        """Whether the client wants events, and not one response."""
        return self._request.stream

    def full_response(self, choices: Sequence[CompletionChoice]) -> dict[str, Any]:
        """The response without events."""
        return completion_response(
            self._response_format, self._request, self._completion_id, self._created, choices
        )

    @property
    def tasks(self) -> "list[asyncio.Task[CompletionChoice]]":
        """A task for each choice."""
        return self._tasks

    async def events(self) -> AsyncIterator[str]:
        """The lines to send; closing the iterator cancels the calls."""
        try:
            first_delta = self._response_format.first_delta()
            for i in range(self._request.n if first_delta else 0):
                yield self._event(self._chunk(i, first_delta or {}))
            while not all(task.done() for task in self._tasks) or not self._updates.empty():
                try:
                    update = await asyncio.wait_for(self._updates.get(), KEEPALIVE_SECONDS)
                except TimeoutError:
                    yield ": still at work\n\n"
                    continue
                for chunk in update():
                    yield self._event(chunk)
            if self._request.stream_usage:
                choices = [task.result() for task in self._tasks]
                yield self._event({**self._header(), "choices": [], "usage": token_usage(choices)})
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            if all(not task.cancelled() for task in self._tasks):
                raise
            yield self._event(APIError("the episode is over", code="episode_over").body())
        except APIError as error:
            yield self._event(error.body())
        finally:
            for task in self._tasks:
                task.cancel()

    def _on_tokens(self, choice_index: int, tokens: list[int]) -> None:
        self._updates.put_nowait(lambda: self._partial_chunks(choice_index, tokens))

    def _partial_chunks(self, choice_index: int, tokens: list[int]) -> list[dict[str, Any]]:
        """The new text that is final: no incomplete character, and no possible stop string."""
        text = self._session.decode(self._request.model, tokens).rstrip("\ufffd")
        stops = self._request.stop
        text = truncate_at_stop(text, stops)
        num_withheld = max(
            (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0
        )
        return self._delta_chunks(choice_index, text[: len(text) - num_withheld])

    def _delta_chunks(self, choice_index: int, text: str) -> list[dict[str, Any]]:
        sent = self._sent_text[choice_index]
        if len(text) <= len(sent) or not text.startswith(sent):
            return []
        self._sent_text[choice_index] = text
        return [self._chunk(choice_index, self._response_format.text_delta(text[len(sent) :]))]

    def _final_chunks(
        self, choice_index: int, task: "asyncio.Task[CompletionChoice]"
    ) -> list[dict[str, Any]]:
        choice = task.result()
        last = self._chunk(
            choice_index,
            self._response_format.final_delta(self._request, choice),
            choice.finish_reason,
        )
        return [*self._delta_chunks(choice_index, choice.message.text), last]

    def _chunk(
        self, choice_index: int, fields: ChoiceFields, reason: str | None = None
    ) -> dict[str, Any]:
        usage = {"usage": None} if self._request.stream_usage else {}
        return {
            **self._header(),
            "choices": [{"index": choice_index, "finish_reason": reason, **fields}],
            **usage,
        }

    def _header(self) -> dict[str, Any]:
        return {
            "id": self._completion_id,
            "object": self._response_format.chunk_object_type,
            "created": self._created,
            "model": self._request.model,
        }

    @staticmethod
    def _event(data: dict[str, Any]) -> str:
        return f"data: {json.dumps(data)}\n\n"
