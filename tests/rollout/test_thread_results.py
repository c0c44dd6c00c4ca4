"""An event loop is woken once for all results that other threads have ready."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from agentrl_jax.rollout.thread_results import thread_result


def test_results_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch):
    futures = [Future[int]() for _ in range(50)]

    async def wait() -> tuple[list[int], int]:
        loop, wakes = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        waiting = [asyncio.ensure_future(thread_result(future)) for future in futures]
        await asyncio.sleep(0)
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as thread:
            patch.setattr(loop, "call_soon_threadsafe", lambda *x: wakes.append(x) or wake(*x))
            for i, future in enumerate(futures):  # the loop is busy meanwhile
                thread.submit(future.set_result, i)
            thread.submit(lambda: None).result()
        return await asyncio.gather(*waiting), len(wakes)

    assert asyncio.run(wait()) == (list(range(50)), 1)


def test_an_error_is_raised_and_a_later_result_arrives_too():
    async def wait() -> Any:
        failed, late = Future[int](), Future[int]()
        failed.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await thread_result(failed)
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, late.set_result, 3)
        return await thread_result(late)

    assert asyncio.run(wait()) == 3


def test_a_cancelled_wait_cancels_its_future():
    async def wait() -> bool:
        future = Future[int]()
        waiting = asyncio.ensure_future(thread_result(future))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return future.cancelled() and waiting.cancelled()

    assert asyncio.run(wait())
