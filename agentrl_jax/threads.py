"""`Threads`: worlds in threads of this process, for those that wait for something outside of it."""

import asyncio
import contextlib
import json
import queue
import threading
import time
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.worker import LARGEST, Worlds, answer
from agentrl_jax.workers import Lane, done

GRACE = 2.0  # seconds that the threads get to close their worlds at the end


class _Thread:
    """One thread and its worlds, until it is late."""

    def __init__(self, name: str, largest: int) -> None:
        self.name, self._largest = name, largest
        self.leaving = False
        self._loop = asyncio.get_running_loop()
        self._at = (-1, 0.0)
        self.lane = Lane(self._abandon, lambda: self._at)
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"worlds of {name}", daemon=True)
        self._thread.start()

    def request(self, within: float, world: int, **fields: Any) -> "asyncio.Future[Any]":
        identity, future = self.lane.add(within, world)
        self._requests.put({"id": identity, "world": world, **fields})
        return future

    def _serve(self) -> None:
        def tick() -> None:
            self._at = self._at[0], time.monotonic()

        worlds = Worlds(tick)
        while (request := self._requests.get()) is not None and not self.leaving:
            self._at = request["id"], time.monotonic()
            reply = json.loads(answer(worlds, request, self._largest))
            with contextlib.suppress(RuntimeError):  # the loop may have been closed meanwhile
                self._loop.call_soon_threadsafe(self._settle, reply)
        worlds.stop()

    def _settle(self, reply: dict[str, Any]) -> None:
        if not self.leaving:
            self.lane.settle([reply])

    def _abandon(self, seconds: float) -> None:
        """A thread cannot be killed: it is left alone with what it is at, and leaves when that ends."""
        late, lost = f"no answer from {self.name} in {seconds:g} s", f"{self.name} was abandoned: another of its worlds was late"
        self.lane.fail(DeadlineExceeded(late), EnvironmentFailure(lost, "lost"))
        self.leave()

    def leave(self) -> None:
        self.leaving = True
        self._requests.put(None)

    def join(self, until: float) -> None:
        self._thread.join(max(0.0, until - time.monotonic()))


class Threads:
    """Worlds in `count` threads; a world stays with its thread. A thread that is late is abandoned and a fresh one takes its place."""

    def __init__(self, count: int, largest: int = LARGEST) -> None:
        if count < 1:
            raise UserError(f"workers need at least one thread, not {count}")
        self._count, self._largest = count, largest
        self._threads: dict[int, _Thread] = {}

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        thread = self._threads.get(world % self._count)
        if thread is None or thread.leaving:
            if op == "close":
                return done(None)
            thread = self._threads[world % self._count] = _Thread(f"thread {world % self._count + 1}", self._largest)
        return thread.request(within, op=op, world=world, **arguments)

    def where(self, world: int) -> str:
        thread = self._threads.get(world % self._count)
        busy = thread is not None and thread.lane.busy_elsewhere(world)
        return f"thread {world % self._count + 1}" + (", busy with another one" if busy else "")

    async def start(self) -> None: ...

    async def stop(self) -> None:
        threads, until = list(self._threads.values()), time.monotonic() + GRACE
        for thread in threads:
            thread.leave()
        for thread in threads:
            thread.join(until)
        self._threads = {}
