"""Pools of engines: tokens, placement of calls, and updates of weights."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.conversations import (
    OTHER_PARAMS,
    PARAMS,
    POLICY,
    Conversation,
    action_tokens,
    play_concurrently,
    sampling_for,
    start_engine,
)
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference import engine_pool
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.engine_pool import EnginePool, make_engine
from agentrl_jax.inference.kv_slots import SlotTable
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.trajectories import Call, Sampling


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


class FakeMember(FakeEngine):
    """A member of a pool whose calls are finished by the test."""

    num_slots = 2

    def __init__(self, slow: bool = False) -> None:
        self.version, self.published, self.slow = 0, list[int](), slow
        self.counts, self.busy_seconds = {"sampled_tokens": 3}, 1.0
        self.futures: list[Future[Any]] = []
        self.released: list[Any] = []

    def submit(
        self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()
    ) -> Any:
        self.futures.append(Future())
        return self.futures[-1]

    def release(self, call: Any) -> None:
        self.released.append(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.published.append(version)
        self.version = self.version if self.slow else version


@pytest.fixture(scope="module")
def pool() -> Iterator[EnginePool]:
    pool = EnginePool([start_engine(spans=1), start_engine(spans=1)])
    yield pool
    pool.close()


@pytest.mark.slow
def test_a_pool_samples_the_tokens_of_one_engine(pool: EnginePool):
    single_engine = start_engine(spans=1)
    try:
        alone = [
            action_tokens(Conversation(single_engine, seed, sampling_for).play(4))
            for seed in range(6)
        ]
    finally:
        single_engine.close()
    crowd = [Conversation(pool, seed, sampling_for) for seed in range(6)]
    play_concurrently(crowd, 4)
    assert [action_tokens(c.calls) for c in crowd] == alone
    assert all(engine.counts["sampled_tokens"] > 0 for engine in pool._engines)
    assert pool.counts["sampled_tokens"] == sum(
        engine.counts["sampled_tokens"] for engine in pool._engines
    )


@pytest.mark.slow
def test_new_weights_reach_every_engine_while_calls_continue(pool: EnginePool):
    talks = [
        Conversation(pool, seed, Sampling(budget=40, temperature=1.0)) for seed in range(20, 24)
    ]
    futures = [talk.submit() for talk in talks]
    pool.publish(OTHER_PARAMS, 7)
    calls = [future.result(60) for future in futures]
    wait_until(lambda: all(engine.version == 7 for engine in pool._engines))
    for call in calls:
        pool.release(call)
    assert {int(v) for call in calls for v in call.version} <= {0, 7}
    again = pool.submit(calls[0].prompt, Sampling(budget=3), (1, 2)).result(60)
    assert set(again.version.tolist()) == {7}
    pool.release(again)
    pool.publish(PARAMS, 8)


def fake_pool(count: int, slow: bool = False) -> tuple[EnginePool, list[FakeMember]]:
    members = [FakeMember(slow) for _ in range(count)]
    return EnginePool(members), members


def submit_to(pool: EnginePool, key: int, parent: Call | None = None) -> "Future[Call]":
    return pool.submit(np.zeros(1, np.int32), Sampling(), (key,), parent)


def test_a_call_goes_to_its_parents_engine_and_a_new_episode_to_the_least_loaded():
    pool, (a, b) = fake_pool(2)
    finished_call = make_call([1], [2])
    first = submit_to(pool, 0)
    submit_to(pool, 1)
    assert (len(a.futures), len(b.futures)) == (1, 1)
    first.set_result(finished_call)
    submit_to(pool, 2)  # a has an episode that waits on its environment: both are equally loaded
    assert (len(a.futures), len(b.futures)) == (2, 1)
    submit_to(pool, 3, finished_call)
    assert (len(a.futures), len(b.futures)) == (3, 1)
    submit_to(pool, 4, make_call([1], [2]))  # no engine has this parent
    assert (len(a.futures), len(b.futures)) == (3, 2)
    pool.release(finished_call)
    assert (a.released, b.released) == ([finished_call], []) and pool.num_slots == 4
    pool.close()


def test_engines_are_updated_one_after_another_and_new_episodes_get_the_newest_weights():
    pool, members = fake_pool(3, slow=True)
    for i in range(3):
        submit_to(pool, i)
    pool.publish({}, 1)
    time.sleep(0.1)
    assert [m.published for m in members] == [[1], [], []]
    submit_to(pool, 3)
    assert [len(m.futures) for m in members] == [
        2,
        1,
        1,
    ]  # the most loaded, but the one with the newest weights
    members[0].version = 1
    wait_until(lambda: members[1].published == [1])
    assert members[2].published == []
    pool.publish({}, 2)  # before all have the previous weights
    for member in members:
        wait_until(lambda member=member: member.published[-1:] == [2])
        member.version = 2
    assert members[2].published == [2]
    pool.close()
    assert not [t for t in threading.enumerate() if t.name == "weight swap" and t is pool._thread]


def test_idle_engines_are_updated_immediately():
    pool, members = fake_pool(3, slow=True)
    pool.publish({}, 1)
    assert [m.published for m in members] == [[1], [1], [1]]
    pool.close()


def test_the_rows_of_a_pools_engines_are_numbered_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
):
    first_rows = []

    def start(policy: Any, config: EngineConfig, params: Any, **fields: Any) -> FakeMember:
        first_rows.append(fields["first_row"])
        return FakeMember()

    monkeypatch.setattr(engine_pool, "LocalEngine", start)
    pool = make_engine(POLICY, EngineConfig(rows=3, engines=2), PARAMS)
    pool.close()
    assert first_rows == [0, 3]
    table = SlotTable(2, 4, 1, first_row=8)
    assert [table.row_number(row) for row in table.rows] == list(range(8, 16))


def test_too_few_devices_raise_before_any_engine_is_made():
    config = EngineConfig(rows=2, positions=16, engines=3, mesh=MeshConfig(data=1), first_device=6)
    with pytest.raises(UserError, match="needs 1 devices"):
        make_engine(POLICY, config, PARAMS)
    with pytest.raises(UserError, match="build a pool of 2"):
        LocalEngine(POLICY, EngineConfig(rows=2, positions=16, engines=2), PARAMS)
    with pytest.raises(UserError, match="engines must be at least 1"):
        make_engine(POLICY, EngineConfig(rows=2, positions=16, engines=0), PARAMS)
