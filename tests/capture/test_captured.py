"""Programs in their processes: what becomes of their episodes, whatever becomes of them, and that nothing is left behind."""

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

from hand_made import alive
from served import AGENT, Speaker

from agentrl_jax.capture.strategy import Captured
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import UserError
from agentrl_jax.rows import collate, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.workers import InProcess, Task

TASK = Task("tests/Nothing-v0", 7, {"size": 3}, group=4)

# A program of the standard library alone: two calls, then its reward; `how` says what goes wrong.
PROGRAM = """
import json, os, signal, subprocess, sys, time, urllib.request
how, folder = sys.argv[1], sys.argv[2]
open(f"{folder}/pid{os.getpid()}", "w").close()

def post(url, data, key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(data).encode(), headers, method="POST"), timeout=30) as reply:
        return json.load(reply) if reply.status == 200 else None

def first(mark):
    try:
        open(mark, "x").close()  # of two programs that come at the same time, one alone makes it
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
        reply = post(f"{url}/v1/chat/completions", {"model": "m", "messages": messages}, key)["choices"][0]["message"]
        messages += [reply, {"role": "user", "content": "more"}]
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise SystemExit("no idea " * 1000 + "what to do")
        if how == "killed once" and first(f"{folder}/was"):
            os.kill(os.getpid(), signal.SIGKILL)
    if how != "posts nothing":
        post(f"{url}/reward", {"reward": float(seed), "final": how == "stays" or "pool" in sys.argv}, key)
    if how == "stays":
        time.sleep(1000)

if "pool" in sys.argv:
    while True:
        task = post(os.environ["AGENTRL_URL"] + "/episodes", {}, os.environ["OPENAI_API_KEY"])
        if task:
            episode(task["url"], task["api_key"], task["seed"])
else:
    assert json.loads(os.environ["AGENTRL_OPTIONS"]) == {"size": 3} and sys.argv[3] == "7"
    episode(os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"], int(os.environ["AGENTRL_SEED"]))
"""


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    deadlines = Deadlines(turn=20.0, episode=40.0, group=60.0)
    with Runtime({"policy": Speaker(*["yes"] * 100)}, {"policy": AGENT}, InProcess(), retries=1, deadlines=deadlines) as runtime:
        yield runtime


def captured(folder: Path, how: str, *more: str, **fields: Any) -> Captured:
    (folder / "program.py").write_text(PROGRAM)
    command = ("{python}", str(folder / "program.py"), how, str(folder), *(more or ("{seed}",)))
    return Captured(command, **{"group_size": 2, "grace": 0.2, **fields})


def programs(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("pid")) for path in folder.glob("pid*")]


def nobody_left(folder: Path) -> bool:
    """Soon after, for a killed process takes a moment to go."""
    for _ in range(100):
        if not any(map(alive, programs(folder))):
            return True
        time.sleep(0.05)
    return False


def test_a_program_for_each_episode(runtime: Runtime, tmp_path: Path):
    (group,) = runtime.collect(captured(tmp_path, "plays"), [TASK], (0, 0))
    assert [(t.sample, t.total_reward, len(t.turns), t.seed, t.group) for t in group.trajectories] == [(0, 7, 2, 7, 4), (1, 7, 2, 7, 4)]
    collated = collate([group])
    assert len(collated.rows) == 2 and token_identity([group], collated) == 1.0 and group.dropped == 0
    assert len(programs(tmp_path)) == 2 and nobody_left(tmp_path)
    engine: Any = runtime.engines["policy"]
    assert engine.held == []


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [("killed", "died", "killed by signal 9"), ("raises", "died", "what to do"), ("posts nothing", "unscored", "posted no reward")],
)
def test_a_program_that_dies_or_posts_nothing_is_tried_again_then_dropped(
    runtime: Runtime, tmp_path: Path, how: str, kind: str, words: str
):
    (group,) = runtime.collect(captured(tmp_path, how, group_size=1), [TASK], (0, 0))
    assert (group.trajectories, group.dropped) == ((), 1)
    assert runtime.failures.counts == {kind: 2} and words in runtime.failures.last[kind] and len(runtime.failures.last[kind]) < 5000
    assert len(programs(tmp_path)) == 2 and nobody_left(tmp_path)


def test_a_program_that_is_killed_once_plays_its_episode_again(runtime: Runtime, tmp_path: Path):
    (group,) = runtime.collect(captured(tmp_path, "killed once", group_size=1), [TASK], (0, 0))
    assert [t.total_reward for t in group.trajectories] == [7] and runtime.failures.counts == {"died": 1}


def test_a_program_that_stays_or_leaves_others_behind_is_ended(runtime: Runtime, tmp_path: Path):
    for how in ("stays", "starts another"):
        (group,) = runtime.collect(captured(tmp_path, how, group_size=1), [TASK], (0, 0))
        assert [t.total_reward for t in group.trajectories] == [7]
    assert len(programs(tmp_path)) == 3 and nobody_left(tmp_path)


def test_a_program_that_says_nothing_is_given_up(tmp_path: Path):
    deadlines = Deadlines(turn=0.5, episode=40.0, group=60.0)
    with Runtime({"policy": Speaker()}, {"policy": AGENT}, InProcess(), retries=0, deadlines=deadlines) as runtime:
        (group,) = runtime.collect(captured(tmp_path, "mute", group_size=1), [TASK], (0, 0))
        assert group.dropped == 1 and "silent for 0.5 s" in runtime.failures.last["deadline"] and nobody_left(tmp_path)


def test_a_pool_plays_many_episodes_and_one_that_is_killed_loses_only_its_own(runtime: Runtime, tmp_path: Path):
    strategy = captured(tmp_path, "killed once", "pool", pool=2, group_size=6)
    for step in range(2):
        (group,) = runtime.collect(strategy, [TASK], (0, step))
        assert len(group.trajectories) == 6 and group.dropped == 0
    assert runtime.failures.counts == {"died": 1} and len(programs(tmp_path)) in (2, 3)  # the other one may be done before its successor
    runtime.close()
    assert nobody_left(tmp_path)


def test_a_pool_that_cannot_play_ends_the_run_with_its_words(runtime: Runtime, tmp_path: Path):
    strategy = captured(tmp_path, "plays", pool=1)
    strategy.command = ("{python}", "-c", "raise SystemExit('nothing is installed')")
    with pytest.raises(UserError, match="nothing is installed"):
        runtime.collect(strategy, [TASK], (0, 0))


def test_programs_from_outside_ask_for_episodes(runtime: Runtime, monkeypatch: pytest.MonkeyPatch):
    port = 20_000 + os.getpid() % 10_000  # below those that the system gives away
    monkeypatch.setenv("THE_TOKEN", "let me in")

    def post(url: str, key: str, data: Any = None) -> Any:
        request = urllib.request.Request(url, json.dumps(data or {}).encode(), {"Authorization": f"Bearer {key}"}, method="POST")
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
                    time.sleep(0.05)  # it does not listen yet
            post(f"{task['url']}/v1/chat/completions", task["api_key"], {"model": "m", "messages": [{"role": "user", "content": "x"}]})
            post(f"{task['url']}/reward", "let me in", {"reward": task["sample"], "final": True})

    thread = threading.Thread(target=play)
    thread.start()
    (group,) = runtime.collect(Captured(group_size=3, port=port, token_variable="THE_TOKEN"), [TASK], (0, 0))
    thread.join()
    assert [t.total_reward for t in group.trajectories] == [0, 1, 2]
    runtime.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def test_fields_that_do_not_go_together_are_refused(runtime: Runtime):
    for strategy, words in (
        (Captured(), "need a port"), (Captured(("x",), group_size=0), "group_size"), (Captured(pool=1), "needs a command"),
        (Captured(("/no/such/program",)), "cannot be started"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words):
            runtime.collect(strategy, [TASK], (0, 0))


def test_a_run_folder_remembers_the_strategy():
    strategy = Captured(("{python}", "agent.py"), pool=2, obey=False)
    assert from_json(json.loads(json.dumps(to_json(strategy)))) == strategy


def test_an_engine_that_breaks_ends_the_run(runtime: Runtime, tmp_path: Path):
    engine: Any = runtime.engines["policy"]
    engine.lines.clear()  # the next call raises
    with pytest.raises(IndexError):
        runtime.collect(captured(tmp_path, "plays", group_size=1), [TASK], (0, 0))
    assert nobody_left(tmp_path)


LEARNER = """
import json, os, random, threading, urllib.request
from openai import OpenAI

url, token, client = os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"], OpenAI()

def post(url, key, data):
    request = urllib.request.Request(url, json.dumps(data).encode(), {"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply) if reply.status == 200 else None

def work():
    while True:
        task = post(f"{url}/episodes", token, {})
        if task:
            draw = random.Random(task["seed"])
            a, b = draw.randint(0, 4), draw.randint(0, 4)
            own = client.with_options(base_url=task["url"] + "/v1", api_key=task["api_key"])
            reply = own.chat.completions.create(model="gpt", messages=[{"role": "user", "content": f"{a}+{b}=?\\n"}], max_tokens=4)
            right = reply.choices[0].message.content == str(a + b)
            post(task["url"] + "/reward", task["api_key"], {"reward": float(right), "success": right, "final": True})

for _ in range(16):
    threading.Thread(target=work).start()
"""


@pytest.mark.slow
def test_a_program_that_was_not_made_for_training_is_trained(tmp_path: Path):
    """Its sums are its own; that it is right goes up from what demonstrations taught, of which four in ten were wrong."""
    pytest.importorskip("openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'")
    from agentrl_jax import loop
    from agentrl_jax.configs.capture_arithmetic import get_config
    from agentrl_jax.experiment import Rollouts

    (tmp_path / "agent.py").write_text(LEARNER)
    experiment = get_config("single")
    experiment.environment.options["largest"] = 4
    assert experiment.sft is not None and experiment.rl is not None and experiment.demonstrations is not None
    experiment.sft.steps, experiment.demonstrations.episodes, experiment.evaluation.episodes = 100, 1500, 64
    experiment.rl.source = Rollouts(tasks=8, strategy=Captured(("{python}", str(tmp_path / "agent.py")), pool=1, at_once=32))
    experiment.rl.steps = 12
    loop.train(experiment, tmp_path / "run", quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    returns = [line["rollout/return"] for line in lines if line["phase"] == "rl"]
    identities = [line["tokens/identity"] for line in lines if line["phase"] == "rl"]
    assert sum(returns[-3:]) / 3 > sum(returns[:2]) / 2 + 0.1 and set(identities) == {1.0}, returns
