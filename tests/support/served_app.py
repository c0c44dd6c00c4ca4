"""Servers of the package on an event loop in a thread of its own, while a test runs."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager


@contextlib.contextmanager
def served(server: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """The address of a server, which runs until the block ends."""
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    addresses: list[str] = []
    errors: list[BaseException] = []
    stop = asyncio.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with server() as url:
            addresses.append(url)
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            errors.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(60)
        if errors:
            raise errors[0]
        yield addresses[0]
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
