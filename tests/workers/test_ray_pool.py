"""Environments on a Ray cluster of several nodes: their placement, and the loss of a node."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine, is_process_alive

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.builders import make_runtime
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import InlinePool, Task
from agentrl_jax.workers.ray_pool import ClusterConfig, RayPool

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
ENV_RESOURCES = {"environments": 1.0}
pytestmark = pytest.mark.slow


class Nodes:
    """A cluster on this machine: its head stands for a node with accelerators; others run
    environments.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.head = cluster.add_node(
            num_cpus=2, num_gpus=0, object_store_memory=80 * 2**20, include_dashboard=False
        )
        self.env_nodes = [self.add() for _ in range(2)]

    def add(self) -> Any:
        labels = {"pool": "environments"}
        return self._cluster.add_node(
            num_cpus=2,
            num_gpus=0,
            resources=ENV_RESOURCES,
            labels=labels,
            object_store_memory=80 * 2**20,
        )

    def lose(self, node: Any) -> None:
        """Remove a node, as if its machine was switched off."""
        self._cluster.remove_node(node, allow_graceful=False)

    @property
    def address(self) -> str:
        return self._cluster.address


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    ray.shutdown()
    cluster = pytest.importorskip("ray.cluster_utils").Cluster()
    yield Nodes(cluster)
    ray.shutdown()
    cluster.shutdown()


def pool(nodes: Nodes, actors: int = 2, **fields: Any) -> RayPool:
    return RayPool(ClusterConfig(actors, nodes.address, ENV_RESOURCES, **fields))


def parent_pid(pid: int) -> int:
    """The process that started it; for an actor, its node."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pid_of(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


def pids(runtime: Runtime) -> list[int]:
    workers = runtime._worker_pool
    assert isinstance(workers, RayPool)
    return [
        int(actor.location.rpartition(" ")[2])
        for actor in workers._actors
        if actor.location and not actor.is_lost
    ]


def descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for child in subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True
        ).stdout.split()
    ]
    return [*children, *(child_pid for child in children for child_pid in descendants(child))]


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_environments_run_on_the_nodes_with_their_resource_and_give_the_same_episodes(nodes: Nodes):
    tasks = [Task("agentrl_jax.envs:agentrl/Wordle-v0", seed) for seed in range(12)]

    def play_all(runtime: Runtime) -> list[Any]:
        groups = runtime.collect(ScriptedEpisodes("random", 2), tasks, (0, 0))
        return [
            (t.seed, t.total_reward, [turn.action.text for turn in t.turns])
            for group in groups
            for t in group.trajectories
        ]

    with Runtime({}, {}, InlinePool()) as local, Runtime({}, {}, pool(nodes)) as ray_runtime:
        assert play_all(ray_runtime) == play_all(local)
        assert {parent_pid(pid) for pid in pids(ray_runtime)} == {
            pid_of(node) for node in nodes.env_nodes
        }
        workers = [child_pid for pid in pids(ray_runtime) for child_pid in descendants(pid)]
        assert len(workers) == 2 and all(map(is_process_alive, [*pids(ray_runtime), *workers]))
        all_pids = [*pids(ray_runtime), *workers]
    wait_until(lambda: not any(map(is_process_alive, all_pids)))


def test_a_label_places_environments_too(nodes: Nodes):
    for labels, allowed_nodes in (
        ({"pool": "environments"}, nodes.env_nodes),
        ({"pool": "!environments"}, [nodes.head]),
    ):
        with Runtime({}, {}, RayPool(ClusterConfig(1, nodes.address, labels=labels))) as runtime:
            (pid,) = pids(runtime)
            assert parent_pid(pid) in map(pid_of, allowed_nodes)


def test_episodes_continue_while_nodes_are_lost_and_none_is_scored_as_0(
    nodes: Nodes, tmp_path: Path
):
    """A node is lost during the episodes, its actor moves to a spare one, and the other is lost."""
    nodes.env_nodes.append(nodes.add())
    tasks = [Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": "nap"}) for seed in range(30)]
    log_lines: list[str] = []
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, pool(nodes), 0, Timeouts(200.0), log_lines.append) as runtime:
        before = pids(runtime)
        first, second = (
            node for node in nodes.env_nodes if pid_of(node) in map(parent_pid, before)
        )

        def storm() -> None:
            time.sleep(1.0)
            nodes.lose(first)
            wait_until(lambda: len(set(pids(runtime)) - set(before)) == 1)
            nodes.lose(second)

        thread = threading.Thread(target=storm)
        thread.start()
        groups = runtime.collect(IndependentEpisodes(2), tasks, (0, 0))
        thread.join()
        after = runtime.collect(
            IndependentEpisodes(1), [Task(faulty_envs.ENVIRONMENT_ID, 99)], (0, 1)
        )
    for group in (*groups, *after):
        assert group.num_dropped == 0 and all(t.total_reward == 3.0 for t in group.trajectories)
    assert (
        set(runtime.failures.counts) == {"lost"}
        and runtime.failures.counts["lost"] >= 2
        and runtime.failures.dropped == 0
    )
    assert (
        "was lost" in runtime.failures.last_messages["lost"]
        and sum("an environment failed (lost;" in line for line in log_lines) == 1
    )


def test_an_actor_without_heartbeat_is_lost(nodes: Nodes):
    """The actor hangs on a live node: Ray would wait."""
    with Runtime({}, {}, pool(nodes, heartbeat_timeout=2.0), 0, Timeouts(200.0)) as runtime:
        first, _ = pids(runtime)
        os.kill(first, signal.SIGSTOP)
        groups = runtime.collect(
            ScriptedEpisodes("random"),
            [Task(faulty_envs.ENVIRONMENT_ID, seed) for seed in range(8)],
            (0, 0),
        )
        assert all(
            group.num_dropped == 0 and group.trajectories[0].total_reward == 3.0 for group in groups
        )
        assert (
            runtime.failures.counts["lost"] >= 1
            and "no heartbeat in 2 s" in runtime.failures.last_messages["lost"]
        )
        wait_until(lambda: not is_process_alive(first))


def test_actors_that_cannot_be_placed_raise_a_user_error(nodes: Nodes):
    with pytest.raises(
        UserError,
        match=r"no nodes for 3 actors with 1 CPUs, resources {'environments': 1\.0} and labels {}",
    ):
        Runtime({}, {}, pool(nodes, 3, start_timeout=8.0))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:many"])
def test_an_unreachable_cluster_raises_a_user_error(address: str):
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    ray.shutdown()
    with pytest.raises(UserError, match=f"no Ray cluster can be reached at {address}"):
        Runtime({}, {}, RayPool(ClusterConfig(1, address)))


def test_a_wrong_interpreter_on_the_node_raises_a_user_error(nodes: Nodes):
    with pytest.raises(UserError, match="the interpreter /no/such/python cannot be run"):
        Runtime({}, {}, RayPool(ClusterConfig(1, nodes.address), interpreter="/no/such/python"))


def test_a_local_cluster_leaves_no_process_behind():
    pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    code = (
        "import sys\n"
        "from agentrl_jax.training.config import EnvironmentConfig\n"
        "from agentrl_jax.workers.ray_pool import ClusterConfig\n"
        "from agentrl_jax.training.builders import make_runtime\n"
        "from agentrl_jax.rollout.strategy import ScriptedEpisodes\n"
        "config = EnvironmentConfig('support.faulty_envs:Faulty-v0', workers=2)\n"
        "config.cluster = ClusterConfig(actors=1)\n"
        "assert 'ray' not in sys.modules\n"
        "with make_runtime(config) as runtime:\n"
        "    (group,) = runtime.collect(ScriptedEpisodes('random'), [config.task(0)], (0, 0))\n"
        "    print(group.trajectories[0].total_reward, flush=True)\n"
        "    sys.stdin.readline()\n"
        "print('closed', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    path = os.pathsep.join(
        [str(Path(__file__).parents[1]), *(folder for folder in sys.path if folder)]
    )
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "3.0\n"
    started = descendants(process.pid)
    assert len(started) >= 5  # processes of Ray, an actor and two workers
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "closed\n"
    wait_until(lambda: not any(map(is_process_alive, started)))
    process.communicate("\n")
    assert process.returncode == 0


def test_a_config_selects_actors(nodes: Nodes):
    config = EnvironmentConfig(
        faulty_envs.ENVIRONMENT_ID,
        {"how": "die"},
        retries=1,
        cluster=ClusterConfig(2, nodes.address, ENV_RESOURCES),
    )
    with make_runtime(config) as runtime:
        (group,) = runtime.collect(ScriptedEpisodes("random"), [config.task(0)], (0, 0))
    assert (
        group.num_dropped == 1
        and runtime.failures.counts == {"died": 2}
        and "actor" in runtime.failures.last_messages["died"]
    )
