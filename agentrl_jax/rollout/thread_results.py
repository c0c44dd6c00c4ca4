"""Results of other threads on an event loop: it is woken once for all that are ready."""

import asyncio
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def thread_result(future: "Future[T]") -> T:
    """The result of a future that another thread completes; as `asyncio.wrap_future`, which wakes
    the loop for each future.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    results = _RESULTS.setdefault(loop, _ThreadResults(loop))
    future.add_done_callback(lambda _: results.add(waiter))
    try:
        await waiter
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


class _ThreadResults:
    """What waits on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._ready: deque[asyncio.Future[Any]] = deque()
        self._lock = threading.Lock()

    def add(self, waiter: "asyncio.Future[Any]") -> None:
        """Have the loop wake a waiter; from any thread."""
        loop = self._loop()
        with self._lock:
            self._ready.append(waiter)
            is_first = len(self._ready) == 1
        if is_first and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, deque()
        for waiter in ready:
            if not waiter.done():
                waiter.set_result(None)


_RESULTS: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _ThreadResults]" = (
    weakref.WeakKeyDictionary()
)
