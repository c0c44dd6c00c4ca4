"""Faults injected into worlds of every pool: the run goes on, nothing is scored as 0, the report says what happened."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naughty
import pytest
from hand_made import ScriptedEngine, alive

from agentrl_jax.actors import Actors, ClusterConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.experiment import EnvironmentConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.processes import Processes, check_interpreter
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.run import make_workers
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.threads import Threads
from agentrl_jax.trajectories import Sampling
from agentrl_jax.worker import checked_step
from agentrl_jax.workers import InProcess, Task, Workers

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
MB = 2**20


def naughty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(naughty.NAME, seed, {"how": how, **options})


def in_process() -> Workers:
    return InProcess(largest=MB)


def in_a_thread() -> Workers:
    return Threads(1, largest=MB)


def in_a_process() -> Workers:
    return Processes(1, memory=1024 * MB, largest=MB)


def in_an_actor() -> Workers:
    return Actors(ClusterConfig(actors=1), memory=1024 * MB, largest=MB)


HERE = (in_process, in_a_thread, in_a_process)
DEAD = [
    ("sleep", "deadline", " in 0.9 s"),
    ("die", "died", "died (signal 9)"),
    ("leave", "died", "died (exit code 3)"),
    ("leak", "memory", "the worker ran out of memory"),
    ("chatter", "flood", "printed more than 1,048,576 bytes in one turn"),
]
FAULTS = [
    *((pool, how, kind, words) for pool in (*HERE, in_an_actor) for how, kind, words in [
        ("raise", "raised", "ValueError: the world is broken"),
        ("exit", "raised", "SystemExit: 3"),
        ("NaN", "nonsense", "a reward must be a finite number, not nan"),
        ("no opening", "nonsense", "reset must return at least one message"),
        ("secret", "nonsense", "info must be plain data (not object)"),
        ("huge", "flood", "bytes, where at most 1,048,576 are allowed"),
    ]),
    (in_process, "nap", "deadline", "no answer from this process in 0.2 s"),
    (in_a_thread, "sleep", "deadline", "no answer from thread 1 in 0.9 s"),
    *((pool, *dead) for pool in (in_a_process, in_an_actor) for dead in DEAD),
]  # fmt: skip


def far(pool: Any) -> Any:
    """Pools of Ray start slowly."""
    return pytest.mark.slow if pool is in_an_actor else ()


@pytest.mark.parametrize(("pool", "how", "kind", "words"), [pytest.param(*fault, marks=far(fault[0])) for fault in FAULTS])
def test_the_run_goes_on_without_the_world_that_always_fails(
    pool: Callable[[], Workers], how: str, kind: str, words: str, request: pytest.FixtureRequest
):
    if pool is in_an_actor:
        request.getfixturevalue("ray_here")
    told: list[str] = []
    engine = ScriptedEngine(RENDERER, "x")
    turn = {"sleep": 0.9, "nap": 0.2, "chatter": 30.0}.get(how, 20.0)
    tasks = [naughty_task("", 1), naughty_task(how, 2), naughty_task("", 3)]
    before = set(threading.enumerate())
    with Runtime({"policy": engine}, {"policy": AGENT}, pool(), 1, Deadlines(turn), told.append) as runtime:
        groups = runtime.collect(Independent(2), tasks, (0, 0))
        failures = runtime.failures
        again = runtime.collect(Independent(2), [naughty_task("", 4)], (0, 1))  # the pool is whole again
    for group in (groups[0], groups[2], *again):
        assert group.dropped == 0 and [t.total_reward for t in group.trajectories] == [3.0, 3.0]
    assert (groups[1].trajectories, groups[1].dropped) == ((), 2)
    assert failures.counts[kind] == 4 and set(failures.counts) <= {kind, "lost"} and failures.dropped == 2
    assert words in failures.last[kind] and "#2" in failures.last[kind]
    assert failures.metrics()["env/failures"] == failures.total and failures.metrics()[f"env/failed/{kind}"] == 4.0
    assert failures.record()["kinds"][kind]["count"] == 4
    assert sum(f"a world failed ({kind};" in line for line in told) == 1 and sum("was dropped" in line for line in told) == 1
    assert engine.held == []
    left = [thread for thread in set(threading.enumerate()) - before if "waitpid" not in thread.name and "ray" not in thread.name]
    assert [thread.name for thread in left if thread.is_alive()] == (
        ["worlds of thread 1"] * 4 if pool is in_a_thread and how == "sleep" else []
    )


@pytest.mark.parametrize("how", ["raise", "die", "NaN", "leak", "sleep"])
def test_a_passing_fault_leaves_no_trace_in_the_data(tmp_path: Path, how: str):
    task = naughty_task(how, path=str(tmp_path / "resets"))
    with Runtime({"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, in_a_process(), 1, Deadlines(0.9)) as runtime:
        (group,) = runtime.collect(Independent(2), [task], (0, 0))
    assert group.dropped == 0 and [t.sample for t in group.trajectories] == [0, 1]
    assert [t.total_reward for t in group.trajectories] == [3.0, 3.0] and runtime.failures.total >= 1


@pytest.mark.parametrize("how", sorted(naughty.NONSENSE))
def test_what_is_no_step_is_named_as_such(how: str):
    with pytest.raises(EnvironmentFailure, match="must") as caught:
        checked_step(naughty.NONSENSE[how])
    assert caught.value.kind == "nonsense"


@pytest.mark.parametrize("how", ["arrays", "deep", "secret", "text", "no text", "surrogate"])
def test_all_pools_agree_on_what_is_accepted(how: str):
    def told(workers: Workers) -> Any:
        with Runtime({}, {}, workers, retries=0) as runtime:
            (group,) = runtime.collect(Scripted("random"), [naughty_task(how)], (0, 0))
            turns = [(t.observation, t.reward, {**t.info, "world": 0}) for one in group.trajectories for t in one.turns]
            return turns, runtime.failures.last

    here, *elsewhere = [told(pool()) for pool in HERE]
    assert (len(here[0]) == 3) == (how == "arrays") and all(other == here for other in elsewhere)


def test_a_world_does_not_pay_for_its_neighbours():
    """With no second try at all, only those whose own world failed are dropped."""
    tasks = [naughty_task("die" if seed % 4 == 0 else "", seed) for seed in range(8)]
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, in_a_process(), 0) as runtime:
        groups = runtime.collect(Independent(1), tasks, (0, 0))
    assert [group.dropped for group in groups] == [1, 0, 0, 0, 1, 0, 0, 0] and runtime.failures.counts["died"] == 2


def test_a_worker_killed_in_the_middle_of_a_turn(tmp_path: Path):
    path = tmp_path / "resets"
    workers = Processes(1)

    def kill() -> None:
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(workers._now[0].pid or 0, signal.SIGKILL)

    with Runtime({"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, workers, 1) as runtime:
        killer = threading.Thread(target=kill)
        killer.start()
        (group,) = runtime.collect(Independent(1), [naughty_task("sleep", path=str(path))], (0, 0))
        killer.join()
    assert group.trajectories[0].total_reward == 3.0 and runtime.failures.counts == {"died": 1}


def test_what_a_world_started_ends_with_it(tmp_path: Path):
    path = tmp_path / "pid"
    with Runtime({}, {}, Processes(1), 0, Deadlines(1.0, 2.0)) as runtime:
        (group,) = runtime.collect(Scripted("random"), [naughty_task("children", children=str(path))], (0, 0))
        assert group.dropped == 1 and runtime.failures.counts == {"deadline": 1}
    child = int(path.read_text())
    until = time.monotonic() + 5
    while alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(child)


@pytest.mark.slow
def test_a_world_that_hangs_does_not_outlive_whoever_asked_for_it(tmp_path: Path):
    path = tmp_path / "pid"
    code = (
        "from agentrl_jax.processes import Processes\nfrom agentrl_jax.runtime import Runtime\n"
        "from agentrl_jax.strategies import Scripted\nfrom agentrl_jax.workers import Task\n"
        f"task = Task({naughty.NAME!r}, 0, {{'how': 'children', 'children': {str(path)!r}}})\n"
        "Runtime({}, {}, Processes(1)).collect(Scripted('random'), [task], (0, 0))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    until = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    child = int(path.read_text())
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(child)


def test_spares_fill_a_group_and_the_dropped_are_still_counted(tmp_path: Path):
    task = naughty_task("raise", path=str(tmp_path / "resets"), times=3)
    with Runtime({"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, InProcess(), 0) as runtime:
        (group,) = runtime.collect(Independent(3, spares=4), [task], (0, 0))
    assert [t.sample for t in group.trajectories] == [3, 4, 5] and group.dropped == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workers": -1}, "must be at least 0"),
        ({"reply_mb": 0}, "reply_mb at least 1"),
        ({"workers": 0, "threads": True}, "the number of threads, to be at least 1"),
        ({"workers": 0, "interpreter": sys.executable}, "for worker processes"),
        ({"workers": 2, "threads": True, "memory_mb": 512}, "for worker processes"),
        ({"memory_mb": 10}, "at least 256"),
        ({"workers": 0, "cluster": ClusterConfig(actors=1)}, "cluster is for worker processes"),
        ({"threads": True, "cluster": ClusterConfig(actors=1)}, "cluster is for worker processes"),
        ({"cluster": ClusterConfig(actors=1, silence=0.0)}, "seconds above 0"),
        ({"interpreter": "/no/such/python"}, "cannot be run"),
        ({"interpreter": "/bin/false"}, "cannot run a worker"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(fields: dict[str, Any], words: str):
    with pytest.raises(UserError, match=words):
        make_workers(EnvironmentConfig(**fields))


def test_each_field_chooses_its_pool():
    far = EnvironmentConfig(cluster=ClusterConfig(actors=2))
    configs = (EnvironmentConfig(workers=0), EnvironmentConfig(threads=True), EnvironmentConfig(memory_mb=300), far)
    assert [type(make_workers(config)) for config in configs] == [InProcess, Threads, Processes, Actors]


def test_a_worker_may_have_an_interpreter_without_jax(tmp_path: Path):
    (tmp_path / "jax.py").write_text("raise ImportError('there is no JAX here')")
    path = os.pathsep.join([str(tmp_path), *(folder for folder in sys.path if folder)])
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    assert subprocess.run([other, "-c", "import jax"], capture_output=True).returncode
    check_interpreter(str(other))
    with Runtime({}, {}, make_workers(EnvironmentConfig(naughty.NAME, interpreter=str(other))), 0) as runtime:
        (group,) = runtime.collect(Scripted("random"), [naughty_task("")], (0, 0))
    assert group.trajectories[0].total_reward == 3.0


def test_a_worker_that_cannot_be_started_is_told_to_the_user():
    with pytest.raises(UserError, match="cannot be started"):
        Runtime({}, {}, Processes(2, command=["/no/such/program"]))
