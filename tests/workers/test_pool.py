"""Environments that raise, die, hang, print or return invalid data, and what the run sees of it."""

import asyncio
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine, is_process_alive

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import Environment
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.workers import server
from agentrl_jax.workers.pool import EnvHandle, InlinePool, Task, WorkerPool, importable_env_name
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.ray_pool import ClusterConfig, RayPool
from agentrl_jax.workers.thread_pool import ThreadPool

MAZE = "agentrl_jax.envs:agentrl/MazePO-v0"
WORDLE = "agentrl_jax.envs:agentrl/Wordle-v0"


def faulty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": how, **options})


def pids(runtime: Runtime) -> list[int]:
    workers = runtime._worker_pool
    assert isinstance(workers, ProcessPool)
    return [
        process.pid
        for process in workers._current.values()
        if process.pid is not None and not process.is_closing
    ]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """One worker process, no retries."""
    with Runtime({}, {}, ProcessPool(1), retries=0) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def ray_runtime(ray_here: Any) -> Iterator[Runtime]:
    """One worker process of a Ray actor, no retries."""
    with Runtime({}, {}, RayPool(ClusterConfig(actors=1)), retries=0) as runtime:
        yield runtime


@pytest.fixture(
    params=["in process", "threads", "processes", pytest.param("actors", marks=pytest.mark.slow)]
)
def any_runtime(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[Runtime]:
    if request.param == "processes":
        yield runtime
    elif request.param == "actors":
        yield request.getfixturevalue("ray_runtime")
    else:
        with Runtime(
            {}, {}, InlinePool() if request.param == "in process" else ThreadPool(1), retries=0
        ) as local:
            yield local


def play(runtime: Runtime, task: Task, turns: int = 3, turn: float = 60.0) -> list[Any]:
    """The replies of an environment to so many actions, each within `turn` seconds."""

    async def episode() -> list[Any]:
        env = EnvHandle(runtime._worker_pool, task, Timeouts(turn))
        try:
            replies: list[Any] = [await env.reset()]
            return replies + [await env.step(assistant("x")) for _ in range(turns)]
        finally:
            env.close(reuse=False)

    return runtime.run(episode())


def test_all_pools_give_the_same_episodes(runtime: Runtime):
    def everything(workers: Runtime) -> list[Any]:
        tasks = [Task(name, seed) for name in (MAZE, WORDLE) for seed in range(6)]
        groups = [
            workers.collect(ScriptedEpisodes(player, 2), tasks, (0, 0))
            for player in ("random", "expert")
        ]
        return [
            (
                t.opening,
                t.task,
                t.seed,
                t.success,
                t.stop_reason,
                [dataclasses.astuple(turn) for turn in t.turns],
            )
            for part in groups
            for group in part
            for t in group.trajectories
        ]

    with Runtime({}, {}, InlinePool()) as local, Runtime({}, {}, ThreadPool(3)) as threads:
        expected = everything(local)
        assert len(expected) == 48 and everything(runtime) == expected == everything(threads)


def test_the_environments_that_wait_for_a_reset_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "MAX_IDLE_ENVS", 3)
    closed: list[str] = []
    monkeypatch.setattr(
        Environment, "close", lambda env: closed.append(str(env.spec and env.spec.kwargs))
    )
    envs = server.EnvServer(lambda: None)

    def play_and_close(env_id: int, length: int) -> None:
        envs.reset(env_id, "agentrl/Chain-v0", {"length": length}, 0, None)
        envs.close(env_id)

    for i, length in enumerate((2, 3, 4, 2, 2)):
        play_and_close(i, length)
    assert closed == []  # three kinds, and the first is used again
    play_and_close(5, 5)
    assert closed == ["{'length': 3}"]  # unused for the longest time
    play_and_close(6, 2)
    play_and_close(7, 3)
    assert closed == ["{'length': 3}", "{'length': 4}"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_processes_gives_the_same_episodes(runtime: Runtime, count: int):
    tasks = [Task(WORDLE, seed) for seed in range(5)]

    def rewards(workers: Runtime) -> list[list[float]]:
        return [
            [t.total_reward for t in group.trajectories]
            for group in workers.collect(ScriptedEpisodes("mixture", 3), tasks, (1, 1))
        ]

    with Runtime({}, {}, ProcessPool(count)) as several:
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
def test_an_environment_that_raises_is_a_failure_with_its_message(
    any_runtime: Runtime, how: str, words: str
):
    with pytest.raises(EnvironmentFailure, match=words):
        play(any_runtime, faulty_task(how))
    assert len(play(any_runtime, faulty_task(""))) == 4


def test_a_step_after_the_end_is_a_failure(any_runtime: Runtime):
    with pytest.raises(EnvironmentFailure, match="the episode is over"):
        play(any_runtime, faulty_task(""), turns=4)


@pytest.mark.parametrize(("how", "words"), [("die", "signal 9"), ("leave", "exit code 3")])
def test_a_worker_that_dies_fails_its_environment_and_is_replaced(
    runtime: Runtime, how: str, words: str
):
    play(runtime, faulty_task(""))
    (before,) = pids(runtime)
    with pytest.raises(EnvironmentFailure, match=rf"process 1, pid {before} died \({words}\)"):
        play(runtime, faulty_task(how))
    assert len(play(runtime, faulty_task(""))) == 4
    (after,) = pids(runtime)
    assert after != before and not is_process_alive(before)


def test_a_worker_killed_from_outside_is_replaced(runtime: Runtime):
    async def interrupted() -> None:
        env = EnvHandle(runtime._worker_pool, faulty_task(""))
        await env.reset()
        os.kill(pids(runtime)[0], signal.SIGKILL)
        with pytest.raises(EnvironmentFailure):
            await env.step(assistant("x"))
        with pytest.raises(EnvironmentFailure):  # the new worker does not know this environment
            await env.step(assistant("x"))

    runtime.run(interrupted())
    assert len(play(runtime, faulty_task(""))) == 4


@pytest.mark.parametrize(
    "reply",
    [
        '[{"id": 0, "val',
        "Welcome to the game!\n",
        '[{"id": 99, "value": 1}]\n',
        "{}\n",
        "[]\n",
        "null\n",
        "[1]\n",
    ],
)
def test_an_invalid_reply_is_a_failure_and_no_endless_wait(reply: str):
    linger = 0 if reply.endswith("val") else 600
    script = (
        f"import sys, time; sys.stdin.readline(); sys.stdout.write({reply!r}); "
        f"sys.stdout.flush(); time.sleep({linger})"
    )
    workers = ProcessPool(1, command=[sys.executable, "-c", script])
    words = "died" if reply.endswith("val") else "sent an invalid reply"
    with Runtime({}, {}, workers) as runtime, pytest.raises(EnvironmentFailure, match=words):
        runtime.run(asyncio.wait_for(EnvHandle(workers, faulty_task("")).reset(), 30))


def test_a_timeout_is_kept_and_the_worker_replaced(runtime: Runtime):
    play(runtime, faulty_task(""))
    (before,) = pids(runtime)
    with pytest.raises(
        DeadlineExceeded, match=rf"no answer from process 1, pid {before} in 0\.5 s"
    ):
        play(runtime, faulty_task("sleep"), turn=0.5)
    assert len(play(runtime, faulty_task(""))) == 4
    assert not is_process_alive(before)


@pytest.mark.parametrize("how", ["print", "read", "huge"])
def test_what_an_environment_prints_or_reads_does_not_get_into_the_pipe(runtime: Runtime, how: str):
    replies = play(runtime, faulty_task(how))
    assert [reply[0][0].text for reply in replies] == [
        "begin\n",
        "turn 1\n",
        "turn 2\n",
        "turn 3\n",
    ]
    info = replies[2][4]
    assert info.get("read", "") == "" and len(info.get("huge", "")) in (0, 5_000_000)


def test_info_may_contain_numpy_numbers(runtime: Runtime):
    info = play(runtime, faulty_task("arrays"))[2][4]
    assert (info["array"], info["number"], info["flag"]) == ([0, 1, 2], 0.5, True)


def test_info_that_is_no_plain_data_fails_only_its_own_environment(runtime: Runtime):
    async def side_by_side() -> list[Any]:
        env_handles = [
            EnvHandle(runtime._worker_pool, faulty_task(how)) for how in ("", "secret", "")
        ]
        for _ in range(2):
            await asyncio.gather(*(env.reset() for env in env_handles))
            await asyncio.gather(*(env.step(assistant("x")) for env in env_handles))
        return await asyncio.gather(
            *(env.step(assistant("x")) for env in env_handles), return_exceptions=True
        )

    first, second, third = runtime.run(side_by_side())
    assert isinstance(second, EnvironmentFailure) and "must be plain data (not object)" in str(
        second
    )
    assert first[0][0].text == third[0][0].text == "turn 2\n"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            lambda runtime: play(runtime, Task("agentrl/Nowhere-v0", 0)),
            "no environment is called 'agentrl/Nowhere-v0'",
        ),
        (
            lambda runtime: play(runtime, Task(WORDLE, 0, {"wordz": 3})),
            "does not take the options {'wordz': 3}",
        ),
        (
            lambda runtime: play(runtime, Task(WORDLE, 0, {"words": 0})),
            "words must be between 1 and",
        ),
        (
            lambda runtime: play(runtime, Task(WORDLE, 0, reset_options={"goal": 1})),
            "Wordle has no reset option",
        ),
        (
            lambda runtime: runtime.collect(ScriptedEpisodes("nobody"), [Task(WORDLE, 0)], (0, 0)),
            "Wordle has no scripted policy 'nobody'; it has random",
        ),
    ],
)
def test_user_errors_are_raised_and_not_counted_as_failures(
    any_runtime: Runtime, act: Callable[[Runtime], Any], words: str
):
    with pytest.raises(UserError, match=words):
        act(any_runtime)
    assert any_runtime.failures.total == 0


def test_one_wrong_task_among_many_stops_the_collection_cleanly():
    tasks = [Task(WORDLE, seed, {"words": 0 if seed == 3 else 10}) for seed in range(12)]
    with Runtime({}, {}, ProcessPool(2)) as runtime:
        with pytest.raises(UserError, match="words must be"):
            runtime.collect(ScriptedEpisodes("random", 2), tasks, (0, 0))
        assert len(runtime.collect(ScriptedEpisodes("random", 2), tasks[:3], (0, 0))) == 3


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_a_retry_has_a_fresh_environment_and_is_counted(tmp_path: Path):
    path = tmp_path / "resets"
    task = faulty_task("raise", path=str(path), times=2)
    with Runtime({}, {}, InlinePool(), retries=2) as runtime:
        (group,) = runtime.collect(ScriptedEpisodes("random"), [task], (0, 0))
    assert runtime.failures.total == 2 and lines(path) == 3 and group.num_dropped == 0
    (trajectory,) = group.trajectories
    assert [turn.reward for turn in trajectory.turns] == [1.0, 1.0, 1.0] and trajectory.success
    assert len({turn.info["world"] for turn in trajectory.turns}) == 1


def test_a_retry_after_a_death_works_too(tmp_path: Path):
    path = tmp_path / "resets"
    with Runtime({}, {}, ProcessPool(1), retries=1) as runtime:
        (group,) = runtime.collect(
            ScriptedEpisodes("random"), [faulty_task("die", path=str(path))], (0, 0)
        )
    assert (
        runtime.failures.total == 1
        and lines(path) == 2
        and group.trajectories[0].total_reward == 3.0
    )


def test_an_episode_that_always_fails_is_dropped_and_never_scored(tmp_path: Path):
    path = tmp_path / "resets"
    tasks = [faulty_task("raise", path=str(path), times=99), faulty_task("")]
    with Runtime({}, {}, InlinePool(), retries=2) as runtime:
        bad, good = runtime.collect(ScriptedEpisodes("random", 2), tasks, (0, 0))
    assert (bad.num_dropped, bad.trajectories) == (2, ()) and runtime.failures.total == 6 == lines(
        path
    )
    assert good.num_dropped == 0 and [t.total_reward for t in good.trajectories] == [3.0, 3.0]


RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))


def test_a_group_continues_without_its_dropped_members_and_releases_every_row(tmp_path: Path):
    path, engine = tmp_path / "resets", ScriptedEngine(RENDERER, "x")
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool(), retries=0) as runtime:
        (group,) = runtime.collect(
            IndependentEpisodes(4), [faulty_task("raise", path=str(path), times=3)], (0, 0)
        )
    assert (
        isinstance(group, Group)
        and group.num_dropped == 3 == runtime.failures.total == runtime.failures.dropped
    )
    (trajectory,) = group.trajectories
    assert (
        trajectory.total_reward == 3.0
        and [turn.action.text for turn in trajectory.turns] == ["x"] * 3
    )
    # three environments failed after their second action, one reached its end; nothing stays cached
    assert engine.num_submitted == 3 * 2 + 3 and engine.held_calls == []


def test_a_sampled_episode_ends_when_its_context_is_full():
    engine = ScriptedEngine(RENDERER, "x", max_calls=1)
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool()) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(1), [faulty_task("")], (0, 0))
    trajectory: Trajectory = group.trajectories[0]
    assert (len(trajectory.turns), trajectory.stop_reason, trajectory.success) == (
        1,
        "context",
        None,
    ) and engine.held_calls == []


def test_closing_leaves_no_process_behind():
    runtime = Runtime({}, {}, ProcessPool(3), retries=0)
    before = pids(runtime)
    assert len(before) == 3 and all(map(is_process_alive, before))
    with pytest.raises(EnvironmentFailure):
        play(runtime, faulty_task("die"))
    play(runtime, faulty_task(""))
    now = pids(runtime)
    runtime.close()
    runtime.close()
    assert not any(is_process_alive(pid) for pid in {*before, *now})


def test_closing_in_the_middle_of_a_step_leaves_no_process_behind():
    runtime = Runtime({}, {}, ProcessPool(1))

    async def begun() -> None:
        env = EnvHandle(runtime._worker_pool, faulty_task("sleep"))
        await env.reset()
        await env.step(assistant("x"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(env.step(assistant("x")), 0.2)

    runtime.run(begun())
    before = pids(runtime)
    runtime.close()
    assert len(before) == 1 and not is_process_alive(before[0])


def test_workers_need_a_process():
    with pytest.raises(UserError, match="at least one process, not 0"):
        ProcessPool(0)


def test_every_pool_is_a_worker_pool():
    assert all(
        isinstance(pool, WorkerPool)
        for pool in (InlinePool(), ThreadPool(1), ProcessPool(1), RayPool(ClusterConfig(actors=1)))
    )


def test_a_registered_name_gets_the_module_to_import():
    assert importable_env_name("Faulty-v0") == faulty_envs.ENVIRONMENT_ID
    assert (
        importable_env_name("agentrl/MazePO-v0") == "agentrl_jax.envs.lmrl.maze:agentrl/MazePO-v0"
    )
    assert importable_env_name(MAZE) == MAZE and importable_env_name("unknown") == "unknown"


def test_a_name_registered_here_can_be_made_in_a_worker(runtime: Runtime):
    assert len(play(runtime, Task("Faulty-v0", 0))) == 4


def test_a_runtime_works_inside_a_running_event_loop_as_in_a_notebook():
    async def cell() -> float:
        with Runtime({}, {}, ProcessPool(1)) as inner:
            (group,) = inner.collect(ScriptedEpisodes("random"), [faulty_task("")], (0, 0))
        return group.trajectories[0].total_reward

    assert asyncio.run(cell()) == 3.0


def test_an_interrupted_cell_of_a_notebook_leaves_nothing_behind():
    async def cell() -> list[int]:
        inner = Runtime({}, {}, ProcessPool(1))
        before = pids(inner)
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            inner.collect(ScriptedEpisodes("random"), [faulty_task("sleep")], (0, 0))
        inner.close()
        return before

    loop = asyncio.new_event_loop()  # not asyncio.run, which has its own handler for Ctrl-C
    try:
        (before,) = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert not is_process_alive(before)
