"""`StreamingEngine`: an engine that reports the tokens of its unfinished calls."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from agentrl_jax.engine import Engine, GenerationFuture, PromptImage
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, RandomKey, Sampling


def call_in_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[[list[int]], None], tokens: list[int]
) -> None:
    """Call it in the event loop's thread, from any thread, while there is a loop."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, tokens)


@dataclass(frozen=True, eq=False)
class StreamingEngine:
    """Implements `Engine`: another engine, with a callback for the tokens of its calls so far."""

    engine: Engine
    on_tokens: Callable[[list[int]], None]

    @property
    def num_slots(self) -> int:
        return self.engine.num_slots

    @property
    def positions(self) -> int:
        return self.engine.positions

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        future = self.engine.submit(ids, sampling, key, parent, images)
        if isinstance(future, GenerationFuture):
            future.on_tokens = self.on_tokens
        return future

    def release(self, call: Call) -> None:
        self.engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        self.engine.publish(params, version, recompute)

    def close(self) -> None:
        self.engine.close()
