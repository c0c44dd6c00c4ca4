"""`Service`: an event loop in a thread of its own, so that episodes go on while the trainer is at work."""

import asyncio
import inspect
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentrl_jax.errors import DeadlineExceeded

T = TypeVar("T")
LOOK = 0.5  # seconds between two looks at whether the thread lives
LEAVE = 10.0  # seconds that it gets to leave


def never_begun(work: Any) -> None:
    """Forget a coroutine that nobody will run."""
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


class Service:
    """Runs the loop from now on until it is closed. Where the thread dies or hangs, whoever waits for it is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="rollout service", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException as error:
            self._error = error

    def run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """What a coroutine returns.

        Raises RuntimeError where the thread has died, and DeadlineExceeded after so many seconds.
        """
        future, until = asyncio.run_coroutine_threadsafe(work, self._loop), time.monotonic() + seconds
        while True:
            try:
                return future.result(LOOK)
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    never_begun(work)
                    raise RuntimeError("the rollout service has stopped") from self._error
                if time.monotonic() > until:
                    future.cancel()
                    raise DeadlineExceeded(f"the rollout service did not answer within {seconds:g} s") from None

    def close(self) -> bool:
        """End the thread; the loop stays as it is. False where the thread hangs."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LEAVE)
        return not self._thread.is_alive()
