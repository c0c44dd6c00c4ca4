"""Time that is declared: it jumps where nobody is ready, and real work is waited for; and worlds that are late on it."""

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from hand_made import make_call

from agentrl_jax.delays import Delay, Delayed
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.trajectories import Sampling
from agentrl_jax.virtual_clock import Paced, VirtualClock, VirtualLoop
from agentrl_jax.workers import InProcess, Task, World


def test_time_jumps_to_the_next_timer_and_a_year_takes_no_time():
    loop, seen = VirtualLoop(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def both() -> None:
        await asyncio.gather(sleeper("slow", 3e7), sleeper("quick", 0.5))

    began = time.monotonic()
    loop.run_until_complete(both())
    assert seen == [("quick", 0.5), ("slow", 3e7)] and time.monotonic() - began < 5
    loop.close()


class Late:
    """An engine whose calls end when a thread comes to them."""

    places = 4

    def __init__(self) -> None:
        self.version, self.released = 0, list[Any]()

    def submit(self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()) -> "Future[Any]":
        future: Future[Any] = Future()
        call = make_call(ids, [key[0]], version=[self.version])
        threading.Timer(0.05, lambda: None if future.cancelled() else future.set_result(call)).start()
        return future

    def release(self, call: Any) -> None:
        self.released.append(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.version = version

    def close(self) -> None: ...


def test_a_call_takes_its_declared_time_whatever_it_really_takes_and_keeps_its_weights():
    loop, engine, clock = VirtualLoop(), Late(), VirtualClock(call=5.0, step=2.0)
    paced = Paced(engine, clock, loop.run_until_complete)
    ended: list[tuple[int, float, int]] = []

    async def ask(key: int, after: float) -> None:
        await asyncio.sleep(after)
        call = await asyncio.wrap_future(paced.submit(np.ones(1, np.int32), Sampling(), (key,)))
        ended.append((key, loop.time(), int(call.version[0])))

    work = [loop.create_task(ask(key, after)) for key, after in ((1, 0.0), (2, 1.5), (3, 3.0))]
    paced.publish({}, 1)  # two seconds later: the third call has not begun
    assert loop.time() == 2.0 and engine.version == 1
    loop.run_until_complete(asyncio.gather(*work))
    assert ended == [(1, 5.0, 0), (2, 6.5, 0), (3, 8.0, 1)]
    loop.close()


def test_a_call_that_was_given_up_gives_its_place_back():
    loop, engine = VirtualLoop(), Late()
    paced = Paced(engine, VirtualClock(call=1.0), loop.run_until_complete)

    async def give_up() -> None:
        paced.submit(np.ones(1, np.int32), Sampling(), (1,)).cancel()
        await asyncio.sleep(2.0)

    loop.run_until_complete(give_up())
    assert len(engine.released) == 1 and not paced._working
    loop.close()


def test_answers_to_steps_are_late_by_what_the_seed_and_the_turn_say():
    loop, delay = VirtualLoop(), Delay(2.0, 1.0)
    workers = Delayed(InProcess(), delay)
    took: list[float] = []

    async def play() -> None:
        world = World(workers, Task("small_runs:tests/Varied-v0", 5))
        await world.reset()
        over = False
        while not over:
            began = loop.time()
            _, _, over, _, _ = await world.step(assistant("a"))
            took.append(loop.time() - began)
        world.close()

    loop.run_until_complete(play())
    loop.close()
    assert took == pytest.approx([delay.of(5, turn) for turn in range(len(took))]) and len(took) > 1
    assert workers.busy == pytest.approx(sum(took))
    many = [delay.of(seed, 0) for seed in range(4000)]
    assert np.mean(many) == pytest.approx(2.0, rel=0.1) and np.std(np.log(many)) == pytest.approx(1.0, rel=0.05)
    with pytest.raises(UserError, match="at least 0"):
        Delayed(InProcess(), Delay(-1.0))
