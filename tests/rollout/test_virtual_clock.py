"""Virtual time: it jumps to the next timer when every task waits, and real calls are waited for;
environments with latency on it.
"""

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.fake_engines import FakeEngine
from support.fixtures import make_call
from support.strategy_runs import AGENT

from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.virtual_clock import VirtualClock, VirtualLoop, VirtualTimeEngine
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.latency import EnvLatency, WithLatency
from agentrl_jax.workers.pool import EnvHandle, InlinePool, Task


def test_time_jumps_to_the_next_timer_and_a_year_takes_no_time():
    loop, events = VirtualLoop(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        events.append((name, loop.time()))

    async def both() -> None:
        await asyncio.gather(sleeper("slow", 3e7), sleeper("quick", 0.5))

    start = time.monotonic()
    loop.run_until_complete(both())
    assert events == [("quick", 0.5), ("slow", 3e7)] and time.monotonic() - start < 5
    loop.close()


class Late(FakeEngine):
    """An engine whose calls are finished by another thread, 0.05 s later."""

    num_slots = 4

    def __init__(self) -> None:
        self.version, self.released = 0, list[Any]()

    def submit(
        self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()
    ) -> "Future[Any]":
        future: Future[Any] = Future()
        call = make_call(ids, [key[0]], version=[self.version])
        threading.Timer(
            0.05, lambda: None if future.cancelled() else future.set_result(call)
        ).start()
        return future

    def release(self, call: Any) -> None:
        self.released.append(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.version = version


def test_a_call_takes_its_declared_time_and_keeps_its_weights():
    loop, engine, clock = VirtualLoop(), Late(), VirtualClock(call_seconds=5.0, step_seconds=2.0)
    paced = VirtualTimeEngine(engine, clock, loop.run_until_complete)
    ended: list[tuple[int, float, int]] = []

    async def call_at(key: int, after: float) -> None:
        await asyncio.sleep(after)
        call = await asyncio.wrap_future(paced.submit(np.ones(1, np.int32), Sampling(), (key,)))
        ended.append((key, loop.time(), int(call.version[0])))

    work = [loop.create_task(call_at(key, after)) for key, after in ((1, 0.0), (2, 1.5), (3, 3.0))]
    paced.publish({}, 1)  # two seconds later: the third call has not begun
    assert loop.time() == 2.0 and engine.version == 1
    loop.run_until_complete(asyncio.gather(*work))
    assert ended == [(1, 5.0, 0), (2, 6.5, 0), (3, 8.0, 1)]
    loop.close()


def test_a_cancelled_call_frees_its_slot():
    loop, engine = VirtualLoop(), Late()
    paced = VirtualTimeEngine(engine, VirtualClock(call_seconds=1.0), loop.run_until_complete)

    async def give_up() -> None:
        paced.submit(np.ones(1, np.int32), Sampling(), (1,)).cancel()
        await asyncio.sleep(2.0)

    loop.run_until_complete(give_up())
    assert len(engine.released) == 1 and not paced._in_flight
    loop.close()


def test_replies_are_delayed_by_seed_and_turn():
    loop, delay = VirtualLoop(), EnvLatency(2.0, 1.0)
    workers = WithLatency(InlinePool(), delay)
    durations: list[float] = []

    async def play() -> None:
        env = EnvHandle(workers, Task("support.small_runs:tests/Varied-v0", 5))
        await env.reset()
        over = False
        while not over:
            start = loop.time()
            _, _, over, _, _ = await env.step(assistant("a"))
            durations.append(loop.time() - start)
        env.close()

    loop.run_until_complete(play())
    loop.close()
    assert (
        durations == pytest.approx([delay.sample(5, turn) for turn in range(len(durations))])
        and len(durations) > 1
    )
    assert workers.env_wait_seconds == pytest.approx(sum(durations))
    delays = [delay.sample(seed, 0) for seed in range(4000)]
    assert np.mean(delays) == pytest.approx(2.0, rel=0.1) and np.std(
        np.log(delays)
    ) == pytest.approx(1.0, rel=0.05)
    with pytest.raises(UserError, match="at least 0"):
        WithLatency(InlinePool(), EnvLatency(-1.0))


class SlowScorer:
    """A `Scorer` that answers 2 after some real time."""

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        future: Future[float] = Future()
        threading.Timer(0.05, future.set_result, [2.0]).start()
        return future

    def close(self) -> None: ...


def test_a_score_takes_the_declared_time_of_a_call_and_no_deadline_passes_meanwhile():
    clock = VirtualClock(call_seconds=3.0)
    with Runtime(
        {}, {}, InlinePool(), timeouts=Timeouts(5.0, 10.0, 20.0), loop=clock.make_loop()
    ) as runtime:
        model = clock.wrap_model(Model(AGENT, scorer=SlowScorer()), runtime.run)
        runtime.add_model("reward", model)
        start = runtime.loop.time()
        scores = runtime.run(runtime.models.score("reward", [[user("?")]] * 2, ["a", "b"]))
        assert scores == [2.0, 2.0]
        assert runtime.loop.time() - start == pytest.approx(3.0, abs=1e-3)
