"""OpenEnv's messages: environments of this library behind our server, played through our client and
through the package's.
"""

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
from support import faulty_envs

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.environment import make
from agentrl_jax.errors import EnvironmentFailure, UserError

pytest.importorskip("websockets", reason="websockets is not installed: make test-extras")
from websockets.exceptions import InvalidStatus  # type: ignore[import-not-found]
from websockets.sync.client import connect  # type: ignore[import-not-found]

from agentrl_jax.tool_servers.openenv_serving import OpenEnvServer

KEY = "sk-test"
LIMITS = ServerLimits(max_request_bytes=5000, max_json_depth=8)
DESK = "agentrl_jax.envs:agentrl/Desk-v0"


def server(name: str = DESK, options: dict[str, Any] | None = None, **fields: Any) -> Any:
    offer = OpenEnvServer(name, options or {}, fields.pop("key", KEY), LIMITS, **fields)
    return offer.listening("127.0.0.1", 0)


def client(url: str, **options: Any) -> Any:
    return make("agentrl/OpenEnv-v0", {"url": url, "observation_fields": ["text"], **options})


def ask(socket: Any, kind: str, **data: Any) -> dict[str, Any]:
    socket.send(json.dumps({"type": kind, "data": data}))
    return json.loads(socket.recv(timeout=20))


def test_episodes_are_those_of_the_environment():
    with server() as url:
        remote, local = client(f"{url}/{KEY}", success_reward=1.5), make(DESK)
        for seed in range(100):
            rng = np.random.default_rng(seed)
            assert remote.reset(seed=seed)[0] == local.reset(seed=seed)[0]
            is_over = False
            while not is_over:
                policy = ("random", "mixture", "expert", "farmer")[seed % 4]
                action = local.scripted_policies[policy](local, rng)
                answer, reward, terminated, truncated, _ = local.step(action)
                result = remote.step(action)
                assert result[:2] == (answer, reward)
                assert result[2] is (terminated or truncated)
                is_over = terminated or truncated
        fork = remote.fork()
        assert fork.render() == remote.render()
        fork.close()
        remote.close()


def test_the_bearer_token_is_required(monkeypatch: pytest.MonkeyPatch):
    with server() as url:
        monkeypatch.setenv("OPENENV_KEY", KEY)
        env = client(url, key_variable="OPENENV_KEY")
        env.reset(seed=0)
        env.close()
        for path in ("", "/wrong", f"/{KEY}x"):
            with pytest.raises(UserError, match="refuses the key"):
                client(url + path).reset(seed=0)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{url}{path}/health", timeout=10)
        with urllib.request.urlopen(f"{url}/{KEY}/health", timeout=10) as response:
            assert json.load(response) == {"status": "healthy"}
        with urllib.request.urlopen(f"{url}/{KEY}/schema", timeout=10) as response:
            assert json.load(response)["action"]["required"] == ["message"]
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"{url}/{KEY}/ws".replace("http", "ws"), origin="http://evil.example")


def test_wrong_messages_are_answered_and_the_episode_goes_on():
    with server(key="") as url, connect(url.replace("http", "ws") + "/ws") as socket:
        assert ask(socket, "step", message="read 1")["data"]["code"] == "SESSION_ERROR"
        first = ask(socket, "reset", seed=3, episode_id="a")["data"]
        assert first["reward"] is None and first["done"] is False
        raw = {
            "{": "INVALID_JSON",
            "[]": "INVALID_JSON",
            "[" * 100 + "]" * 100: "INVALID_JSON",
            '{"type": "step", "data": 3}': "VALIDATION_ERROR",
            '{"type": "fly"}': "UNKNOWN_TYPE",
            '{"type": ["step"]}': "UNKNOWN_TYPE",
            '{"type": "step", "data": {"message": 3}}': "VALIDATION_ERROR",
            '{"type": "step", "data": {"message": "x", "more": 1}}': "VALIDATION_ERROR",
            '{"type": "step", "data": {"message": "\\ud800"}}': "VALIDATION_ERROR",
            '{"type": "reset", "data": {"seed": -1}}': "VALIDATION_ERROR",
            '{"type": "reset", "data": {"seed": true}}': "VALIDATION_ERROR",
        }
        for text, code in raw.items():
            socket.send(text)
            reply = json.loads(socket.recv(timeout=20))
            assert (reply["type"], reply["data"]["code"]) == ("error", code), text
        assert ask(socket, "state") == {
            "type": "state",
            "data": {"episode_id": "a", "step_count": 0},
        }
        done = ask(socket, "step", message="submit")["data"]
        assert done["done"] and done["observation"]["metadata"]["success"] is False
        assert ask(socket, "step", message="submit")["data"]["code"] == "SESSION_ERROR"


def test_a_message_that_is_too_long_ends_the_connection():
    with server(key="") as url:
        env = client(url)
        env.reset(seed=0)
        with pytest.raises(EnvironmentFailure):
            env.step("x" * 6000)
        assert env.reset(seed=0)[0] == make(DESK).reset(seed=0)[0]
        env.close()


def test_connections_are_bounded_and_make_room_when_they_end():
    with server(key="", max_environments=1) as url:
        first, second = client(url), client(url)
        first.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match="1 environments already"):
            second.reset(seed=0)
        first.close()
        for _ in range(100):
            try:
                second.reset(seed=0)
                break
            except EnvironmentFailure:
                time.sleep(0.05)
        else:
            raise AssertionError("no room was made")
        second.close()


def test_an_idle_connection_is_closed():
    with server(key="", idle_seconds=0.2) as url:
        env = client(url)
        env.reset(seed=0)
        time.sleep(1.0)
        with pytest.raises(EnvironmentFailure):
            env.step("read 1")


def test_an_environment_that_fails_or_is_late_is_an_error(capfd: pytest.CaptureFixture[str]):
    for how, message in (("raise", "ValueError: the world"), ("nap", "no answer in 0.1 s")):
        with server(faulty_envs.ENVIRONMENT_ID, {"how": how}, key="", seconds=0.1) as url:
            env = client(url)
            env.reset(seed=0)
            with pytest.raises(EnvironmentFailure, match=message):
                for _ in range(3):
                    env.step("x")
    capfd.readouterr()


def test_connections_are_served_at_once():
    with server(key="") as url:
        barrier, ends = threading.Barrier(4), list[bool]()

        def play(seed: int) -> None:
            env = client(url)
            env.reset(seed=seed)
            barrier.wait(20)
            env.step("read 1")
            ends.append(env.step("submit")[2])
            env.close()

        threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert ends == [True] * 4


@pytest.mark.skipif("OPENENV_PYTHON" not in os.environ, reason="OPENENV_PYTHON names no python")
def test_the_packages_client_plays_an_episode():
    code = (
        "import sys\n"
        "from openenv.core.generic_client import GenericEnvClient\n"
        "with GenericEnvClient(base_url=sys.argv[1]).sync() as env:\n"
        "    print(env.reset(seed=3).observation['text'].strip())\n"
        "    print(env.step({'message': 'read 1'}).observation['text'].strip())\n"
        "    print(env.state())\n"
        "    result = env.step({'message': 'submit'})\n"
        "    print(result.done, result.reward, result.observation['metadata'])\n"
    )
    env = make(DESK)
    opening, _ = env.reset(seed=3)
    page = env.step("read 1")[0]
    _, reward, *_ = env.step("submit")
    with server() as url:
        done = subprocess.run(
            [os.environ["OPENENV_PYTHON"], "-W", "ignore", "-c", code, f"{url}/{KEY}"],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.stdout.splitlines() == [
        opening[0].text.strip(),
        page[0].text.strip(),
        "{'episode_id': None, 'step_count': 1}",
        f"True {reward} {{'truncated': False, 'success': False}}",
    ], done.stderr
