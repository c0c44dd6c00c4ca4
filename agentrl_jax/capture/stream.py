"""A completion as server-sent events: text as it is written, tool calls whole, usage at the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agentrl_jax.capture.answers import Fields, Form, usage_of
from agentrl_jax.capture.session import Session
from agentrl_jax.capture.wire import Asked, Choice, Refused, before_stop

QUIET = 10.0  # seconds without an event, after which a comment keeps the connection awake


class Stream:
    """Starts the calls of a request at once. Raises Refused where there is nothing to sample."""

    def __init__(self, session: Session, asked: Asked, created: int, form: Form) -> None:
        self._session, self._asked, self._created, self._form = session, asked, created, form
        self._news: asyncio.Queue[Callable[[], list[dict[str, Any]]]] = asyncio.Queue()
        self._sent = [""] * asked.n
        self._identity, self._tasks = session.start(asked, None if asked.calls_tools else self._heard)
        for place, task in enumerate(self._tasks):
            task.add_done_callback(lambda task, place=place: self._news.put_nowait(lambda: self._whole(place, task)))

    async def events(self) -> AsyncIterator[str]:
        """Ends the calls where nobody listens any more."""
        try:
            opening = self._form.opening()
            for place in range(self._asked.n if opening else 0):
                yield self._event(self._chunk(place, opening or {}))
            while not all(task.done() for task in self._tasks) or not self._news.empty():
                try:
                    news = await asyncio.wait_for(self._news.get(), QUIET)
                except TimeoutError:
                    yield ": still at work\n\n"
                    continue
                for chunk in news():
                    yield self._event(chunk)
            if self._asked.stream_usage:
                choices = [task.result() for task in self._tasks]
                yield self._event({**self._head(), "choices": [], "usage": usage_of(choices)})
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            if all(not task.cancelled() for task in self._tasks):
                raise
            yield self._event(Refused("the episode is over", code="episode_over").body())
        except Refused as refused:
            yield self._event(refused.body())
        finally:
            for task in self._tasks:
                task.cancel()

    def _heard(self, place: int, tokens: list[int]) -> None:
        self._news.put_nowait(lambda: self._so_far(place, tokens))

    def _so_far(self, place: int, tokens: list[int]) -> list[dict[str, Any]]:
        """What is certain of the text so far: not the first bytes of a character, nor what may begin a stop string."""
        text = self._session.text(self._asked.model, tokens).rstrip("\ufffd")
        stops = self._asked.stop
        text = before_stop(text, stops)
        held = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        return self._more(place, text[: len(text) - held])

    def _more(self, place: int, text: str) -> list[dict[str, Any]]:
        sent = self._sent[place]
        if len(text) <= len(sent) or not text.startswith(sent):
            return []
        self._sent[place] = text
        return [self._chunk(place, self._form.piece(text[len(sent) :]))]

    def _whole(self, place: int, task: "asyncio.Task[Choice]") -> list[dict[str, Any]]:
        choice = task.result()
        last = self._chunk(place, self._form.end(self._asked, choice), choice.finish_reason)
        return [*self._more(place, choice.message.text), last]

    def _chunk(self, place: int, fields: Fields, reason: str | None = None) -> dict[str, Any]:
        usage = {"usage": None} if self._asked.stream_usage else {}
        return {**self._head(), "choices": [{"index": place, "finish_reason": reason, **fields}], **usage}

    def _head(self) -> dict[str, Any]:
        return {"id": self._identity, "object": self._form.kind_of_chunks, "created": self._created, "model": self._asked.model}

    @staticmethod
    def _event(data: dict[str, Any]) -> str:
        return f"data: {json.dumps(data)}\n\n"
