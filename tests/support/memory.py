"""What a function holds in memory."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any


def measured(make: Callable[[], Any]) -> tuple[Any, int, int]:
    """A function's result, the bytes that it holds, and the most that were held meanwhile."""
    gc.collect()
    tracemalloc.start()
    try:
        result = make()
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()
        return result, tracemalloc.get_traced_memory()[0], peak
    finally:
        tracemalloc.stop()
