"""`EventLoopThread`: an event loop in a thread of its own, next to the trainer."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agentrl_jax.errors import DeadlineExceeded

T = TypeVar("T")
POLL_SECONDS = 0.5  # between two checks that the thread is alive
JOIN_TIMEOUT = 10.0  # seconds that the thread gets to end


def close_unstarted(coroutine: Any) -> None:
    """Close a coroutine that no loop will run."""
    if (
        inspect.iscoroutine(coroutine)
        and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    ):
        coroutine.close()


class EventLoopThread:
    """Runs the loop until it is closed; callers get an error where the thread dies or hangs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_loop, name="rollout service", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException as error:
            self._error = error

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """The result of a coroutine.

        Raises RuntimeError where the thread has died, and DeadlineExceeded after `timeout` seconds.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        deadline = time.monotonic() + timeout
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    close_unstarted(coroutine)
                    raise RuntimeError("the rollout service has stopped") from self._error
                if time.monotonic() > deadline:
                    future.cancel()
                    raise DeadlineExceeded(
                        f"the rollout service did not answer within {timeout:g} s"
                    ) from None

    def close(self) -> bool:
        """End the thread and leave the loop as it is. False where the thread hangs."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_TIMEOUT)
        return not self._thread.is_alive()


def run_until_complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine on a loop that is not running.

    In a thread that already runs a loop, as a notebook's does, another thread runs this one.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run_until_complete(coroutine)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(loop.run_until_complete, coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(loop.stop)
            raise


async def gather_or_cancel(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """All results, in order; where one raises, the others are cancelled and awaited first."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
