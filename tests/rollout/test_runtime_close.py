"""Closing a runtime ends every task of its event loop."""

import asyncio
import gc

import pytest

from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.workers.pool import InlinePool


@pytest.mark.filterwarnings("error")
def test_tasks_that_start_while_others_are_cancelled_end_too():
    """As a server's do, which accepts a request while it closes."""
    ended: list[int] = []

    async def accept(depth: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(depth)
            if depth:
                tasks.append(asyncio.ensure_future(accept(depth - 1)))

    async def start() -> None:
        tasks.append(asyncio.ensure_future(accept(3)))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    with Runtime({}, {}, InlinePool()) as runtime:
        runtime.run(start())
    assert ended == [3, 2, 1, 0] and all(task.done() for task in tasks)
    tasks.clear()
    gc.collect()
