"""Agent programs in their processes: their episodes when they fail, and that none is left."""

import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import AGENT, LineEngine
from support.fixtures import is_process_alive

from agentrl_jax.capture.strategy import CapturedEpisodes
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import collate, token_identity
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.workers.pool import InlinePool, Task

TASK = Task("tests/Nothing-v0", 7, {"size": 3}, group=4)

# A program with the standard library only: two calls, then its reward; `how` is its fault.
PROGRAM = """
import json, os, signal, subprocess, sys, time, urllib.request
how, folder = sys.argv[1], sys.argv[2]
open(f"{folder}/pid{os.getpid()}", "w").close()

def post(url, data, key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(data).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply) if reply.status == 200 else None

def first(mark):
    try:
        open(mark, "x").close()  # of two programs at the same time, only one creates it
        return True
    except FileExistsError:
        return False

def episode(url, key, seed):
    if how == "mute":
        time.sleep(1000)
    if how == "starts another":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        open(f"{folder}/pid{child.pid}", "w").close()
    messages = [{"role": "user", "content": f"seed {seed}"}]
    for turn in range(2):
        body = {"model": "m", "messages": messages}
        reply = post(f"{url}/v1/chat/completions", body, key)["choices"][0]["message"]
        messages += [reply, {"role": "user", "content": "more"}]
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise SystemExit("no idea " * 1000 + "what to do")
        if how == "killed once" and first(f"{folder}/was"):
            os.kill(os.getpid(), signal.SIGKILL)
    if how != "posts nothing":
        is_final = how == "stays" or "pool" in sys.argv
        post(f"{url}/reward", {"reward": float(seed), "final": is_final}, key)
    if how == "stays":
        time.sleep(1000)

if "pool" in sys.argv:
    while True:
        task = post(os.environ["AGENTRL_URL"] + "/episodes", {}, os.environ["OPENAI_API_KEY"])
        if task:
            episode(task["url"], task["api_key"], task["seed"])
else:
    assert json.loads(os.environ["AGENTRL_OPTIONS"]) == {"size": 3} and sys.argv[3] == "7"
    seed = int(os.environ["AGENTRL_SEED"])
    episode(os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"], seed)
"""


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    deadlines = Timeouts(turn=20.0, episode=40.0, group=60.0)
    with Runtime(
        {"policy": LineEngine(*["yes"] * 100)},
        {"policy": AGENT},
        InlinePool(),
        retries=1,
        timeouts=deadlines,
    ) as runtime:
        yield runtime


def captured(folder: Path, how: str, *more: str, **fields: Any) -> CapturedEpisodes:
    (folder / "program.py").write_text(PROGRAM)
    command = ("{python}", str(folder / "program.py"), how, str(folder), *(more or ("{seed}",)))
    return CapturedEpisodes(command, **{"group_size": 2, "grace": 0.2, **fields})


def programs(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("pid")) for path in folder.glob("pid*")]


def all_programs_exited(folder: Path) -> bool:
    """Whether all programs exit soon; a killed process takes a moment."""
    for _ in range(100):
        if not any(map(is_process_alive, programs(folder))):
            return True
        time.sleep(0.05)
    return False


def test_a_program_for_each_episode(runtime: Runtime, tmp_path: Path):
    (group,) = runtime.collect(captured(tmp_path, "plays"), [TASK], (0, 0))
    assert [
        (t.sample, t.total_reward, len(t.turns), t.seed, t.group) for t in group.trajectories
    ] == [(0, 7, 2, 7, 4), (1, 7, 2, 7, 4)]
    collated = collate([group])
    assert (
        len(collated.sequences) == 2
        and token_identity([group], collated) == 1.0
        and group.num_dropped == 0
    )
    assert len(programs(tmp_path)) == 2 and all_programs_exited(tmp_path)
    engine: Any = runtime.engines["policy"]
    assert engine.held_calls == []


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("killed", "died", "killed by signal 9"),
        ("raises", "died", "what to do"),
        ("posts nothing", "unscored", "posted no reward"),
    ],
)
def test_a_program_that_dies_or_posts_nothing_is_retried_then_dropped(
    runtime: Runtime, tmp_path: Path, how: str, kind: str, words: str
):
    (group,) = runtime.collect(captured(tmp_path, how, group_size=1), [TASK], (0, 0))
    assert (group.trajectories, group.num_dropped) == ((), 1)
    assert (
        runtime.failures.counts == {kind: 2}
        and words in runtime.failures.last_messages[kind]
        and len(runtime.failures.last_messages[kind]) < 5000
    )
    assert len(programs(tmp_path)) == 2 and all_programs_exited(tmp_path)


def test_an_episode_whose_program_was_killed_is_retried(runtime: Runtime, tmp_path: Path):
    (group,) = runtime.collect(captured(tmp_path, "killed once", group_size=1), [TASK], (0, 0))
    assert [t.total_reward for t in group.trajectories] == [7] and runtime.failures.counts == {
        "died": 1
    }


def test_a_program_that_stays_or_leaves_children_behind_is_killed(runtime: Runtime, tmp_path: Path):
    for how in ("stays", "starts another"):
        (group,) = runtime.collect(captured(tmp_path, how, group_size=1), [TASK], (0, 0))
        assert [t.total_reward for t in group.trajectories] == [7]
    assert len(programs(tmp_path)) == 3 and all_programs_exited(tmp_path)


def test_a_silent_program_times_out(tmp_path: Path):
    deadlines = Timeouts(turn=0.5, episode=40.0, group=60.0)
    with Runtime(
        {"policy": LineEngine()}, {"policy": AGENT}, InlinePool(), retries=0, timeouts=deadlines
    ) as runtime:
        (group,) = runtime.collect(captured(tmp_path, "mute", group_size=1), [TASK], (0, 0))
        assert (
            group.num_dropped == 1
            and "silent for 0.5 s" in runtime.failures.last_messages["deadline"]
            and all_programs_exited(tmp_path)
        )


def test_a_killed_program_of_a_pool_loses_only_its_own_episode(runtime: Runtime, tmp_path: Path):
    strategy = captured(tmp_path, "killed once", "pool", pool_size=2, group_size=6)
    for step in range(2):
        (group,) = runtime.collect(strategy, [TASK], (0, step))
        assert len(group.trajectories) == 6 and group.num_dropped == 0
    assert runtime.failures.counts == {"died": 1} and len(programs(tmp_path)) in (
        2,
        3,
    )  # the other one may finish before the successor starts
    runtime.close()
    assert all_programs_exited(tmp_path)


def test_a_pool_that_keeps_exiting_ends_the_run_with_its_output(runtime: Runtime, tmp_path: Path):
    strategy = captured(tmp_path, "plays", pool_size=1)
    strategy.command = ("{python}", "-c", "raise SystemExit('nothing is installed')")
    with pytest.raises(UserError, match="nothing is installed"):
        runtime.collect(strategy, [TASK], (0, 0))


def test_external_programs_request_episodes(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    port = 20_000 + os.getpid() % 10_000  # below the system's ephemeral ports
    monkeypatch.setenv("THE_TOKEN", "let me in")

    def post(url: str, key: str, data: Any = None) -> Any:
        request = urllib.request.Request(
            url, json.dumps(data or {}).encode(), {"Authorization": f"Bearer {key}"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def play() -> None:
        url = f"http://127.0.0.1:{port}"
        for _ in range(3):
            while True:
                try:
                    task = post(f"{url}/episodes", "let me in")
                    break
                except OSError:
                    time.sleep(0.05)  # the server is not listening yet
            post(
                f"{task['url']}/v1/chat/completions",
                task["api_key"],
                {"model": "m", "messages": [{"role": "user", "content": "x"}]},
            )
            post(f"{task['url']}/reward", "let me in", {"reward": task["sample"], "final": True})

    thread = threading.Thread(target=play)
    thread.start()
    (group,) = runtime.collect(
        CapturedEpisodes(group_size=3, port=port, token_variable="THE_TOKEN"), [TASK], (0, 0)
    )
    thread.join()
    assert [t.total_reward for t in group.trajectories] == [0, 1, 2]
    runtime.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def test_inconsistent_fields_are_refused(runtime: Runtime):
    for strategy, words in (
        (CapturedEpisodes(), "need a port"),
        (CapturedEpisodes(("x",), group_size=0), "group_size"),
        (CapturedEpisodes(pool_size=1), "needs a command"),
        (CapturedEpisodes(("/no/such/program",)), "cannot be started"),
    ):
        with pytest.raises(UserError, match=words):
            runtime.collect(strategy, [TASK], (0, 0))


def test_the_strategy_survives_a_round_trip_through_json():
    strategy = CapturedEpisodes(
        ("{python}", "agent.py"), pool_size=2, allow_sampling_overrides=False
    )
    assert from_json(json.loads(json.dumps(to_json(strategy)))) == strategy


def test_an_engine_that_raises_ends_the_run(runtime: Runtime, tmp_path: Path):
    engine: Any = runtime.engines["policy"]
    engine.lines.clear()  # the next call raises
    with pytest.raises(IndexError):
        runtime.collect(captured(tmp_path, "plays", group_size=1), [TASK], (0, 0))
    assert all_programs_exited(tmp_path)


LEARNER = """
import json, os, random, threading, urllib.request
from openai import OpenAI

url, token, client = os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"], OpenAI()

def post(url, key, data):
    headers = {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(data).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply) if reply.status == 200 else None

def work():
    while True:
        task = post(f"{url}/episodes", token, {})
        if task:
            draw = random.Random(task["seed"])
            a, b = draw.randint(0, 4), draw.randint(0, 4)
            episode = client.with_options(base_url=task["url"] + "/v1", api_key=task["api_key"])
            messages = [{"role": "user", "content": f"{a}+{b}=?\\n"}]
            reply = episode.chat.completions.create(model="gpt", messages=messages, max_tokens=4)
            right = reply.choices[0].message.content == str(a + b)
            reward = {"reward": float(right), "success": right, "final": True}
            post(task["url"] + "/reward", task["api_key"], reward)

for _ in range(16):
    threading.Thread(target=work).start()
"""


@pytest.mark.slow
def test_an_unchanged_program_is_trained(tmp_path: Path):
    """The program generates its own sums; accuracy rises above that of behavior cloning, whose
    demonstrations are wrong in four of ten.
    """
    pytest.importorskip("openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'")
    from agentrl_jax.configs.capture_arithmetic import get_config
    from agentrl_jax.distributed.sharding import MeshConfig
    from agentrl_jax.training import loop
    from agentrl_jax.training.sources import Rollouts

    (tmp_path / "agent.py").write_text(LEARNER)
    experiment = get_config("single")
    experiment.environment.options["largest"] = 4
    experiment.mesh = MeshConfig(devices_per_process=1)
    assert experiment.demonstrations is not None
    experiment.phases["sft"].steps, experiment.demonstrations.episodes = 100, 1500
    experiment.evaluation.episodes = 64
    experiment.phases["rl"].source = Rollouts(
        tasks=8,
        strategy=CapturedEpisodes(
            ("{python}", str(tmp_path / "agent.py")), pool_size=1, max_concurrent_episodes=32
        ),
    )
    experiment.phases["rl"].steps = 12
    loop.train(experiment, tmp_path / "run", quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    returns = [line["rollout/return"] for line in lines if line["phase"] == "rl"]
    identities = [line["tokens/identity"] for line in lines if line["phase"] == "rl"]
    assert sum(returns[-3:]) / 3 > sum(returns[:2]) / 2 + 0.1 and set(identities) == {1.0}, returns
