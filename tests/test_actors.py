"""Worlds on a Ray cluster of several nodes: where they are placed, and what becomes of them when a node is gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import naughty
import pytest
from hand_made import ScriptedEngine, alive

from agentrl_jax.actors import Actors, ClusterConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import EnvironmentConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.run import make_runtime
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers import InProcess, Task

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
OURS = {"environments": 1.0}
pytestmark = pytest.mark.slow


class Nodes:
    """A cluster of this machine: its head stands for a host of accelerators, the others are for environments."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.head = cluster.add_node(num_cpus=2, num_gpus=0, object_store_memory=80 * 2**20, include_dashboard=False)
        self.others = [self.add() for _ in range(2)]

    def add(self) -> Any:
        labels = {"pool": "environments"}
        return self._cluster.add_node(num_cpus=2, num_gpus=0, resources=OURS, labels=labels, object_store_memory=80 * 2**20)

    def lose(self, node: Any) -> None:
        """As if its machine was switched off."""
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


def pool(nodes: Nodes, actors: int = 2, **fields: Any) -> Actors:
    return Actors(ClusterConfig(actors, nodes.address, OURS, **fields))


def above(pid: int) -> int:
    """Who started it: of an actor, its node."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pid_of(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


def pids(runtime: Runtime) -> list[int]:
    workers = runtime._workers
    assert isinstance(workers, Actors)
    return [int(actor.place.rpartition(" ")[2]) for actor in workers._actors if actor.place and not actor.lost]


def descendants(pid: int) -> list[int]:
    found = [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]
    return [*found, *(below for child in found for below in descendants(child))]


def wait_until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.02)
    assert true()


def test_worlds_live_on_the_nodes_that_are_theirs_and_answer_the_same(nodes: Nodes):
    tasks = [Task("agentrl_jax.envs:agentrl/Wordle-v0", seed) for seed in range(12)]

    def played(runtime: Runtime) -> list[Any]:
        groups = runtime.collect(Scripted("random", 2), tasks, (0, 0))
        return [(t.seed, t.total_reward, [turn.action.text for turn in t.turns]) for group in groups for t in group.trajectories]

    with Runtime({}, {}, InProcess()) as local, Runtime({}, {}, pool(nodes)) as far:
        assert played(far) == played(local)
        assert {above(pid) for pid in pids(far)} == {pid_of(node) for node in nodes.others}
        workers = [below for pid in pids(far) for below in descendants(pid)]
        assert len(workers) == 2 and all(map(alive, [*pids(far), *workers]))
        everybody = [*pids(far), *workers]
    wait_until(lambda: not any(map(alive, everybody)))


def test_a_label_places_worlds_too(nodes: Nodes):
    for labels, homes in (({"pool": "environments"}, nodes.others), ({"pool": "!environments"}, [nodes.head])):
        with Runtime({}, {}, Actors(ClusterConfig(1, nodes.address, labels=labels))) as runtime:
            (pid,) = pids(runtime)
            assert above(pid) in map(pid_of, homes)


def test_episodes_go_on_while_nodes_are_lost_and_none_is_scored_as_0(nodes: Nodes, tmp_path: Path):
    """One node is lost in the middle of the episodes; its actor finds a place on a spare one, and then the other node is lost."""
    nodes.others.append(nodes.add())
    tasks = [Task(naughty.NAME, seed, {"how": "nap"}) for seed in range(30)]
    told: list[str] = []
    agents, engines = {"policy": AGENT}, {"policy": ScriptedEngine(RENDERER, "x")}
    with Runtime(engines, agents, pool(nodes), 0, Deadlines(200.0), told.append) as runtime:
        before = pids(runtime)
        first, second = (node for node in nodes.others if pid_of(node) in map(above, before))

        def storm() -> None:
            time.sleep(1.0)
            nodes.lose(first)
            wait_until(lambda: len(set(pids(runtime)) - set(before)) == 1)
            nodes.lose(second)

        thread = threading.Thread(target=storm)
        thread.start()
        groups = runtime.collect(Independent(2), tasks, (0, 0))
        thread.join()
        after = runtime.collect(Independent(1), [Task(naughty.NAME, 99)], (0, 1))
    for group in (*groups, *after):
        assert group.dropped == 0 and all(t.total_reward == 3.0 for t in group.trajectories)
    assert set(runtime.failures.counts) == {"lost"} and runtime.failures.counts["lost"] >= 2 and runtime.failures.dropped == 0
    assert "was lost" in runtime.failures.last["lost"] and sum("a world failed (lost;" in line for line in told) == 1


def test_an_actor_that_says_nothing_is_lost(nodes: Nodes):
    """Its node is there, but hangs: Ray would wait."""
    with Runtime({}, {}, pool(nodes, silence=2.0), 0, Deadlines(200.0)) as runtime:
        first, _ = pids(runtime)
        os.kill(first, signal.SIGSTOP)
        groups = runtime.collect(Scripted("random"), [Task(naughty.NAME, seed) for seed in range(8)], (0, 0))
        assert all(group.dropped == 0 and group.trajectories[0].total_reward == 3.0 for group in groups)
        assert runtime.failures.counts["lost"] >= 1 and "no sign of life in 2 s" in runtime.failures.last["lost"]
        wait_until(lambda: not alive(first))


def test_what_cannot_be_placed_is_told(nodes: Nodes):
    with pytest.raises(UserError, match=r"no place for 3 actors with 1 CPUs, resources {'environments': 1\.0} and labels {} each"):
        Runtime({}, {}, pool(nodes, 3, patience=8.0))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:many"])
def test_a_cluster_that_is_not_there_is_told(address: str):
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    ray.shutdown()
    with pytest.raises(UserError, match=f"no Ray cluster can be reached at {address}"):
        Runtime({}, {}, Actors(ClusterConfig(1, address)))


def test_a_wrong_interpreter_is_told_by_the_node(nodes: Nodes):
    with pytest.raises(UserError, match="the interpreter /no/such/python cannot be run"):
        Runtime({}, {}, Actors(ClusterConfig(1, nodes.address), interpreter="/no/such/python"))


def test_a_pool_of_its_own_leaves_nothing_behind():
    pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    code = (
        "import sys\n"
        "from agentrl_jax.experiment import EnvironmentConfig\n"
        "from agentrl_jax.actors import ClusterConfig\n"
        "from agentrl_jax.run import make_runtime\n"
        "from agentrl_jax.strategies import Scripted\n"
        "config = EnvironmentConfig('naughty:Naughty-v0', workers=2, cluster=ClusterConfig(actors=1))\n"
        "assert 'ray' not in sys.modules\n"
        "with make_runtime(config) as runtime:\n"
        "    (group,) = runtime.collect(Scripted('random'), [config.task(0)], (0, 0))\n"
        "    print(group.trajectories[0].total_reward, flush=True)\n"
        "    sys.stdin.readline()\n"
        "print('closed', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *(folder for folder in sys.path if folder)])
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "3.0\n"
    began = descendants(process.pid)
    assert len(began) >= 5  # Ray's own, an actor and two workers
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "closed\n"
    wait_until(lambda: not any(map(alive, began)))
    process.communicate("\n")
    assert process.returncode == 0


def test_a_config_asks_for_actors(nodes: Nodes):
    config = EnvironmentConfig(naughty.NAME, {"how": "die"}, retries=1, cluster=ClusterConfig(2, nodes.address, OURS))
    with make_runtime(config) as runtime:
        (group,) = runtime.collect(Scripted("random"), [config.task(0)], (0, 0))
    assert group.dropped == 1 and runtime.failures.counts == {"died": 2} and "actor" in runtime.failures.last["died"]
