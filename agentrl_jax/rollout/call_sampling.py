"""Calls of an engine, each within its time, and checked to be what was asked for."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from agentrl_jax.engine import BatchEngine, Engine, PromptImage
from agentrl_jax.errors import DeadlineExceeded
from agentrl_jax.invariants import Invariants
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.call_records import answered_calls
from agentrl_jax.rollout.thread_results import thread_result
from agentrl_jax.timeouts import time_limit
from agentrl_jax.trajectories import Call, RandomKey, Sampling


async def sample_call(
    engine: Engine,
    ids: TokenIds,
    sampling: Sampling,
    key: RandomKey,
    parent: Call | None,
    timeout_seconds: float,
    engine_name: str,
    invariants: Invariants | None = None,
    images: Sequence[PromptImage] = (),
) -> Call:
    """Sample one call; `invariants` check that it is what was asked for.

    A call that is cancelled or late frees its KV slot when it ends. Raises DeadlineExceeded after
    `timeout_seconds`.
    """
    call = await _answer(engine, ids, sampling, key, parent, images, timeout_seconds, engine_name)
    if invariants is not None:
        invariants.check(answered_calls, call, ids, sampling, key, images)
    return call


async def sample_batch(
    engine: BatchEngine,
    prompts: Sequence[TokenIds],
    n: int,
    sampling: Sampling,
    key: RandomKey,
    invariants: Invariants,
) -> list[list[Call]]:
    """`BatchEngine.sample_batch` beside the event loop, checked as single calls are."""
    calls = await asyncio.to_thread(engine.sample_batch, prompts, n, sampling, key)
    for i, group in enumerate(calls):
        for j, call in enumerate(group):
            invariants.check(answered_calls, call, prompts[i], sampling, (*key, i, j))
    return calls


async def _answer(
    engine: Engine,
    ids: TokenIds,
    sampling: Sampling,
    key: RandomKey,
    parent: Call | None,
    images: Sequence[PromptImage],
    timeout_seconds: float,
    engine_name: str,
) -> Call:
    future = engine.submit(ids, sampling, key, parent, images)

    def release_when_done(ended: "Future[Call]") -> None:
        if not ended.cancelled() and ended.exception() is None:
            engine.release(ended.result())

    try:
        async with time_limit(timeout_seconds, f"a call of the engine {engine_name!r}"):
            return await thread_result(future)
    except (asyncio.CancelledError, DeadlineExceeded) as error:
        if (
            isinstance(error, DeadlineExceeded)
            and future.done()
            and not future.cancelled()
            and future.exception() is None
        ):
            return future.result()  # the call was in time, the event loop was not
        future.add_done_callback(release_when_done)
        raise
