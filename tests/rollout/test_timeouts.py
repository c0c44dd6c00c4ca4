"""Nested deadlines, and the watchdog that names who is stuck."""

import re
import threading
import time
import timeit
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine, make_call

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.rollout.watchdog import Watchdog
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Call, RandomKey, Sampling
from agentrl_jax.workers.pool import InlinePool, Task
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.thread_pool import ThreadPool

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))


def faulty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": how, **options})


class Silent(ScriptedEngine):
    """Ends no call until `answer` is called; if `taken`, its calls can no longer be cancelled."""

    def __init__(self, taken: bool) -> None:
        super().__init__(RENDERER, "x")
        self.taken, self.pending = taken, []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        self.num_submitted += 1
        future: Future[Call] = Future()
        if self.taken:
            future.set_running_or_notify_cancel()
        self.pending.append(future)
        return future

    def answer(self) -> None:
        for future in self.pending:
            if not future.cancelled():
                self.held_calls.append(make_call([1], [2]))
                future.set_result(self.held_calls[-1])


@pytest.mark.parametrize(
    "fields",
    [
        {"turn": 0.0},
        {"turn": 3600.0},
        {"episode": 1.0},
        {"group": 3600.0},
        {"group": float("inf")},
        {"turn": float("nan")},
        {"stall_report": 0.0},
    ],
)
def test_timeouts_that_do_not_nest_are_refused(fields: dict[str, float]):
    with pytest.raises(UserError, match="0 < turn < episode < group"):
        Runtime({}, {}, InlinePool(), timeouts=Timeouts(**fields))


@pytest.mark.parametrize("taken", [False, True])
def test_a_late_call_is_cancelled_and_frees_its_slot(taken: bool):
    engine = Silent(taken)
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool(), 1, Timeouts(0.1)) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(1), [faulty_task("")], (0, 0))
        assert (group.num_dropped, group.trajectories, engine.num_submitted) == (1, (), 2)
        assert runtime.failures.to_dict() == {
            "total": 2,
            "dropped": 1,
            "kinds": {
                "deadline": {
                    "count": 2,
                    "last": "support.faulty_envs:Faulty-v0#0: "
                    "a call of the engine 'policy' took longer than 0.1 s",
                }
            },
        }
        engine.answer()
    assert [future.cancelled() for future in engine.pending] == [
        not taken
    ] * 2 and engine.held_calls == []


def test_a_sample_outside_of_an_episode_has_a_timeout():
    engine = Silent(True)
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool(), 1, Timeouts(0.1)) as runtime:
        with pytest.raises(DeadlineExceeded, match="the engine 'policy'"):
            runtime.run(runtime.sample("policy", [np.array([1, 2], np.int32)], 2, (0, 0)))
        engine.answer()
    assert engine.held_calls == []


def test_a_sample_within_an_episode_of_the_same_engine_is_refused():
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    prompts = [np.array([1, 2], np.int32)]
    with Runtime(engines, agents, ThreadPool(1), 0, Timeouts(5.0)) as runtime:

        async def sampling_episode(env: Any, track_wait: Any) -> Any:
            return await runtime.sample("policy", prompts, 1, (0, 0))

        episode = runtime.run_in_slot(faulty_task("nap"), AGENT, 0, sampling_episode)
        with pytest.raises(UserError, match="slot of the engine 'policy' asks for another one"):
            runtime.run(episode)
        ((call,),) = runtime.run(runtime.sample("policy", prompts, 1, (0, 0)))
    assert len(call.action)


def test_an_episode_of_timely_turns_may_exceed_its_timeout():
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, ThreadPool(2), 0, Timeouts(3.0, 5.0)) as runtime:
        runtime.timeouts = Timeouts(
            0.9, 0.1
        )  # not nested, so that the episode's deadline is the one that passes
        (group,) = runtime.collect(IndependentEpisodes(1), [faulty_task("nap")], (0, 0))
    assert (
        group.num_dropped == 1
        and "sample 0 took longer than 0.1 s" in runtime.failures.last_messages["deadline"]
    )


@pytest.mark.slow
def test_a_group_keeps_its_finished_episodes_at_its_timeout(tmp_path: Path):
    """The first of three environments naps and fails on every attempt; the others finish."""
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    task = faulty_task("nap and raise", path=str(tmp_path / "resets"), times=1)
    with Runtime(engines, agents, ThreadPool(3), 1000, Timeouts(1.0, 1.5, 2.0)) as runtime:
        began = time.monotonic()
        stuck, finished = runtime.collect(
            IndependentEpisodes(2), [faulty_task("nap and raise"), task], (0, 0)
        )
        seconds = time.monotonic() - began
    assert (stuck.num_dropped, stuck.trajectories) == (2, ()) and 2.0 <= seconds < 10.0
    assert finished.num_dropped == 0 and [t.total_reward for t in finished.trajectories] == [
        3.0,
        3.0,
    ]
    assert runtime.failures.counts["deadline"] == 2 and runtime.failures.dropped == 2
    assert "after the 2 s that a group has" in runtime.failures.last_messages["deadline"]


@pytest.mark.slow
def test_the_clock_of_a_group_starts_with_its_first_episode():
    """One slot, eight groups of 0.3 s each: the last is not late, though all together take longer
    than one group's timeout.
    """
    engine = ScriptedEngine(RENDERER, "x")
    engine.num_slots = 1
    with Runtime(
        {"policy": engine}, {"policy": AGENT}, ThreadPool(1), 0, Timeouts(1.0, 1.5, 2.0)
    ) as runtime:
        groups = runtime.collect(
            IndependentEpisodes(1), [faulty_task("nap", seed) for seed in range(8)], (0, 0)
        )
    assert [group.num_dropped for group in groups] == [0] * 8


def watched(runtime_of: Any, task: Task) -> list[str]:
    lines: list[str] = []
    with runtime_of(lines.append) as runtime:
        runtime.collect(IndependentEpisodes(2), [task], (0, 0))
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
    return [line for line in lines if "waits" in line]


@pytest.mark.slow
def test_the_watchdog_names_the_environment_that_is_waited_for():
    def runtime(report: Any) -> Runtime:
        engines = {"policy": ScriptedEngine(RENDERER, "x")}
        return Runtime(
            engines, {"policy": AGENT}, ProcessPool(1), 0, Timeouts(1.5, stall_report=0.2), report
        )

    lines = watched(runtime, faulty_task("sleep", 5))
    stuck = r"Faulty-v0#5 sample \d turn 1 waits \d s for its environment \(process 1, pid \d+\)"
    assert any(re.fullmatch(stuck, line) for line in lines)
    assert any(
        re.fullmatch(stuck.replace(r"\)", r", busy with another one\)"), line) for line in lines
    )
    assert 2 <= len(lines) <= 16  # each wait at most at 0.2, 0.4, 0.8 s


def test_the_watchdog_sees_an_environment_that_blocks_the_event_loop():
    def runtime(report: Any) -> Runtime:
        return Runtime(
            {"policy": ScriptedEngine(RENDERER, "x")},
            {"policy": AGENT},
            InlinePool(),
            0,
            Timeouts(stall_report=0.1),
            report,
        )

    assert any(
        re.search(r"turn 1 waits \d s for its environment \(this process\)", line)
        for line in watched(runtime, faulty_task("nap"))
    )


def test_the_watchdog_names_the_engine():
    def runtime(report: Any) -> Runtime:
        return Runtime(
            {"policy": Silent(False)},
            {"policy": AGENT},
            InlinePool(),
            0,
            Timeouts(0.6, stall_report=0.1),
            report,
        )

    lines = watched(runtime, faulty_task("", 7))
    stuck = r"Faulty-v0#7 sample \d turn 0 waits \d s for the engine 'policy'(; so do 1 more)?"
    assert lines and all(re.fullmatch(stuck, line) for line in lines)


def test_a_wait_is_reported_when_its_age_has_doubled(monkeypatch: pytest.MonkeyPatch):
    now, lines = [1000.0], []
    watchdog = Watchdog(1e9, lines.append)  # its own thread sleeps
    monkeypatch.setattr("agentrl_jax.rollout.watchdog.time.monotonic", lambda: now[0])
    watchdog._threshold = 10.0
    with watchdog.track_wait(faulty_task("", 3), 1, 2, lambda: "Godot"):
        for _ in range(100):
            now[0] += 1.0
            watchdog.report_overdue()
    watchdog.report_overdue()
    watchdog.close()
    assert lines == [
        f"Faulty-v0#3 sample 1 turn 2 waits {age} s for Godot" for age in (10, 20, 40, 80)
    ]


@pytest.mark.parametrize("pool", [InlinePool, lambda: ThreadPool(1), lambda: ProcessPool(1)])
def test_a_scripted_episode_has_a_timeout_for_each_turn(pool: Any):
    """Two environments nap once for 0.3 s, and one never ends; the others are not delayed."""
    tasks = [faulty_task(how, seed) for seed, how in enumerate(("nap", "", "endless", "nap"))]
    with Runtime({}, {}, pool(), 0, Timeouts(5.0, 6.0)) as runtime:
        runtime.collect(ScriptedEpisodes("random"), [faulty_task("")], (0, 0))
        runtime.timeouts = Timeouts(3.0, 3.5)
        groups = runtime.collect(ScriptedEpisodes("random"), tasks[:2], (0, 1))
        runtime.timeouts = Timeouts(0.2, 20.0)
        groups += runtime.collect(ScriptedEpisodes("random"), [tasks[3]], (0, 2))
        runtime.timeouts = Timeouts(0.2, 0.5)
        groups += runtime.collect(ScriptedEpisodes("random"), [tasks[2]], (0, 3))
    assert [group.num_dropped for group in groups] == [0, 0, 1, 1] and runtime.failures.counts == {
        "deadline": 2
    }


def test_a_tracked_wait_costs_microseconds():
    watchdog, task = Watchdog(60.0, print), faulty_task("")

    def wait() -> None:
        with watchdog.track_wait(task, 0, 0, str):
            pass

    seconds = min(timeit.repeat(wait, number=1000, repeat=5)) / 1000
    watchdog.close()
    assert seconds < 100e-6  # with the run-time type checks of tests; about one microsecond without
