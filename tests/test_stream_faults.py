"""Faults in each of the four modules while rollouts stream: it starts again or ends cleanly, and nothing is used twice."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import naughty
import pytest
from small_runs import Bare, Keyed, streaming

from agentrl_jax import data_manager, service
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import DeadlineExceeded
from agentrl_jax.experiment import EnvironmentConfig
from agentrl_jax.processes import Processes
from agentrl_jax.strategies import Independent
from agentrl_jax.streaming import Streaming


def threads_of_ours() -> set[str]:
    names = ("rollout service", "data manager", "watchdog", "weight swap")
    return {thread.name for thread in threading.enumerate() if thread.name in names and thread.is_alive()}


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    until = time.monotonic() + 5
    while threads_of_ours() and time.monotonic() < until:
        time.sleep(0.01)
    assert not threads_of_ours()


def real(folder: Path, staleness: int = 2, **fields: Any) -> Bare:
    return Bare(folder, streaming(staleness), clock=None, **fields)


def index(folder: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "rollouts.sqlite")) as base:
        return base.execute(question).fetchall()


def test_a_worker_that_is_killed_in_the_middle_of_a_turn(tmp_path: Path):
    environment = EnvironmentConfig(naughty.NAME, {"how": "die", "path": str(tmp_path / "resets"), "times": 2})
    run = real(tmp_path, environment=environment, workers=Processes(1)).go()
    assert sorted(run.tasks) == list(range(18)) and run.runtime.failures.counts["died"] >= 1
    assert all(t.total_reward == 3.0 for _, groups in run.used for g in groups for t in g.trajectories)
    assert index(tmp_path, "SELECT count(*), count(DISTINCT task) FROM rollouts") == [(36, 18)]


def test_the_service_dies(tmp_path: Path):
    def leave() -> None:
        raise SystemExit

    run = real(tmp_path)
    run.train = lambda step: run.runtime.soon(leave) if step == 2 else None
    with pytest.raises(RuntimeError, match="the rollout service has stopped"):
        run.go()
    assert [step for step, _ in run.used] in ([0, 1, 2], [0, 1, 2, 3])  # the next ones may have been there already


class Careless(Independent):
    async def collect(self, task: Any, runtime: Any, key: Any) -> Any:
        if key[1] == 3:
            raise ValueError("no such task")
        return await super().collect(task, runtime, key)


def test_what_a_strategy_raises_ends_the_run(tmp_path: Path):
    run = real(tmp_path)
    assert isinstance(run.source, Streaming)
    run.source.rollouts.strategy = Careless(2)
    with pytest.raises(ValueError, match="no such task"):
        run.go()
    assert len(run.used) < 6


class Broken(Keyed):
    """An engine whose thread has ended."""

    def submit(self, *arguments: Any, **named: Any) -> Any:
        if self.version == 2:
            raise RuntimeError("the engine has stopped")
        return super().submit(*arguments, **named)


def test_the_engine_stops(tmp_path: Path):
    run = real(tmp_path, engine=Broken())
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        run.go()


class Silent(Keyed):
    """An engine that leaves some calls without an answer."""

    def submit(self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()) -> Any:
        future = super().submit(ids, sampling, key, parent, images)
        return type(future)() if key[1:4] == (1, 1, 0) else future


def test_an_engine_that_stalls_is_named_and_its_episodes_are_dropped(tmp_path: Path):
    told: list[str] = []
    environment = EnvironmentConfig("small_runs:tests/Varied-v0", deadlines=Deadlines(0.3, 30.0, 60.0, 120.0, watch=0.1))
    run = real(tmp_path, environment=environment, engine=Silent(), say=told.append).go()
    assert sorted(run.tasks) == list(range(18)) and sum(g.dropped for _, groups in run.used for g in groups) == 1
    assert any("waits" in line and "for the engine 'policy'" in line for line in told)
    assert any("the trainer has been at waiting for the groups of step" in line for line in told)


def test_a_service_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "LEAVE", 0.1)
    go_on = threading.Event()
    run = real(tmp_path, environment=EnvironmentConfig("small_runs:tests/Varied-v0", deadlines=Deadlines(0.1, 0.2, 0.3, 1.0)))
    run.train = lambda step: run.runtime.soon(go_on.wait, 30) if step == 2 else None
    with pytest.raises(DeadlineExceeded, match="the rollout service did not answer within 1 s"):
        run.go()
    go_on.set()
    until = time.monotonic() + 5
    while "rollout service" in threads_of_ours() and time.monotonic() < until:
        time.sleep(0.01)
    run.runtime.close()


def failing(times: int) -> Callable[..., None]:
    insert, calls = data_manager.insert, iter(range(times))

    def faulty(*arguments: Any) -> None:
        if next(calls, None) is not None:
            raise sqlite3.OperationalError("disk I/O error")
        insert(*arguments)

    return faulty


def test_a_data_manager_that_fails_starts_again_and_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    monkeypatch.setattr(data_manager, "insert", failing(2))
    run = real(tmp_path, say=told.append, train=lambda step: time.sleep(0.05)).go()
    assert sorted(run.tasks) == list(range(18)) and any("the data manager failed (OperationalError: disk I/O error)" in x for x in told)
    assert index(tmp_path, "SELECT id, used FROM tasks ORDER BY id") == sorted((task, step) for step, task, _ in run.versions)


def test_a_data_manager_that_always_fails_is_left_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    monkeypatch.setattr(data_manager, "insert", failing(10**6))
    run = real(tmp_path, steps=8, say=told.append)

    def train(step: int) -> None:
        assert run.manager._thread is not None
        run.manager._thread.join(10)  # until it has failed

    run.train = train
    run.go()
    assert sorted(run.tasks) == list(range(24)) and sum("is left off" in line for line in told) == 1


def test_a_data_manager_that_stalls_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    go_on, insert = threading.Event(), data_manager.insert

    def stuck(*arguments: Any) -> None:
        go_on.wait(30)
        insert(*arguments)

    monkeypatch.setattr(data_manager, "insert", stuck)
    monkeypatch.setattr(data_manager, "CAPACITY", 4)
    environment = EnvironmentConfig("small_runs:tests/Varied-v0", deadlines=Deadlines(watch=0.1))
    run = real(tmp_path, environment=environment, say=told.append)

    def train(step: int) -> None:
        if step == 5:
            assert sorted(run.tasks) == list(range(18))  # all is used, and nothing is written
            time.sleep(0.3)
            go_on.set()

    run.train = train
    run.go()
    assert any("the data manager has been at news of" in line for line in told)
    assert index(tmp_path, "SELECT count(*) FROM tasks WHERE used IS NOT NULL") == [(18,)]


def test_a_trainer_that_raises_leaves_nothing_behind_and_a_later_run_goes_on(tmp_path: Path):
    def train(step: int) -> None:
        if step == 3:
            raise FloatingPointError("nan")

    run = real(tmp_path, train=train)
    with pytest.raises(FloatingPointError):
        run.go()
    assert not threads_of_ours()
    again = real(tmp_path).go(3, json.loads(json.dumps(run.states[2])))
    assert sorted([*run.tasks[:9], *again.tasks]) == list(range(18))


def test_a_trainer_that_stalls_is_named(tmp_path: Path):
    told: list[str] = []
    environment = EnvironmentConfig("small_runs:tests/Varied-v0", deadlines=Deadlines(watch=0.1))
    real(tmp_path, environment=environment, say=told.append, train=lambda step: time.sleep(0.5 if step == 1 else 0)).go()
    assert any("the trainer has been at step 1 (" in line for line in told)
