"""The engine's programs have ended before the learner's are enqueued: two programs with collectives
on the same chips, enqueued by two threads, could wait for each other.
"""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import tiny_policy
from support.strategy_runs import AGENT, chain_task

from agentrl_jax.inference import device_state
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.programs import Programs
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.phase_trainer import PhaseTrainer
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import InlinePool

POLICY = tiny_policy(len(byte_tokenizer()), layers=1)
ROWS, PROGRAM_SECONDS = 4, 0.3
EMPTY_CHUNK = DecodeChunk(
    tokens=np.zeros((ROWS, 0), np.int32),
    logp=np.zeros((ROWS, 0), np.float32),
    entropy=np.zeros((ROWS, 0), np.float32),
    alternatives=np.zeros((ROWS, 0, 0), np.int32),
    alternative_logp=np.zeros((ROWS, 0, 0), np.float32),
    num_fed=np.zeros(ROWS, np.int32),
    num_written=np.zeros(ROWS, np.int32),
)


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> Iterator[LocalEngine]:
    """An engine that ends no call, and whose decode programs take long."""
    programs = Programs(
        lambda _, cache, *__: (cache, jnp.zeros(ROWS, jnp.int32)),
        lambda _, cache, *__: (cache, EMPTY_CHUNK),
        lambda *caches: caches[:2],
    )  # type: ignore
    monkeypatch.setattr(device_state, "compile_programs", lambda *_: programs)
    config = EngineConfig(rows=ROWS, positions=128, batching_delay=0.0)
    engine = LocalEngine(POLICY, config, POLICY.init(jax.random.key(0)))
    decode = engine._device_state.decode

    def slow_decode(*args: Any) -> Any:
        events.append("decode begins")
        time.sleep(PROGRAM_SECONDS)
        events.append("decode ends")
        return decode(*args)

    monkeypatch.setattr(engine._device_state, "decode", slow_decode)
    yield engine
    engine.close()


def trainer_of(runtime: Runtime, events: list[str]) -> PhaseTrainer:
    """A trainer whose update only notes when it is called."""

    def step(state: Any, groups: Any, runtime: Runtime) -> Any:
        events.append("update")
        return state, {}

    trainer: Any = object.__new__(PhaseTrainer)
    trainer._run = SimpleNamespace(runtime=runtime, models={"policy": None})
    trainer._phase = SimpleNamespace(trained_agents=())
    trainer._algorithm, trainer._state = SimpleNamespace(step=step), None
    trainer._invariants = SimpleNamespace(
        check_groups=lambda *_: None, end_step=lambda *_: None, explain=lambda *_: None
    )
    return trainer


def test_an_update_begins_after_the_programs_of_calls_that_were_given_up(
    engine: LocalEngine, events: list[str]
):
    timeouts = Timeouts(PROGRAM_SECONDS / 2)  # in the middle of a program
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool(), 0, timeouts) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(2), [chain_task()], (0, 0))
        assert group.trajectories == () and group.num_dropped == 2
        assert events[-1] == "decode begins"  # the engine is still at it
        trainer_of(runtime, events)._update(0, [], max_staleness=0)
        time.sleep(1.5 * PROGRAM_SECONDS)
    assert events[-2:] == ["decode ends", "update"]  # and no program begins after it
    assert events.count("update") == 1


def test_an_update_beside_asynchronous_rollouts_does_not_wait_for_them(
    engine: LocalEngine, events: list[str]
):
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool()) as runtime:
        future = engine.submit(np.ones(3, np.int32), Sampling(budget=9), (0,))
        trainer_of(runtime, events)._update(0, [], max_staleness=1)
        assert "update" in events
        assert not future.done()


def test_a_stopped_engine_is_idle(engine: LocalEngine):
    engine.submit(np.ones(3, np.int32), Sampling(budget=9), (0,))
    engine.close()
    engine.wait_until_idle()
