"""Faults injected into the environments of every pool: the run continues, reports them, and scores
no failed episode.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine, is_process_alive

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.builders import make_workers
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import InlinePool, Task, WorkerPool
from agentrl_jax.workers.process_pool import ProcessPool, check_interpreter
from agentrl_jax.workers.ray_pool import ClusterConfig, RayPool
from agentrl_jax.workers.routed_pool import RoutedPool
from agentrl_jax.workers.thread_pool import ThreadPool
from agentrl_jax.workers.validation import validate_step

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
MB = 2**20
MAZE = "agentrl_jax.envs:agentrl/MazePO-v0"
WORDLE = "agentrl_jax.envs:agentrl/Wordle-v0"


def faulty_task(how: str, seed: int = 0, **options: Any) -> Task:
    return Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": how, **options})


def in_process() -> WorkerPool:
    return InlinePool(max_reply_bytes=MB)


def in_a_thread() -> WorkerPool:
    return ThreadPool(1, max_reply_bytes=MB)


def in_a_process() -> WorkerPool:
    return ProcessPool(1, memory_limit=1024 * MB, max_reply_bytes=MB)


def in_an_actor() -> WorkerPool:
    return RayPool(ClusterConfig(actors=1), memory_limit=1024 * MB, max_reply_bytes=MB)


LOCAL_POOLS = (in_process, in_a_thread, in_a_process)
WORKER_FAULTS = [
    ("sleep", "deadline", "no answer from "),
    ("die", "died", "died (signal 9)"),
    ("leave", "died", "died (exit code 3)"),
    ("leak", "memory", " MiB of memory, more than it may"),
    ("chatter", "flood", "printed more than 1,048,576 bytes in one turn"),
]
FAULTS = [
    *((pool, how, kind, words) for pool in (*LOCAL_POOLS, in_an_actor) for how, kind, words in [
        ("raise", "raised", "ValueError: the world is broken"),
        ("exit", "raised", "SystemExit: 3"),
        ("NaN", "nonsense", "a reward must be a finite number, not nan"),
        ("no opening", "nonsense", "reset must return at least one message"),
        ("secret", "nonsense", "info must be plain data (not object)"),
        ("huge", "flood", "bytes, where at most 1,048,576 are allowed"),
    ]),
    (in_process, "long nap", "deadline", "no answer from this process in 1.5 s"),
    (in_a_thread, "sleep", "deadline", "no answer from thread 1 in 4 s"),
    *((pool, *fault) for pool in (in_a_process, in_an_actor) for fault in WORKER_FAULTS),
]  # fmt: skip


def slow_if_ray(pool: Any) -> Any:
    """The mark of Ray's pools, which start slowly."""
    return pytest.mark.slow if pool is in_an_actor else ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "how", "kind", "words"),
    [pytest.param(*fault, marks=slow_if_ray(fault[0])) for fault in FAULTS],
)
def test_the_run_continues_without_the_environment_that_always_fails(
    pool: Callable[[], WorkerPool], how: str, kind: str, words: str, request: pytest.FixtureRequest
):
    if pool is in_an_actor:
        request.getfixturevalue("ray_here")
    log_lines: list[str] = []
    engine = ScriptedEngine(RENDERER, "x")
    turn = {"sleep": 4.0, "long nap": 1.5, "chatter": 30.0}.get(how, 20.0)
    tasks = [faulty_task("", 1), faulty_task(how, 2), faulty_task("", 3)]
    before = set(threading.enumerate())
    with Runtime(
        {"policy": engine}, {"policy": AGENT}, pool(), 1, Timeouts(turn), log_lines.append
    ) as runtime:
        groups = runtime.collect(IndependentEpisodes(2), tasks, (0, 0))
        failures = runtime.failures
        again = runtime.collect(
            IndependentEpisodes(2), [faulty_task("", 4)], (0, 1)
        )  # the pool has recovered
    for group in (groups[0], groups[2], *again):
        assert group.num_dropped == 0 and [t.total_reward for t in group.trajectories] == [3.0, 3.0]
    assert (groups[1].trajectories, groups[1].num_dropped) == ((), 2)
    assert (
        failures.counts[kind] == 4
        and set(failures.counts) <= {kind, "lost"}
        and failures.dropped == 2
    )
    assert words in failures.last_messages[kind] and "#2" in failures.last_messages[kind]
    if kind == "deadline":
        assert f" in {turn:g} s" in failures.last_messages[kind]
    assert (
        failures.metrics()["env/failures"] == failures.total
        and failures.metrics()[f"env/failed/{kind}"] == 4.0
    )
    assert failures.to_dict()["kinds"][kind]["count"] == 4
    assert (
        sum(f"an environment failed ({kind};" in line for line in log_lines) == 1
        and sum("was dropped" in line for line in log_lines) == 1
    )
    assert engine.held_calls == []
    left = [
        thread
        for thread in set(threading.enumerate()) - before
        if "waitpid" not in thread.name and "ray" not in thread.name
    ]
    assert [thread.name for thread in left if thread.is_alive()] == (
        ["environments of thread 1"] * 4 if pool is in_a_thread and how == "sleep" else []
    )


@pytest.mark.parametrize("how", ["raise", "die", "NaN", "leak", "sleep"])
def test_a_transient_fault_leaves_no_trace_in_the_data(tmp_path: Path, how: str):
    task = faulty_task(how, path=str(tmp_path / "resets"))
    with Runtime(
        {"policy": ScriptedEngine(RENDERER, "x")},
        {"policy": AGENT},
        in_a_process(),
        1,
        Timeouts(3.0),  # a busy machine resets in less
    ) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(2), [task], (0, 0))
    assert group.num_dropped == 0 and [t.sample for t in group.trajectories] == [0, 1]
    assert [t.total_reward for t in group.trajectories] == [
        3.0,
        3.0,
    ] and runtime.failures.total >= 1


@pytest.mark.parametrize("how", sorted(faulty_envs.INVALID_STEPS))
def test_an_invalid_step_is_a_failure(how: str):
    with pytest.raises(EnvironmentFailure, match="must") as caught:
        validate_step(faulty_envs.INVALID_STEPS[how])
    assert caught.value.kind == "nonsense"


@pytest.mark.parametrize("how", ["arrays", "deep", "secret", "text", "no text", "surrogate"])
def test_all_pools_accept_the_same(how: str):
    def log_lines(workers: WorkerPool) -> Any:
        with Runtime({}, {}, workers, retries=0) as runtime:
            (group,) = runtime.collect(ScriptedEpisodes("random"), [faulty_task(how)], (0, 0))
            turns = [
                (t.observation, t.reward, {**t.info, "world": 0})
                for trajectory in group.trajectories
                for t in trajectory.turns
            ]
            return turns, runtime.failures.last_messages

    expected, *results = [log_lines(pool()) for pool in LOCAL_POOLS]
    assert (len(expected[0]) == 3) == (how == "arrays") and all(
        other_python == expected for other_python in results
    )


def test_a_failing_environment_does_not_fail_others():
    """Without retries, only the episodes whose own environment failed are dropped."""
    tasks = [faulty_task("die" if seed % 4 == 0 else "", seed) for seed in range(8)]
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, in_a_process(), 0) as runtime:
        groups = runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
    assert [group.num_dropped for group in groups] == [
        1,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
    ] and runtime.failures.counts["died"] == 2


def test_an_episode_survives_a_worker_killed_during_a_turn(tmp_path: Path):
    path = tmp_path / "resets"
    workers = ProcessPool(1)

    def kill() -> None:
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(workers._current[0].pid or 0, signal.SIGKILL)

    with Runtime(
        {"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, workers, 1
    ) as runtime:
        killer = threading.Thread(target=kill)
        killer.start()
        (group,) = runtime.collect(
            IndependentEpisodes(1), [faulty_task("sleep", path=str(path))], (0, 0)
        )
        killer.join()
    assert group.trajectories[0].total_reward == 3.0 and runtime.failures.counts == {"died": 1}


def test_child_processes_of_an_environment_end_with_it(tmp_path: Path):
    path = tmp_path / "pid"
    with Runtime({}, {}, ProcessPool(1), 0, Timeouts(3.0, 4.0)) as runtime:
        (group,) = runtime.collect(
            ScriptedEpisodes("random"), [faulty_task("children", children=str(path))], (0, 0)
        )
        assert group.num_dropped == 1 and runtime.failures.counts == {"deadline": 1}
    child = int(path.read_text())
    deadline = time.monotonic() + 5
    while is_process_alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_process_alive(child)


@pytest.mark.slow
def test_a_hanging_environment_does_not_outlive_its_parent_process(tmp_path: Path):
    path = tmp_path / "pid"
    code = (
        "from agentrl_jax.workers.process_pool import ProcessPool\n"
        "from agentrl_jax.rollout.runtime import Runtime\n"
        "from agentrl_jax.rollout.strategy import ScriptedEpisodes\n"
        "from agentrl_jax.workers.pool import Task\n"
        f"options = {{'how': 'children', 'children': {str(path)!r}}}\n"
        f"task = Task({faulty_envs.ENVIRONMENT_ID!r}, 0, options)\n"
        "runtime = Runtime({}, {}, ProcessPool(1))\n"
        "runtime.collect(ScriptedEpisodes('random'), [task], (0, 0))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder),
    }
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    child = int(path.read_text())
    while is_process_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_process_alive(child)


def test_spares_fill_a_group_and_the_dropped_are_still_counted(tmp_path: Path):
    task = faulty_task("raise", path=str(tmp_path / "resets"), times=3)
    with Runtime(
        {"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}, InlinePool(), 0
    ) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(3, spares=4), [task], (0, 0))
    assert [t.sample for t in group.trajectories] == [3, 4, 5] and group.num_dropped == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workers": -1}, "must be at least 0"),
        ({"reply_mb": 0}, "reply_mb at least 1"),
        ({"observation_kb": 0}, "reply_mb at least 1"),
        ({"workers": 0, "threads": True}, "the number of threads, to be at least 1"),
        ({"workers": 0, "interpreter": sys.executable}, "for worker processes"),
        ({"workers": 2, "threads": True, "memory_mb": 512}, "for worker processes"),
        ({"memory_mb": 10}, "at least 256"),
        ({"memory_mb": -2}, "at least 256"),
        ({"workers": 0, "cluster": ClusterConfig(actors=1)}, "cluster is for worker processes"),
        ({"threads": True, "cluster": ClusterConfig(actors=1)}, "cluster is for worker processes"),
        ({"cluster": ClusterConfig(actors=1, heartbeat_timeout=0.0)}, "seconds above 0"),
        ({"interpreter": "/no/such/python"}, "cannot be run"),
        ({"interpreter": "/bin/false"}, "cannot run a worker"),
        ({"interpreters": {"a:b/C-v0": "/bin/false"}}, "cannot run a worker"),
        ({"interpreters": {"b/C-v0": sys.executable}}, "module that registers it"),
        ({"workers": 0, "interpreters": {"a:b/C-v0": sys.executable}}, "for worker processes"),
    ],
)
def test_an_invalid_pool_config_is_refused(fields: dict[str, Any], words: str):
    with pytest.raises(UserError, match=words):
        make_workers(EnvironmentConfig(**fields))


def test_each_field_chooses_its_pool():
    slow_if_ray = EnvironmentConfig(cluster=ClusterConfig(actors=2))
    configs = (
        EnvironmentConfig(workers=0),
        EnvironmentConfig(threads=True),
        EnvironmentConfig(memory_mb=300),
        slow_if_ray,
    )
    assert [type(make_workers(config)) for config in configs] == [
        InlinePool,
        ThreadPool,
        ProcessPool,
        RayPool,
    ]


def other_python(folder: Path, lines: str = "") -> str:
    """A Python without JAX, with this package and lines of a shell script."""
    folder.mkdir(exist_ok=True)
    (folder / "jax.py").write_text("raise ImportError('there is no JAX here')")
    path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])
    program = folder / "python"
    program.write_text(f'#!/bin/sh\n{lines}\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    assert subprocess.run([program, "-c", "import jax"], capture_output=True).returncode
    return str(program)


def test_a_worker_may_have_an_interpreter_without_jax(tmp_path: Path):
    python = other_python(tmp_path)
    check_interpreter(python)
    environment = EnvironmentConfig(faulty_envs.ENVIRONMENT_ID, interpreter=python)
    with Runtime({}, {}, make_workers(environment), 0) as runtime:
        (group,) = runtime.collect(ScriptedEpisodes("random"), [faulty_task("")], (0, 0))
    assert group.trajectories[0].total_reward == 3.0


def test_environments_of_a_mixture_run_in_interpreters_of_their_own(tmp_path: Path):
    log = tmp_path / "started"
    pythons = [
        other_python(tmp_path / name, f"echo {name} $2 >> {log}") for name in ("first", "second")
    ]
    environment = EnvironmentConfig(
        interpreters={faulty_envs.ENVIRONMENT_ID: pythons[0], WORDLE: pythons[1]}
    )
    tasks = [faulty_task("", 0), Task(WORDLE, 1), Task(MAZE, 2), faulty_task("die", 3)]
    with Runtime({}, {}, make_workers(environment), 1) as runtime:
        groups = runtime.collect(ScriptedEpisodes("random"), tasks, (0, 0))
        pools = runtime._worker_pool
        assert isinstance(pools, RoutedPool)
        assert not pools._of_environment  # closed
    (first,), (_,), (_,), no_trajectories = (group.trajectories for group in groups)
    assert first.total_reward == 3.0 and not no_trajectories  # it dies in each attempt
    # Each interpreter is checked once; one process is started, and replaced where it died.
    server = "agentrl_jax.workers.server"
    lines = [line for line in log.read_text().splitlines() if server in line]
    assert len(lines) >= 3 and {line.split()[0] for line in lines} == {"first", "second"}
    assert sum("first" in line for line in lines) > sum("second" in line for line in lines)


def test_a_worker_that_cannot_be_started_raises_a_user_error():
    with pytest.raises(UserError, match="cannot be started"):
        Runtime({}, {}, ProcessPool(2, command=["/no/such/program"]))


def test_programs_that_an_environment_starts_cannot_reach_the_replies():
    with Runtime({}, {}, ProcessPool(1), 0) as runtime:
        (group,) = runtime.collect(ScriptedEpisodes("random", 1), [faulty_task("forge")], (0, 0))
    (trajectory,) = group.trajectories
    assert [turn.observation[0].text for turn in trajectory.turns] == [
        f"turn {i}\n" for i in (1, 2, 3)
    ]
    assert trajectory.turns[1].info["written"] == []


SECRETS = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "https_proxy",
)  # fmt: skip


def test_worker_processes_get_no_secrets_but_those_that_the_config_names(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    environment = EnvironmentConfig(
        faulty_envs.ENVIRONMENT_ID, workers=1, pass_variables=("WANDB_API_KEY", "NOT_SET")
    )
    with Runtime({}, {}, make_workers(environment), 0) as runtime:
        task = faulty_task("variables")
        (group,) = runtime.collect(ScriptedEpisodes("random", 1), [task], (0, 0))
    variables = group.trajectories[0].turns[1].info["variables"]
    assert [name for name, value in variables.items() if value == "secret"] == ["WANDB_API_KEY"]
    assert not set(SECRETS) & set(variables) - {"WANDB_API_KEY"} and "NOT_SET" not in variables
    assert (variables["TMPDIR"], variables["MUJOCO_GL"]) == ("/tmp", "egl")
    assert variables["PATH"] == os.environ["PATH"] and variables["JAX_PLATFORMS"] == "cpu"


def test_what_is_passed_to_worker_processes_is_named():
    with pytest.raises(UserError, match="pass_variables holds names of variables, not 'A=b'"):
        ProcessPool(1, pass_variables=["A=b"])
