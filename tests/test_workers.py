"""Worlds that raise, die, dawdle, print and lie: what the rest of the run sees of it."""

import asyncio
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import naughty
import pytest
from hand_made import ScriptedEngine, alive

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.actors import Actors, ClusterConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.processes import Processes
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.threads import Threads
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.workers import InProcess, Task, Workers, World, importable

MAZE = "agentrl_jax.envs:agentrl/MazePO-v0"
WORDLE = "agentrl_jax.envs:agentrl/Wordle-v0"


def naughty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(naughty.NAME, seed, {"how": how, **options})


def pids(runtime: Runtime) -> list[int]:
    workers = runtime._workers
    assert isinstance(workers, Processes)
    return [process.pid for process in workers._now.values() if process.pid is not None and not process.leaving]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """One worker process, no second try."""
    with Runtime({}, {}, Processes(1), retries=0) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def far(ray_here: Any) -> Iterator[Runtime]:
    """One worker process of a Ray actor, no second try."""
    with Runtime({}, {}, Actors(ClusterConfig(actors=1)), retries=0) as runtime:
        yield runtime


@pytest.fixture(params=["in process", "threads", "processes", pytest.param("actors", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[Runtime]:
    if request.param == "processes":
        yield runtime
    elif request.param == "actors":
        yield request.getfixturevalue("far")
    else:
        with Runtime({}, {}, InProcess() if request.param == "in process" else Threads(1), retries=0) as local:
            yield local


def play(runtime: Runtime, task: Task, turns: int = 3, turn: float = 60.0) -> list[Any]:
    """What a world answers to so many actions, each within `turn` seconds."""

    async def episode() -> list[Any]:
        world = World(runtime._workers, task, Deadlines(turn))
        try:
            answers: list[Any] = [await world.reset()]
            return answers + [await world.step(assistant("x")) for _ in range(turns)]
        finally:
            world.close(keep=False)

    return runtime.run(episode())


def test_a_world_answers_the_same_wherever_it_lives(runtime: Runtime):
    def everything(workers: Runtime) -> list[Any]:
        tasks = [Task(name, seed) for name in (MAZE, WORDLE) for seed in range(6)]
        groups = [workers.collect(Scripted(player, 2), tasks, (0, 0)) for player in ("random", "expert")]
        return [
            (t.opening, t.task, t.seed, t.success, t.stop_reason, [dataclasses.astuple(turn) for turn in t.turns])
            for part in groups
            for group in part
            for t in group.trajectories
        ]

    with Runtime({}, {}, InProcess()) as local, Runtime({}, {}, Threads(3)) as threads:
        here = everything(local)
        assert len(here) == 48 and everything(runtime) == here == everything(threads)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_processes_answers_the_same(runtime: Runtime, count: int):
    tasks = [Task(WORDLE, seed) for seed in range(5)]

    def rewards(workers: Runtime) -> list[list[float]]:
        return [[t.total_reward for t in group.trajectories] for group in workers.collect(Scripted("mixture", 3), tasks, (1, 1))]

    with Runtime({}, {}, Processes(count)) as several:
        assert len(pids(several)) == count and rewards(several) == rewards(runtime)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", "ValueError: the world is broken"),
        ("raise in reset", "no reset today"),
        ("raise strangely", "RuntimeError: \ud800"),
        ("exit", "SystemExit: 3"),
    ],
)
def test_a_world_that_raises_is_a_failure_that_says_why(anywhere: Runtime, how: str, words: str):
    with pytest.raises(EnvironmentFailure, match=words):
        play(anywhere, naughty_task(how))
    assert len(play(anywhere, naughty_task(""))) == 4


def test_a_world_that_is_stepped_after_its_end_is_a_failure(anywhere: Runtime):
    with pytest.raises(EnvironmentFailure, match="the episode is over"):
        play(anywhere, naughty_task(""), turns=4)


@pytest.mark.parametrize(("how", "words"), [("die", "signal 9"), ("leave", "exit code 3")])
def test_a_worker_that_dies_fails_its_world_and_is_replaced(runtime: Runtime, how: str, words: str):
    play(runtime, naughty_task(""))
    (before,) = pids(runtime)
    with pytest.raises(EnvironmentFailure, match=rf"process 1, pid {before} died \({words}\)"):
        play(runtime, naughty_task(how))
    assert len(play(runtime, naughty_task(""))) == 4
    (after,) = pids(runtime)
    assert after != before and not alive(before)


def test_a_worker_killed_from_outside_is_replaced(runtime: Runtime):
    async def interrupted() -> None:
        world = World(runtime._workers, naughty_task(""))
        await world.reset()
        os.kill(pids(runtime)[0], signal.SIGKILL)
        with pytest.raises(EnvironmentFailure):
            await world.step(assistant("x"))
        with pytest.raises(EnvironmentFailure):  # the new worker does not know this world
            await world.step(assistant("x"))

    runtime.run(interrupted())
    assert len(play(runtime, naughty_task(""))) == 4


@pytest.mark.parametrize(
    "answer", ['[{"id": 0, "val', "Welcome to the game!\n", '[{"id": 99, "value": 1}]\n', "{}\n", "[]\n", "null\n", "[1]\n"]
)
def test_an_answer_that_is_none_is_a_failure_and_no_endless_wait(answer: str):
    linger = 0 if answer.endswith("val") else 600
    script = f"import sys, time; sys.stdin.readline(); sys.stdout.write({answer!r}); sys.stdout.flush(); time.sleep({linger})"
    workers = Processes(1, command=[sys.executable, "-c", script])
    words = "died" if answer.endswith("val") else "answered what was not asked"
    with Runtime({}, {}, workers) as runtime, pytest.raises(EnvironmentFailure, match=words):
        runtime.run(asyncio.wait_for(World(workers, naughty_task("")).reset(), 30))


def test_a_deadline_is_kept_and_the_worker_replaced(runtime: Runtime):
    play(runtime, naughty_task(""))
    (before,) = pids(runtime)
    with pytest.raises(DeadlineExceeded, match=rf"no answer from process 1, pid {before} in 0\.5 s"):
        play(runtime, naughty_task("sleep"), turn=0.5)
    assert len(play(runtime, naughty_task(""))) == 4
    assert not alive(before)


@pytest.mark.parametrize("how", ["print", "read", "huge"])
def test_what_a_world_prints_or_reads_does_not_get_into_the_pipe(runtime: Runtime, how: str):
    answers = play(runtime, naughty_task(how))
    assert [answer[0][0].text for answer in answers] == ["begin\n", "turn 1\n", "turn 2\n", "turn 3\n"]
    info = answers[2][4]
    assert info.get("read", "") == "" and len(info.get("huge", "")) in (0, 5_000_000)


def test_info_may_hold_numbers_of_numpy(runtime: Runtime):
    info = play(runtime, naughty_task("arrays"))[2][4]
    assert (info["array"], info["number"], info["flag"]) == ([0, 1, 2], 0.5, True)


def test_info_that_is_no_plain_data_fails_its_own_world_alone(runtime: Runtime):
    async def side_by_side() -> list[Any]:
        worlds = [World(runtime._workers, naughty_task(how)) for how in ("", "secret", "")]
        for _ in range(2):
            await asyncio.gather(*(world.reset() for world in worlds))
            await asyncio.gather(*(world.step(assistant("x")) for world in worlds))
        return await asyncio.gather(*(world.step(assistant("x")) for world in worlds), return_exceptions=True)

    first, second, third = runtime.run(side_by_side())
    assert isinstance(second, EnvironmentFailure) and "must be plain data (not object)" in str(second)
    assert first[0][0].text == third[0][0].text == "turn 2\n"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda runtime: play(runtime, Task("agentrl/Nowhere-v0", 0)), "no environment is called 'agentrl/Nowhere-v0'"),
        (lambda runtime: play(runtime, Task(WORDLE, 0, {"wordz": 3})), "does not take the options {'wordz': 3}"),
        (lambda runtime: play(runtime, Task(WORDLE, 0, {"words": 0})), "words must be between 1 and"),
        (lambda runtime: play(runtime, Task(WORDLE, 0, reset_options={"goal": 1})), "Wordle has no reset option"),
        (lambda runtime: runtime.collect(Scripted("nobody"), [Task(WORDLE, 0)], (0, 0)), "Wordle has no player 'nobody'; it has random"),
    ],
)
def test_what_a_person_got_wrong_is_told_to_that_person(anywhere: Runtime, act: Callable[[Runtime], Any], words: str):
    with pytest.raises(UserError, match=words):
        act(anywhere)
    assert anywhere.failures.total == 0


def test_one_wrong_task_among_many_stops_the_collection_cleanly():
    tasks = [Task(WORDLE, seed, {"words": 0 if seed == 3 else 10}) for seed in range(12)]
    with Runtime({}, {}, Processes(2)) as runtime:
        with pytest.raises(UserError, match="words must be"):
            runtime.collect(Scripted("random", 2), tasks, (0, 0))
        assert len(runtime.collect(Scripted("random", 2), tasks[:3], (0, 0))) == 3


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_a_retry_has_a_fresh_world_and_is_counted(tmp_path: Path):
    path = tmp_path / "resets"
    task = naughty_task("raise", path=str(path), times=2)
    with Runtime({}, {}, InProcess(), retries=2) as runtime:
        (group,) = runtime.collect(Scripted("random"), [task], (0, 0))
    assert runtime.failures.total == 2 and lines(path) == 3 and group.dropped == 0
    (trajectory,) = group.trajectories
    assert [turn.reward for turn in trajectory.turns] == [1.0, 1.0, 1.0] and trajectory.success
    assert len({turn.info["world"] for turn in trajectory.turns}) == 1


def test_a_retry_after_a_death_works_too(tmp_path: Path):
    path = tmp_path / "resets"
    with Runtime({}, {}, Processes(1), retries=1) as runtime:
        (group,) = runtime.collect(Scripted("random"), [naughty_task("die", path=str(path))], (0, 0))
    assert runtime.failures.total == 1 and lines(path) == 2 and group.trajectories[0].total_reward == 3.0


def test_an_episode_that_always_fails_is_dropped_and_never_scored(tmp_path: Path):
    path = tmp_path / "resets"
    tasks = [naughty_task("raise", path=str(path), times=99), naughty_task("")]
    with Runtime({}, {}, InProcess(), retries=2) as runtime:
        bad, good = runtime.collect(Scripted("random", 2), tasks, (0, 0))
    assert (bad.dropped, bad.trajectories) == (2, ()) and runtime.failures.total == 6 == lines(path)
    assert good.dropped == 0 and [t.total_reward for t in good.trajectories] == [3.0, 3.0]


RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))


def test_a_group_goes_on_without_its_dropped_members_and_gives_back_every_row(tmp_path: Path):
    path, engine = tmp_path / "resets", ScriptedEngine(RENDERER, "x")
    with Runtime({"policy": engine}, {"policy": AGENT}, InProcess(), retries=0) as runtime:
        (group,) = runtime.collect(Independent(4), [naughty_task("raise", path=str(path), times=3)], (0, 0))
    assert isinstance(group, Group) and group.dropped == 3 == runtime.failures.total == runtime.failures.dropped
    (trajectory,) = group.trajectories
    assert trajectory.total_reward == 3.0 and [turn.action.text for turn in trajectory.turns] == ["x"] * 3
    # three worlds broke after their second action, one played to its end; nothing stays cached
    assert engine.submitted == 3 * 2 + 3 and engine.held == []


def test_a_sampled_episode_ends_where_its_context_is_full():
    engine = ScriptedEngine(RENDERER, "x", last=1)
    with Runtime({"policy": engine}, {"policy": AGENT}, InProcess()) as runtime:
        (group,) = runtime.collect(Independent(1), [naughty_task("")], (0, 0))
    trajectory: Trajectory = group.trajectories[0]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.success) == (1, "context", None) and engine.held == []


def test_closing_leaves_no_process_behind():
    runtime = Runtime({}, {}, Processes(3), retries=0)
    before = pids(runtime)
    assert len(before) == 3 and all(map(alive, before))
    with pytest.raises(EnvironmentFailure):
        play(runtime, naughty_task("die"))
    play(runtime, naughty_task(""))
    now = pids(runtime)
    runtime.close()
    runtime.close()
    assert not any(alive(pid) for pid in {*before, *now})


def test_closing_in_the_middle_of_a_step_leaves_no_process_behind():
    runtime = Runtime({}, {}, Processes(1))

    async def begun() -> None:
        world = World(runtime._workers, naughty_task("sleep"))
        await world.reset()
        await world.step(assistant("x"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.step(assistant("x")), 0.2)

    runtime.run(begun())
    before = pids(runtime)
    runtime.close()
    assert len(before) == 1 and not alive(before[0])


def test_workers_need_a_process():
    with pytest.raises(UserError, match="at least one process, not 0"):
        Processes(0)


def test_every_pool_is_workers():
    assert all(isinstance(pool, Workers) for pool in (InProcess(), Threads(1), Processes(1), Actors(ClusterConfig(actors=1))))


def test_a_registered_name_says_where_it_can_be_imported_from():
    assert importable("Naughty-v0") == naughty.NAME
    assert importable("agentrl/MazePO-v0") == "agentrl_jax.envs.lmrl.maze:agentrl/MazePO-v0"
    assert importable(MAZE) == MAZE and importable("unknown") == "unknown"


def test_a_name_registered_here_can_be_made_in_a_worker(runtime: Runtime):
    assert len(play(runtime, Task("Naughty-v0", 0))) == 4


def test_a_runtime_works_where_a_loop_runs_already_as_in_a_notebook():
    async def cell() -> float:
        with Runtime({}, {}, Processes(1)) as inner:
            (group,) = inner.collect(Scripted("random"), [naughty_task("")], (0, 0))
        return group.trajectories[0].total_reward

    assert asyncio.run(cell()) == 3.0


def test_an_interrupted_cell_of_a_notebook_leaves_nothing_behind():
    async def cell() -> list[int]:
        inner = Runtime({}, {}, Processes(1))
        before = pids(inner)
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            inner.collect(Scripted("random"), [naughty_task("sleep")], (0, 0))
        inner.close()
        return before

    loop = asyncio.new_event_loop()  # not asyncio.run, which has a handler of its own for Ctrl-C
    try:
        (before,) = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert not alive(before)
