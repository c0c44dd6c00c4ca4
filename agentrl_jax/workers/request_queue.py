"""`RequestQueue`: the unanswered requests of one worker, and the time of the one in progress."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError


def resolve_future(future: "asyncio.Future[Any]", reply: dict[str, Any]) -> None:
    """Set a worker's reply as the result. Raises KeyError if it is no reply."""
    if "value" in reply:
        if not future.done():
            future.set_result(reply["value"])
        return
    user = "user_error" in reply
    error = (
        UserError(reply["user_error"])
        if user
        else EnvironmentFailure(reply["failure"], reply["kind"])
    )
    if not future.done():
        future.set_exception(error)


class RequestQueue:
    """The unanswered requests of one worker; only the one in progress is timed."""

    def __init__(
        self, on_timeout: Callable[[float], None], current_request: Callable[[], tuple[int, float]]
    ) -> None:
        """Of one worker.

        Args:
            on_timeout: called with the timeout that was exceeded, in seconds.
            current_request: the id of the request in progress, and its start time.
        """
        self._on_timeout, self._current_request = on_timeout, current_request
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count()
        self._pending: dict[int, tuple[asyncio.Future[Any], float, int]] = {}
        self._start_time = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, timeout: float, env_id: int) -> "tuple[int, asyncio.Future[Any]]":
        """A new request's id and the future of its reply."""
        identity, future = next(self._ids), self._loop.create_future()
        self._pending[identity] = future, timeout, env_id
        if len(self._pending) == 1:
            self._start_next()
        return identity, future

    def resolve(self, replies: Sequence[dict[str, Any]]) -> None:
        """Match replies to the oldest requests.

        Raises:
            KeyError, TypeError, ValueError: they are not replies to those.
        """
        if not replies:
            raise ValueError("an empty list of replies")
        for identity, reply in zip(
            list(itertools.islice(self._pending, len(replies))), replies, strict=True
        ):
            if reply["id"] != identity:
                raise ValueError("a reply to another request")
            resolve_future(self._pending[identity][0], reply)
            del self._pending[identity]
        if self._pending:
            self._start_next()

    def fail(self, error: EnvironmentFailure, other_error: EnvironmentFailure) -> None:
        """The worker is gone: `error` for the request in progress, `other_error` for the others.

        Before its first request the oldest is in progress; after a reply, none before the next.
        """
        if self._timer is not None:
            self._timer.cancel()
        current_id = self._current_request()[0]
        if current_id < 0:
            current_id = next(iter(self._pending), None)
        pending, self._pending, self._timer = self._pending, {}, None
        for identity, (future, _, _) in pending.items():
            if not future.done():
                future.set_exception(error if identity == current_id else other_error)

    def is_busy_with_other_env(self, env_id: int) -> bool:
        """Whether the worker is busy with another environment; safe to call from other threads."""
        request = self._pending.get(self._current_request()[0])
        return request is not None and request[2] != env_id

    def _current(self) -> tuple[int, float]:
        current = self._current_request()
        if current[0] in self._pending:
            return current
        return next(iter(self._pending)), self._start_time

    def _start_next(self) -> None:
        """The worker starts the oldest request now."""
        self._start_time = self._loop.time()
        self._set_timer(self._start_time + next(iter(self._pending.values()))[1])

    def _set_timer(self, deadline: float) -> None:
        # One timer for all requests, which checks when it fires, is cheaper than one per request.
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_timeout)

    def _check_timeout(self) -> None:
        self._timer = None
        if self._pending:
            identity, start = self._current()
            seconds = self._pending[identity][1]
            if self._loop.time() < start + seconds:
                self._set_timer(start + seconds)
            else:
                self._on_timeout(seconds)
