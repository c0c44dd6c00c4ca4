"""`stop_event`: what a server waits for until Ctrl-C or SIGTERM."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """An event of the running loop that SIGINT and SIGTERM set."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(stop_signal, event.set)
    return event
