"""`WorkerThreads`: work on requests in threads, so that the event loop serves others meanwhile.

Tokenizers release the interpreter's lock; Python code in a thread gives it up every few
milliseconds. JSON is parsed in one piece, so its number of values is bounded.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
LARGE_BYTES = 2**16  # a larger request waits for other large ones, never a small one for it
NUM_THREADS = 2  # for each size


class WorkerThreads:
    """Threads for small requests, and others for large ones."""

    def __init__(self) -> None:
        self._small = ThreadPoolExecutor(NUM_THREADS, "small requests")
        self._large = ThreadPoolExecutor(NUM_THREADS, "large requests")

    async def run(self, num_bytes: int, function: Callable[[], T]) -> T:
        """The function's result, for a request of so many bytes."""
        executor = self._large if num_bytes > LARGE_BYTES else self._small
        return await asyncio.get_running_loop().run_in_executor(executor, function)

    def close(self) -> None:
        for executor in (self._small, self._large):
            executor.shutdown(wait=False, cancel_futures=True)
