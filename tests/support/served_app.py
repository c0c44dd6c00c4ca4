"""Servers of the package on an event loop in a thread of its own, while a test runs."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager


@contextlib.contextmanager
def served(server: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """The address of a server, which runs until the block ends."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    addresses: list[str] = []
    errors: list[BaseException] = []
    stop = asyncio.Event()

    async def serve() -> None:
        async with server() as url:
            addresses.append(url)
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            errors.append(error)
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(60)
        if errors:
            raise errors[0]
        yield addresses[0]
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
