"""The memory of a worker with all that it started is bounded; what it reserves or shares is not."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine

from agentrl_jax.context import FullHistory
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.builders import DEFAULT_MEMORY_MB, make_workers
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.memory_watch import MemoryWatch
from agentrl_jax.workers.pool import Task
from agentrl_jax.workers.process_pool import ProcessPool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")
RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))


def faulty_task(how: str, seed: int) -> Task:
    return Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": how})


@pytest.mark.parametrize("how", ["leak", "leak in a child", "keep"])
def test_only_the_environment_that_exceeds_the_bound_fails(how: str):
    engines = {"policy": ScriptedEngine(RENDERER, "x")}
    tasks = [faulty_task("", 1), faulty_task(how, 2), faulty_task("", 3)]
    environment = EnvironmentConfig(faulty_envs.ENVIRONMENT_ID, memory_mb=256, retries=0)
    with Runtime(engines, {"policy": AGENT}, make_workers(environment), 0) as runtime:
        groups = runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
        failures = runtime.failures
    assert [len(group.trajectories) for group in groups] == [1, 0, 1]
    assert failures.counts["memory"] == 1 and failures.counts.keys() <= {"memory", "lost"}
    message = failures.last_messages["memory"]
    assert "MiB of memory, more than it may: raise config.environment.memory_mb" in message
    assert "#2" in message


@pytest.mark.parametrize("how", ["reserve", "fork"])
def test_memory_that_is_reserved_or_shared_counts_once_or_not_at_all(how: str):
    engines = {"policy": ScriptedEngine(RENDERER, "x")}
    environment = EnvironmentConfig(faulty_envs.ENVIRONMENT_ID, memory_mb=256, retries=0)
    with Runtime(engines, {"policy": AGENT}, make_workers(environment), 0) as runtime:
        (group,) = runtime.collect(IndependentEpisodes(1), [faulty_task(how, 1)], (0, 0))
    assert not runtime.failures.counts and group.trajectories[0].total_reward == 3.0


def test_processes_are_bounded_by_default_and_the_bound_can_be_switched_off():
    bounds = {}
    for memory_mb in (0, 300, -1):
        pool = make_workers(EnvironmentConfig(memory_mb=memory_mb))
        assert isinstance(pool, ProcessPool)
        bounds[memory_mb] = pool._memory_limit
    assert bounds == {0: DEFAULT_MEMORY_MB * 2**20, 300: 300 * 2**20, -1: 0}
    for config in (EnvironmentConfig(workers=0), EnvironmentConfig(threads=True)):
        make_workers(config)  # there is no process to bound


def test_a_worker_is_the_first_that_the_kernel_ends_where_there_is_no_memory():
    code = (
        "from agentrl_jax.workers.server import _die_first; _die_first(); "
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1000"]


LEAVE_SESSION = f"""
import os, time
parent = os.getppid()
os.setsid()
memory = bytearray({300 * 2**20})
while os.getppid() == parent:
    time.sleep(0.05)
"""


def test_processes_that_left_the_session_count_while_their_parent_lives():
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LEAVE_SESSION!r}])"
    sizes: list[int] = []
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        watch = MemoryWatch(200 * 2**20)
        watch.add(process.pid, sizes.append)
        deadline = time.monotonic() + 20
        while not sizes and time.monotonic() < deadline:
            time.sleep(0.05)
        watch.close()
        os.killpg(process.pid, signal.SIGKILL)
    assert sizes and min(sizes) > 200 * 2**20
