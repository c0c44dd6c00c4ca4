"""Deadlines that nest, and the watchdog that names who is stuck."""

import re
import threading
import time
import timeit
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import naughty
import numpy as np
import pytest
from hand_made import ScriptedEngine, make_call

from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.processes import Processes
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.threads import Threads
from agentrl_jax.trajectories import Call, Key, Sampling
from agentrl_jax.watchdog import Watchdog
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))


def naughty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(naughty.NAME, seed, {"how": how, **options})


class Silent(ScriptedEngine):
    """Answers nothing until it is told to; `taken` requests can no longer be given up."""

    def __init__(self, taken: bool) -> None:
        super().__init__(RENDERER, "x")
        self.taken, self.pending = taken, []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        self.submitted += 1
        future: Future[Call] = Future()
        if self.taken:
            future.set_running_or_notify_cancel()
        self.pending.append(future)
        return future

    def answer(self) -> None:
        for future in self.pending:
            if not future.cancelled():
                self.held.append(make_call([1], [2]))
                future.set_result(self.held[-1])


@pytest.mark.parametrize(
    "fields",
    [{"turn": 0.0}, {"turn": 3600.0}, {"episode": 1.0}, {"group": 3600.0}, {"group": float("inf")}, {"turn": float("nan")}, {"watch": 0.0}],
)
def test_deadlines_that_do_not_nest_are_refused(fields: dict[str, float]):
    with pytest.raises(UserError, match="0 < turn < episode < group"):
        Runtime({}, {}, InProcess(), deadlines=Deadlines(**fields))


@pytest.mark.parametrize("taken", [False, True])
def test_a_call_that_is_late_is_given_up_and_gives_its_row_back(taken: bool):
    engine = Silent(taken)
    with Runtime({"policy": engine}, {"policy": AGENT}, InProcess(), 1, Deadlines(0.1)) as runtime:
        (group,) = runtime.collect(Independent(1), [naughty_task("")], (0, 0))
        assert (group.dropped, group.trajectories, engine.submitted) == (1, (), 2)
        assert runtime.failures.record() == {
            "total": 2, "dropped": 1,
            "kinds": {"deadline": {"count": 2, "last": "naughty:Naughty-v0#0: a call of the engine 'policy' took longer than 0.1 s"}},
        }  # fmt: skip
        engine.answer()
    assert [future.cancelled() for future in engine.pending] == [not taken] * 2 and engine.held == []


def test_a_sample_outside_of_an_episode_has_a_deadline_too():
    engine = Silent(True)
    with Runtime({"policy": engine}, {"policy": AGENT}, InProcess(), 1, Deadlines(0.1)) as runtime:
        with pytest.raises(DeadlineExceeded, match="the engine 'policy'"):
            runtime.run(runtime.sample("policy", [np.array([1, 2], np.int32)], 2, (0, 0)))
        engine.answer()
    assert engine.held == []


def test_an_episode_whose_turns_are_all_in_time_may_still_be_late():
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, Threads(2), 0, Deadlines(1.0, 5.0)) as runtime:
        runtime.deadlines = Deadlines(0.9, 0.1)  # unnested on purpose: the turn's deadline is not what ends it
        (group,) = runtime.collect(Independent(1), [naughty_task("nap")], (0, 0))
    assert group.dropped == 1 and "sample 0 took longer than 0.1 s" in runtime.failures.last["deadline"]


def test_what_a_group_has_when_its_time_is_up_is_kept(tmp_path: Path):
    """The first of three worlds naps and breaks again and again; the others are played."""
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    task = naughty_task("nap and raise", path=str(tmp_path / "resets"), times=1)
    with Runtime(engines, agents, Threads(3), 1000, Deadlines(1.0, 1.5, 2.0)) as runtime:
        began = time.monotonic()
        stuck, played = runtime.collect(Independent(2), [naughty_task("nap and raise"), task], (0, 0))
        seconds = time.monotonic() - began
    assert (stuck.dropped, stuck.trajectories) == (2, ()) and 2.0 <= seconds < 10.0
    assert played.dropped == 0 and [t.total_reward for t in played.trajectories] == [3.0, 3.0]
    assert runtime.failures.counts["deadline"] == 2 and runtime.failures.dropped == 2
    assert "after the 2 s that a group has" in runtime.failures.last["deadline"]


def test_the_clock_of_a_group_starts_with_its_first_episode():
    """One place, eight groups of 0.3 s each: the last is not late, though all together take longer than a group may."""
    engine = ScriptedEngine(RENDERER, "x")
    engine.places = 1
    with Runtime({"policy": engine}, {"policy": AGENT}, Threads(1), 0, Deadlines(1.0, 1.5, 2.0)) as runtime:
        groups = runtime.collect(Independent(1), [naughty_task("nap", seed) for seed in range(8)], (0, 0))
    assert [group.dropped for group in groups] == [0] * 8


def watched(runtime_of: Any, task: Task) -> list[str]:
    told: list[str] = []
    with runtime_of(told.append) as runtime:
        runtime.collect(Independent(2), [task], (0, 0))
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
    return [line for line in told if "waits" in line]


def test_the_watchdog_names_the_world_that_is_waited_for():
    def runtime(say: Any) -> Runtime:
        engines = {"policy": ScriptedEngine(RENDERER, "x")}
        return Runtime(engines, {"policy": AGENT}, Processes(1), 0, Deadlines(1.5, watch=0.2), say)

    lines = watched(runtime, naughty_task("sleep", 5))
    stuck = r"Naughty-v0#5 sample \d turn 1 waits \d s for its world \(process 1, pid \d+\)"
    assert any(re.fullmatch(stuck, line) for line in lines)
    assert any(re.fullmatch(stuck.replace(r"\)", r", busy with another one\)"), line) for line in lines)
    assert 2 <= len(lines) <= 16  # each wait at most at 0.2, 0.4, 0.8 s


def test_the_watchdog_sees_a_world_that_holds_up_the_event_loop():
    def runtime(say: Any) -> Runtime:
        return Runtime({"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, InProcess(), 0, Deadlines(watch=0.1), say)

    assert any(re.search(r"turn 1 waits \d s for its world \(this process\)", line) for line in watched(runtime, naughty_task("nap")))


def test_the_watchdog_names_the_engine():
    def runtime(say: Any) -> Runtime:
        return Runtime({"policy": Silent(False)}, {"policy": AGENT}, InProcess(), 0, Deadlines(0.6, watch=0.1), say)

    lines = watched(runtime, naughty_task("", 7))
    stuck = r"Naughty-v0#7 sample \d turn 0 waits \d s for the engine 'policy'(; so do 1 more)?"
    assert lines and all(re.fullmatch(stuck, line) for line in lines)


def test_a_wait_is_reported_when_its_age_has_doubled(monkeypatch: pytest.MonkeyPatch):
    now, told = [1000.0], []
    dog = Watchdog(1e9, told.append)  # its own thread sleeps
    monkeypatch.setattr("agentrl_jax.watchdog.time.monotonic", lambda: now[0])
    dog._patience = 10.0
    with dog.wait(naughty_task("", 3), 1, 2, lambda: "Godot"):
        for _ in range(100):
            now[0] += 1.0
            dog.look()
    dog.look()
    dog.close()
    assert told == [f"Naughty-v0#3 sample 1 turn 2 waits {age} s for Godot" for age in (10, 20, 40, 80)]


@pytest.mark.parametrize("pool", [InProcess, lambda: Threads(1), lambda: Processes(1)])
def test_an_episode_that_a_player_plays_whole_has_a_deadline_for_each_turn(pool: Any):
    """Two worlds nap once for 0.3 s, and one never ends; their neighbours do not pay for it."""
    tasks = [naughty_task(how, seed) for seed, how in enumerate(("nap", "", "endless", "nap"))]
    with Runtime({}, {}, pool(), 0, Deadlines(5.0, 6.0)) as runtime:
        runtime.collect(Scripted("random"), [naughty_task("")], (0, 0))
        runtime.deadlines = Deadlines(1.0, 1.2)
        groups = runtime.collect(Scripted("random"), tasks[:2], (0, 1))
        runtime.deadlines = Deadlines(0.2, 20.0)
        groups += runtime.collect(Scripted("random"), [tasks[3]], (0, 2))
        runtime.deadlines = Deadlines(0.2, 0.5)
        groups += runtime.collect(Scripted("random"), [tasks[2]], (0, 3))
    assert [group.dropped for group in groups] == [0, 0, 1, 1] and runtime.failures.counts == {"deadline": 2}


def test_a_watched_wait_costs_microseconds():
    dog, task = Watchdog(60.0, print), naughty_task("")

    def wait() -> None:
        with dog.wait(task, 0, 0, str):
            pass

    seconds = min(timeit.repeat(wait, number=1000, repeat=5)) / 1000
    dog.close()
    assert seconds < 100e-6  # with the run-time type checks of tests; about one microsecond without
