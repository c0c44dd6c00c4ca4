"""AgentGym's verbs: environments of this library behind our server, played through our client."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import httpx2
import numpy as np
import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine
from support.odd_server import json_response, odd_server
from support.served_app import served

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import Environment, make
from agentrl_jax.envs.remote.agent_gym import AgentGym
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.tool_servers.agent_gym_serving import AgentGymServer, serve_agent_gym
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers.pool import InlinePool, Task

KEY = "sk-test"
HEADERS = {"Authorization": f"Bearer {KEY}"}
LIMITS = ServerLimits(max_request_bytes=5000, max_json_depth=8)
CLIENT = "agentrl/AgentGym-v0"


class Failing(Environment):
    """Fails at the word "fail", waits at "wait", and ends at "end" with the number of its turns."""

    closed: list[int] = []  # noqa: RUF012
    turns = 0

    def _reset(self, options):
        self.turns = 0
        return (user(f"task {self._seed}"),), {}

    def _step(self, text):
        self.turns += 1
        if text == "fail":
            raise RuntimeError("the door is stuck")
        if text == "nonsense":
            return (user("x"),), float("nan"), False, False, {}
        if text == "wait":
            threading.Event().wait(1.0)
        is_over = text == "end"
        return (user(f"turn {self.turns}"),), float(self.turns), is_over, False, {}

    def close(self):
        self.closed.append(self.turns)


if "tests/Failing-v0" not in gymnasium.registry:
    gymnasium.register("tests/Failing-v0", entry_point=lambda **options: Failing(**options))


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_TEST_KEY", KEY)


def serving(name: str, options: dict[str, Any] | None = None, **settings: Any) -> Any:
    server = AgentGymServer(name, options or {}, KEY, LIMITS, **settings)
    return served(lambda: serve_agent_gym(server, "127.0.0.1", 0, LIMITS))


@pytest.fixture
def url(key: None) -> Iterator[str]:
    Failing.closed.clear()
    with serving("tests/Failing-v0", max_environments=2) as address:
        yield address


def post(url: str, path: str, **fields: Any) -> Any:
    reply = httpx2.post(f"{url}{path}", json=fields, headers=HEADERS)
    assert reply.status_code == 200, reply.text
    return reply.json()


def client(url: str, **options: Any) -> Environment:
    return make(CLIENT, {"url": url, "key_variable": "GYM_TEST_KEY", **options})


def test_the_verbs_have_agentgyms_form(url: str):
    created = post(url, "/create")
    identity = created["id"]
    assert created == {"id": identity, "observation": "task 0", "reward": 0.0, "done": False}
    assert post(url, "/reset", id=identity, data_idx=7)["observation"] == "task 7"
    step = post(url, "/step", id=identity, action="go")
    assert (step["observation"], step["reward"], step["done"]) == ("turn 1", 1.0, False)
    query = httpx2.get(f"{url}/observation", params={"id": identity}, headers=HEADERS)
    assert query.json() == "turn 1"
    assert post(url, "/step", id=identity, action="end")["done"] is True
    late = httpx2.post(f"{url}/step", json={"id": identity, "action": "x"}, headers=HEADERS)
    assert late.status_code == 409 and "the episode is over" in late.text
    assert post(url, "/close", id=identity) == {"closed": True}
    deadline = time.monotonic() + 10
    while 2 not in Failing.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 2 in Failing.closed


@pytest.mark.parametrize("name", ["Wordle-v0", "MazeFO-v0", "KeyDoor-v0"])
def test_an_environment_plays_as_well_behind_the_verbs(name: str, key: None):
    local = make(f"agentrl/{name}")
    with serving(f"agentrl_jax.envs:agentrl/{name}") as url:
        remote = client(url)
        for seed in (3, 4):
            rng = np.random.default_rng(seed)
            opening, _ = local.reset(seed=seed)
            assert "".join(m.text for m in remote.reset(seed=seed)[0]) == "\n".join(
                m.text for m in opening
            )
            is_over = False
            while not is_over:
                action = local.scripted_policies["expert"](local, rng)
                observation, reward, terminated, truncated, info = local.step(action)
                answer, gain, *ends, details = remote.step(action)
                assert [m.text for m in answer] == [m.text for m in observation]
                assert (gain, *ends) == (reward, terminated, truncated)
                is_over = terminated or truncated
            assert details["success"] == info["success"]
        remote.close()


def test_the_client_reads_actions_tasks_and_scores(url: str):
    env = client(
        url,
        tasks=5,
        instructions="Play.",
        action_pattern=r"Action:\s*(.*)",
        reward_is_score=True,
        success_reward=3.0,
    )
    (opening,), info = env.reset(seed=12)
    assert opening.text == "Play.\ntask 2" and info == {"task_index": 2}
    assert env.step("Thought: ...\nAction: go\nAction: on")[1] == 1.0
    assert env.step("no action at all")[1] == 1.0  # the score is 2
    *_, terminated, truncated, info = env.step("Action: end")
    assert (terminated, truncated, info["success"]) == (True, False, True)
    short = client(url, horizon=2)
    short.reset(seed=0)
    assert short.step("go")[2:4] == (False, False)
    *_, terminated, truncated, info = short.step("go")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    env.close()
    short.close()


def test_an_environment_that_fails_is_a_failure_and_the_next_episode_has_another(url: str):
    env = client(url)
    for action, message in (("fail", "the door is stuck"), ("nonsense", "a finite number")):
        env.reset(seed=1)
        with pytest.raises(EnvironmentFailure, match=rf"answered 500: .*{message}"):
            env.step(action)
    env.reset(seed=1)
    assert env.step("go")[1] == 1.0
    env.close()


def test_a_fork_is_a_replay_in_another_environment_of_the_server(url: str):
    env = client(url)
    env.reset(seed=1)
    env.step("go")
    twin = env.fork()
    assert twin.step("go")[0][0].text == "turn 2" == env.step("go")[0][0].text
    env.close()
    twin.close()


def test_the_number_of_environments_is_bounded(url: str):
    envs = [client(url) for _ in range(3)]
    for env in envs[:2]:
        env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match=r"answered 429: .* 2 environments already"):
        envs[2].reset(seed=0)
    envs[0].close()
    assert envs[2].reset(seed=0)[0][0].text == "task 0"


def test_an_environment_that_was_idle_makes_room_and_is_lost(key: None):
    with serving("tests/Failing-v0", max_environments=1, idle_seconds=1e-9) as url:
        first, second = client(url), client(url)
        first.reset(seed=0)
        second.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match="ended or was idle too long") as failure:
            first.step("go")
        assert failure.value.kind == "lost"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/step", "{", 400, "the body is no JSON"),
        ("/step", "[]", 400, "the body must be a JSON object"),
        ("/step", '{"id": 0}', 400, "action must be a text"),
        ("/step", '{"id": "0", "action": "x"}', 400, "id must be the number that /create returned"),
        ("/step", '{"id": true, "action": "x"}', 400, "id must be the number"),
        ("/step", '{"id": 99, "action": "x"}', 404, "there is no environment 99"),
        ("/reset", '{"id": 99}', 400, "data_idx must be a whole number from 0"),
        ("/reset", '{"id": 99, "data_idx": -1}', 400, "data_idx must be a whole number from 0"),
        ("/reset", '{"id": 99, "data_idx": 1}', 404, "there is no environment 99"),
        ("/close", "{}", 400, "id must be the number"),
        ("/create", '{"data_idx": "1"}', 400, "data_idx must be a whole number"),
        ("/create", "[" * 20 + "]" * 20, 400, "nests deeper than 8 levels"),
        ("/create", '{"a": "' + "x" * 6000 + '"}', 413, "a request may have 5,000 bytes"),
        ("/available_actions", "{}", 404, "is not served here"),
    ],
)
def test_a_wrong_request_is_one_sentence(url: str, path: str, body: str, status: int, message: str):
    reply = httpx2.post(f"{url}{path}", content=body, headers=HEADERS)
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_keys_hosts_and_numbers_are_checked(url: str, monkeypatch: pytest.MonkeyPatch):
    assert httpx2.post(f"{url}/create", json={}).status_code == 401
    evil = httpx2.post(f"{url}/create", json={}, headers={**HEADERS, "Host": "evil.example"})
    assert evil.status_code == 421
    query = httpx2.get(f"{url}/observation", params={"id": "9" * 30}, headers=HEADERS)
    assert query.status_code == 400
    monkeypatch.setenv("GYM_TEST_KEY", "wrong")
    with pytest.raises(UserError, match=r"refuses the key \(401\)"):
        client(url).reset(seed=0)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("no JSON", "nonsense", "is no JSON"),
        ("null", "nonsense", "to /create has not AgentGym's form: None"),
        ('{"id": null}', "nonsense", "to /create has not AgentGym's form"),
        ('{"id": 1}', "nonsense", "to /reset and /observation has not AgentGym's form"),
        ('{"error": "no such task"}', "raised", "/create failed: no such task"),
        (json.dumps({"id": 1, "observation": "x" * 3000}), "flood", "more than 2,000 bytes"),
    ],
)
def test_a_server_that_answers_nonsense_is_a_failure(answer: str, kind: str, message: str):
    with odd_server(json_response(answer)) as url:
        env = make(CLIENT, {"url": url, "max_bytes": 2000})
        with pytest.raises(EnvironmentFailure, match=message) as failure:
            env.reset(seed=0)
        assert failure.value.kind == kind


@pytest.mark.parametrize(
    "step",
    [
        {"observation": "o", "reward": None, "done": False},
        {"observation": "o", "reward": 1e999, "done": False},
        {"observation": "o", "reward": 1.0, "done": "no"},
        {"observation": 3, "reward": 1.0, "done": False},
        {"reward": 1.0, "done": False},
        [],
    ],
)
def test_a_step_that_is_none_is_never_a_reward(step: Any):
    with odd_server(json_response('{"id": 1, "observation": "o"}')) as url:
        env = make(CLIENT, {"url": url})
        env.reset(seed=0)
    assert isinstance(env, AgentGym)
    with odd_server(json_response(json.dumps(step))) as other:
        object.__setattr__(env._client, "url", other)
        with pytest.raises(EnvironmentFailure, match="to /step has not AgentGym's form"):
            env.step("go")


def test_a_server_that_hangs_or_is_gone_is_a_failure(url: str):
    env = client(url, seconds=0.3)
    env.reset(seed=0)
    with pytest.raises(DeadlineExceeded, match=r"no answer from .*/step in 0.3 s"):
        env.step("wait")
    with odd_server(b"") as gone:
        pass
    with pytest.raises(EnvironmentFailure, match="cannot be reached") as failure:
        make(CLIENT, {"url": gone}).reset(seed=0)
    assert failure.value.kind == "died"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs an address such as http://"),
        ({"url": "http://a", "tasks": -1}, "tasks must be a whole number"),
        ({"url": "http://a", "action_pattern": "("}, "is no pattern"),
        ({"url": "http://a", "action_pattern": "Action: .*"}, "needs a group"),
        ({"url": "http://a", "seconds": 0.0}, "positive limits"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make(CLIENT, options)


def test_a_server_needs_an_environment_that_exists():
    with pytest.raises(UserError, match="no environment is called"):
        AgentGymServer("agentrl/Nothing-v0", {}, KEY, LIMITS)


@pytest.mark.parametrize("is_transient", [True, False])
def test_a_failed_episode_is_played_again_or_dropped_and_never_scored(
    is_transient: bool, key: None, tmp_path: Path
):
    # /create and /reset both reset the first environment.
    path = {"path": str(tmp_path / "resets"), "times": 2} if is_transient else {}
    renderer = TextRenderer(byte_tokenizer())
    agent = Agent("policy", renderer, FullHistory(), Sampling(budget=8))
    with serving(faulty_envs.ENVIRONMENT_ID, {"how": "raise", **path}) as url:
        options = {"url": url, "key_variable": "GYM_TEST_KEY", "success_reward": 3.0}
        task = Task(f"agentrl_jax.envs:{CLIENT}", 2, options)
        engine = ScriptedEngine(renderer, "x")
        with Runtime({"policy": engine}, {"policy": agent}, InlinePool(), 1) as runtime:
            (group,) = runtime.collect(IndependentEpisodes(2), [task], (0, 0))
            failures = runtime.failures
    rewards = [trajectory.total_reward for trajectory in group.trajectories]
    assert rewards == ([3.0, 3.0] if is_transient else [])
    assert group.num_dropped == failures.dropped == (0 if is_transient else 2)
    assert failures.counts["raised"] == failures.total >= 1
    assert "the world is broken" in failures.last_messages["raised"]
