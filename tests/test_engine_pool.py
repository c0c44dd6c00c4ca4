"""Engines as one: the same tokens wherever a call goes, caches found again, weights swapped one after another."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from conversations import OTHERS, PARAMS, POLICY, Conversation, settings_of, start, together, tokens
from hand_made import make_call

from agentrl_jax.engine_pool import EnginePool, make_engine
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.trajectories import Call, Sampling


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true() and time.monotonic() < until:
        time.sleep(0.005)
    assert true()


class Members:
    """Stands in for local engines: a call ends when it is told to."""

    def __init__(self, slow: bool = False) -> None:
        self.version, self.given, self.places, self.slow = 0, list[int](), 2, slow
        self.counts, self.busy = {"sampled_tokens": 3}, 1.0
        self.futures: list[Future[Any]] = []
        self.released: list[Any] = []

    def submit(self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()) -> Any:
        self.futures.append(Future())
        return self.futures[-1]

    def release(self, call: Any) -> None:
        self.released.append(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.given.append(version)
        self.version = self.version if self.slow else version

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def pool() -> Iterator[EnginePool]:
    pool = EnginePool([start(spans=1), start(spans=1)])
    yield pool
    pool.close()


@pytest.mark.slow
def test_the_tokens_are_those_of_one_engine_wherever_calls_go(pool: EnginePool):
    one = start(spans=1)
    try:
        alone = [tokens(Conversation(one, seed, settings_of).play(4)) for seed in range(6)]
    finally:
        one.close()
    crowd = [Conversation(pool, seed, settings_of) for seed in range(6)]
    together(crowd, 4)
    assert [tokens(c.calls) for c in crowd] == alone
    assert all(engine.counts["sampled_tokens"] > 0 for engine in pool._engines)
    assert pool.counts["sampled_tokens"] == sum(engine.counts["sampled_tokens"] for engine in pool._engines)


@pytest.mark.slow
def test_new_weights_reach_every_engine_while_calls_go_on(pool: EnginePool):
    talks = [Conversation(pool, seed, Sampling(budget=40, temperature=1.0)) for seed in range(20, 24)]
    futures = [talk.submit() for talk in talks]
    pool.publish(OTHERS, 7)
    calls = [future.result(60) for future in futures]
    wait_until(lambda: all(engine.version == 7 for engine in pool._engines))
    for call in calls:
        pool.release(call)
    assert {int(v) for call in calls for v in call.version} <= {0, 7}
    again = pool.submit(calls[0].prompt, Sampling(budget=3), (1, 2)).result(60)
    assert set(again.version.tolist()) == {7}
    pool.release(again)
    pool.publish(PARAMS, 8)


def hollow(count: int, slow: bool = False) -> tuple[EnginePool, list[Members]]:
    members = [Members(slow) for _ in range(count)]
    return EnginePool(members), members


def asked(pool: EnginePool, key: int, parent: Call | None = None) -> "Future[Call]":
    return pool.submit(np.zeros(1, np.int32), Sampling(), (key,), parent)


def test_a_call_follows_its_parent_and_a_new_episode_goes_where_there_is_room():
    pool, (a, b) = hollow(2)
    word = make_call([1], [2])
    first = asked(pool, 0)
    asked(pool, 1)
    assert (len(a.futures), len(b.futures)) == (1, 1)
    first.set_result(word)
    asked(pool, 2)  # a holds an episode that thinks: both are as full
    assert (len(a.futures), len(b.futures)) == (2, 1)
    asked(pool, 3, word)
    assert (len(a.futures), len(b.futures)) == (3, 1)
    asked(pool, 4, make_call([1], [2]))  # nobody holds that
    assert (len(a.futures), len(b.futures)) == (3, 2)
    pool.release(word)
    assert (a.released, b.released) == ([word], []) and pool.places == 4
    pool.close()


def test_weights_are_swapped_one_after_another_and_new_episodes_get_the_newest():
    pool, members = hollow(3, slow=True)
    for i in range(3):
        asked(pool, i)
    pool.publish({}, 1)
    time.sleep(0.1)
    assert [m.given for m in members] == [[1], [], []]
    asked(pool, 3)
    assert [len(m.futures) for m in members] == [2, 1, 1]  # the fullest, but the one with the newest
    members[0].version = 1
    wait_until(lambda: members[1].given == [1])
    assert members[2].given == []
    pool.publish({}, 2)  # before all have the one before
    for member in members:
        wait_until(lambda member=member: member.given[-1:] == [2])
        member.version = 2
    assert members[2].given == [2]
    pool.close()
    assert not [t for t in threading.enumerate() if t.name == "weight swap" and t is pool._thread]


def test_idle_engines_are_swapped_at_once():
    pool, members = hollow(3, slow=True)
    pool.publish({}, 1)
    assert [m.given for m in members] == [[1], [1], [1]]
    pool.close()


def test_too_few_devices_are_said_before_anything_is_made():
    config = EngineConfig(rows=2, positions=16, engines=3, mesh=MeshConfig(data=1), first_device=6)
    with pytest.raises(UserError, match="needs 1 devices"):
        make_engine(POLICY, config, PARAMS)
    with pytest.raises(UserError, match="engines must be at least 1"):
        LocalEngine(POLICY, EngineConfig(rows=2, positions=16, engines=2), PARAMS)
