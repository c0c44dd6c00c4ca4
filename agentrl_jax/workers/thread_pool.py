"""`ThreadPool`: environments in threads, for those that wait on external systems."""

import asyncio
import contextlib
import json
import queue
import threading
import time
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit
from agentrl_jax.workers.pool import completed_future
from agentrl_jax.workers.request_queue import RequestQueue
from agentrl_jax.workers.server import MAX_REPLY_BYTES, EnvServer, handle_request

SHUTDOWN_GRACE = 2.0  # seconds for the threads to close their environments at the end


class _Thread:
    """One thread and its environments, until a request times out."""

    def __init__(self, name: str, max_reply_bytes: int, observations: ObservationLimit) -> None:
        self.name, self._max_reply_bytes = name, max_reply_bytes
        self._observations = observations
        self.is_closing = False
        self._loop = asyncio.get_running_loop()
        self._current_request = (-1, 0.0)
        self.request_queue = RequestQueue(self._abandon, lambda: self._current_request)
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name=f"environments of {name}", daemon=True
        )
        self._thread.start()

    def request(self, timeout: float, env_id: int, **fields: Any) -> "asyncio.Future[Any]":
        identity, future = self.request_queue.add(timeout, env_id)
        self._requests.put({"id": identity, "env_id": env_id, **fields})
        return future

    def _serve(self) -> None:
        def on_turn() -> None:
            self._current_request = self._current_request[0], time.monotonic()

        server = EnvServer(on_turn, self._observations)
        while (request := self._requests.get()) is not None and not self.is_closing:
            self._current_request = request["id"], time.monotonic()
            reply = json.loads(handle_request(server, request, self._max_reply_bytes))
            with contextlib.suppress(RuntimeError):  # the loop may have been closed meanwhile
                self._loop.call_soon_threadsafe(self._resolve, reply)
        server.stop()

    def _resolve(self, reply: dict[str, Any]) -> None:
        if not self.is_closing:
            self.request_queue.resolve([reply])

    def _abandon(self, seconds: float) -> None:
        """Stop using the thread: it cannot be killed, and exits when its request ends."""
        self.request_queue.fail(
            DeadlineExceeded(f"no answer from {self.name} in {seconds:g} s"),
            EnvironmentFailure(
                f"{self.name} was abandoned: another of its environments was late", "lost"
            ),
        )
        self.request_stop()

    def request_stop(self) -> None:
        self.is_closing = True
        self._requests.put(None)

    def join(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))


class ThreadPool:
    """Environments in `count` threads; each environment stays in its thread.

    A thread whose request times out is abandoned and replaced.
    """

    def __init__(
        self,
        count: int,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        observations: ObservationLimit = DEFAULT_LIMIT,
    ) -> None:
        if count < 1:
            raise UserError(f"workers need at least one thread, not {count}")
        self._count, self._max_reply_bytes = count, max_reply_bytes
        self._observations = observations
        self._threads: dict[int, _Thread] = {}

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        thread = self._threads.get(env_id % self._count)
        if thread is None or thread.is_closing:
            if op == "close":
                return completed_future(None)
            thread = self._threads[env_id % self._count] = _Thread(
                f"thread {env_id % self._count + 1}", self._max_reply_bytes, self._observations
            )
        return thread.request(timeout, op=op, env_id=env_id, **arguments)

    def location(self, env_id: int) -> str:
        thread = self._threads.get(env_id % self._count)
        busy = thread is not None and thread.request_queue.is_busy_with_other_env(env_id)
        return f"thread {env_id % self._count + 1}" + (", busy with another one" if busy else "")

    async def start(self) -> None: ...

    async def stop(self) -> None:
        threads, deadline = list(self._threads.values()), time.monotonic() + SHUTDOWN_GRACE
        for thread in threads:
            thread.request_stop()
        for thread in threads:
            thread.join(deadline)
        self._threads = {}
