"""Faults of workers, engine, event loop, index and learner during asynchronous rollouts: each is
recovered from or ends the run cleanly, and no task is used twice.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import faulty_envs
from support.small_runs import KeyedEngine, LearnerlessRun, async_source

from agentrl_jax.errors import DeadlineExceeded
from agentrl_jax.rollout import event_loop_thread
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import rollout_index
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.workers.process_pool import ProcessPool


def background_threads() -> set[str]:
    names = ("rollout service", "rollout index", "watchdog", "weight swap")
    return {
        thread.name
        for thread in threading.enumerate()
        if thread.name in names and thread.is_alive()
    }


@pytest.fixture(autouse=True)
def no_thread_is_left_running():
    yield
    deadline = time.monotonic() + 5
    while background_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not background_threads()


def real_time_run(folder: Path, staleness: int = 2, **fields: Any) -> LearnerlessRun:
    return LearnerlessRun(folder, async_source(staleness), clock=None, **fields)


def query(folder: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "rollouts.sqlite")) as connection:
        return connection.execute(text).fetchall()


def test_a_worker_killed_in_the_middle_of_a_turn_is_replaced(tmp_path: Path):
    environment = EnvironmentConfig(
        faulty_envs.ENVIRONMENT_ID, {"how": "die", "path": str(tmp_path / "resets"), "times": 2}
    )
    run = real_time_run(tmp_path, environment=environment, workers=ProcessPool(1)).run()
    assert sorted(run.tasks) == list(range(18)) and run.runtime.failures.counts["died"] >= 1
    assert all(
        t.total_reward == 3.0
        for _, groups in run.consumed_groups
        for g in groups
        for t in g.trajectories
    )
    assert query(tmp_path, "SELECT count(*), count(DISTINCT task) FROM rollouts") == [(36, 18)]


def test_an_event_loop_that_stops_ends_the_run(tmp_path: Path):
    def stop_loop() -> None:
        raise SystemExit

    run = real_time_run(tmp_path)
    run.train_step = lambda step: run.runtime.call_soon(stop_loop) if step == 2 else None
    with pytest.raises(RuntimeError, match="the rollout service has stopped"):
        run.run()
    assert [step for step, _ in run.consumed_groups] in (
        [0, 1, 2],
        [0, 1, 2, 3],
    )  # the next groups may have finished already


class FailingStrategy(IndependentEpisodes):
    async def collect(self, task: Any, runtime: Any, key: Any) -> Any:
        if key[1] == 3:
            raise ValueError("no such task")
        return await super().collect(task, runtime, key)


def test_an_error_of_a_strategy_ends_the_run(tmp_path: Path):
    run = real_time_run(tmp_path)
    assert isinstance(run.source, AsyncRollouts)
    run.source.rollouts.strategy = FailingStrategy(2)
    with pytest.raises(ValueError, match="no such task"):
        run.run()
    assert len(run.consumed_groups) < 6


class StoppedEngine(KeyedEngine):
    """An engine whose thread has ended."""

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        if self.version == 2:
            raise RuntimeError("the engine has stopped")
        return super().submit(*args, **kwargs)


def test_an_engine_that_stops_ends_the_run(tmp_path: Path):
    run = real_time_run(tmp_path, engine=StoppedEngine())
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        run.run()


class SilentEngine(KeyedEngine):
    """An engine that never answers some calls."""

    def submit(
        self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Any = ()
    ) -> Any:
        future = super().submit(ids, sampling, key, parent, images)
        return type(future)() if key[1:4] == (1, 1, 0) else future


def test_an_engine_that_stalls_is_named_and_its_episodes_are_dropped(tmp_path: Path):
    messages: list[str] = []
    environment = EnvironmentConfig(
        "support.small_runs:tests/Varied-v0",
        timeouts=Timeouts(0.3, 30.0, 60.0, 120.0, stall_report=0.1),
    )
    run = real_time_run(
        tmp_path, environment=environment, engine=SilentEngine(), log=messages.append
    ).run()
    assert (
        sorted(run.tasks) == list(range(18))
        and sum(g.num_dropped for _, groups in run.consumed_groups for g in groups) == 1
    )
    assert any("waits" in line and "for the engine 'policy'" in line for line in messages)
    assert any(
        "the trainer has been at waiting for the groups of step" in line for line in messages
    )


def test_an_event_loop_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_loop_thread, "JOIN_TIMEOUT", 0.1)
    resume = threading.Event()
    run = real_time_run(
        tmp_path,
        environment=EnvironmentConfig(
            "support.small_runs:tests/Varied-v0", timeouts=Timeouts(0.1, 0.2, 0.3, 1.0)
        ),
    )
    run.train_step = lambda step: run.runtime.call_soon(resume.wait, 30) if step == 2 else None
    with pytest.raises(DeadlineExceeded, match="the rollout service did not answer within 1 s"):
        run.run()
    resume.set()
    deadline = time.monotonic() + 5
    while "rollout service" in background_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    run.runtime.close()


def failing_insert(times: int) -> Callable[..., None]:
    insert, calls = rollout_index.insert_events, iter(range(times))

    def faulty(*args: Any) -> None:
        if next(calls, None) is not None:
            raise sqlite3.OperationalError("disk I/O error")
        insert(*args)

    return faulty


def test_a_rollout_index_that_fails_restarts_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    messages: list[str] = []
    monkeypatch.setattr(rollout_index, "insert_events", failing_insert(2))
    run = real_time_run(
        tmp_path, log=messages.append, train_step=lambda step: time.sleep(0.05)
    ).run()
    assert sorted(run.tasks) == list(range(18)) and any(
        "the rollout index failed (OperationalError: disk I/O error)" in x for x in messages
    )
    assert query(tmp_path, "SELECT id, used FROM tasks ORDER BY id") == sorted(
        (task, step) for step, task, _ in run.versions
    )


def test_a_rollout_index_that_always_fails_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    messages: list[str] = []
    monkeypatch.setattr(rollout_index, "insert_events", failing_insert(10**6))
    run = real_time_run(tmp_path, steps=8, log=messages.append)

    def train_step(step: int) -> None:
        assert run.rollout_index._thread is not None
        run.rollout_index._thread.join(10)  # until it has failed

    run.train_step = train_step
    run.run()
    assert (
        sorted(run.tasks) == list(range(24))
        and sum("is switched off" in line for line in messages) == 1
    )


def test_a_rollout_index_that_stalls_does_not_block_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    messages: list[str] = []
    resume, insert = threading.Event(), rollout_index.insert_events

    def stuck(*args: Any) -> None:
        resume.wait(30)
        insert(*args)

    monkeypatch.setattr(rollout_index, "insert_events", stuck)
    monkeypatch.setattr(rollout_index, "MAX_PENDING", 4)
    environment = EnvironmentConfig(
        "support.small_runs:tests/Varied-v0", timeouts=Timeouts(stall_report=0.1)
    )
    run = real_time_run(tmp_path, environment=environment, log=messages.append)

    def train_step(step: int) -> None:
        if step == 5:
            assert sorted(run.tasks) == list(range(18))  # all are used, and nothing is written
            time.sleep(0.3)
            resume.set()

    run.train_step = train_step
    run.run()
    assert any("the rollout index has been at events of" in line for line in messages)
    assert query(tmp_path, "SELECT count(*) FROM tasks WHERE used IS NOT NULL") == [(18,)]


def test_a_run_resumes_after_an_error_of_the_learner(tmp_path: Path):
    def train_step(step: int) -> None:
        if step == 3:
            raise FloatingPointError("nan")

    run = real_time_run(tmp_path, train_step=train_step)
    with pytest.raises(FloatingPointError):
        run.run()
    assert not background_threads()
    resumed = real_time_run(tmp_path).run(3, json.loads(json.dumps(run.iterator_states[2])))
    assert sorted([*run.tasks[:9], *resumed.tasks]) == list(range(18))


def test_a_learner_that_stalls_is_named(tmp_path: Path):
    messages: list[str] = []
    environment = EnvironmentConfig(
        "support.small_runs:tests/Varied-v0", timeouts=Timeouts(stall_report=0.1)
    )
    real_time_run(
        tmp_path,
        environment=environment,
        log=messages.append,
        train_step=lambda step: time.sleep(0.5 if step == 1 else 0),
    ).run()
    assert any("the trainer has been at step 1 (" in line for line in messages)
