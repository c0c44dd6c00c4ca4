"""OpenEnv's websocket messages: a server's environment against its own loop, and its failures."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.openenv_server import GuessGame, openenv_server

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError

pytest.importorskip("websockets", reason="websockets is not installed: make test-extras does it")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with openenv_server() as address:
        yield address


def client(url: str, **options: Any) -> Environment:
    return make("agentrl/OpenEnv-v0", {"url": url, **options})


def test_messages_and_rewards_are_those_of_the_games_own_loop(url: str):
    env, game = client(url, reset_fields={"low": 2}), GuessGame()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        (opening,), _ = env.reset(seed=seed)
        data = game.reset(seed, low=2)
        assert opening.text == "hint: {hint}\nturns: {turns}\n".format(**data["observation"])
        total, is_over = 0.0, False
        while not is_over:
            guess = str(rng.integers(10))
            (answer,), reward, is_over, truncated, info = env.step(guess)
            data = game.step({"message": guess})
            assert answer.text == "hint: {hint}\nturns: {turns}\n".format(**data["observation"])
            assert (reward, is_over, truncated) == (data["reward"], data["done"], False)
            total += reward
        assert info["success"] == (total == 1.0)
    env.close()


def test_texts_are_a_field_or_the_actions_fields(url: str):
    env = client(url, action_field="", observation_fields=["hint"], instructions="Guess.")
    (opening,), _ = env.reset(seed=0)
    assert opening.text == "Guess.\nfrom 0\n"
    for text in ("5", "{", '"5"', '{"word": "5"}', '{"message": "?"}', "[" * 10**5):
        (answer,), reward, terminated, truncated, info = env.step(text)
        assert answer.text.startswith("Invalid action: ") and info["legal"] is False
        assert (reward, terminated, truncated) == (0.0, False, False)
    (answer,), *_, info = env.step('{"message": "9"}')
    assert answer.text in ("more\n", "less\n", "right\n") and info["legal"] is True
    env.close()


def test_the_horizon_truncates(url: str):
    env = client(url, horizon=2)
    env.reset(seed=0)
    assert env.step("x")[2:4] == (False, False)
    *_, terminated, truncated, info = env.step("x")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    env.close()


def test_a_fork_is_a_replay_over_another_connection(url: str):
    env = client(url)
    env.reset(seed=1)
    env.step("0")
    twin = env.fork()
    assert [twin.step("1")[:4], twin.step("2")[:4]] == [env.step("1")[:4], env.step("2")[:4]]
    env.close()
    twin.close()


def test_a_failure_of_the_server_is_a_failure_and_the_next_episode_goes_on(url: str):
    env = client(url)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="the game is broken") as failure:
        env.step("!")
    assert failure.value.kind == "raised"
    env.reset(seed=0)
    assert env.step("x")[1] == 0.0
    env.close()
    env.close()


GOOD = {"observation": {"hint": "x"}, "reward": 0.0, "done": False}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("no JSON", "nonsense", "is no JSON"),
        ("[1]", "nonsense", "answered \\[1\\]"),
        ('{"type": "state", "data": {}}', "nonsense", "answered"),
        ('{"type": "observation", "data": []}', "nonsense", "answered"),
        (json.dumps({"type": "observation", "data": GOOD | {"done": 1}}), "nonsense", "answered"),
        (json.dumps({"type": "observation", "data": GOOD | {"done": True}}), "nonsense", "is done"),
        (json.dumps({"type": "observation", "data": GOOD | {"reward": ""}}), "nonsense", "answ"),
        ('{"type": "observation", "data": {"reward": 1e999}}', "nonsense", "answered"),
        ('{"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}', "raised",
         "failed at reset: full"),
        (json.dumps({"type": "observation", "data": GOOD, "x": "y" * 3000}), "flood", "broke off"),
        ("gone", "died", "broke off"),
    ],
)  # fmt: skip
def test_a_server_that_answers_nonsense_is_a_failure(answer: str, kind: str, message: str):
    with openenv_server(answer) as url, pytest.raises(EnvironmentFailure, match=message) as failure:
        client(url, max_bytes=2000).reset(seed=0)
    assert failure.value.kind == kind


def test_a_server_that_is_late_or_not_there_is_a_failure():
    with openenv_server("late") as url, pytest.raises(DeadlineExceeded, match=r"in 0.2 s"):
        client(url, seconds=0.2).reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="broke off") as failure:
        client(url).reset(seed=0)
    assert failure.value.kind == "died"


def test_keys_are_sent_and_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENENV_TEST_KEY", "sk-test")
    with openenv_server(key="sk-test") as url:
        env = client(url.replace("http", "ws"), key_variable="OPENENV_TEST_KEY")
        env.reset(seed=0)
        env.close()
        with pytest.raises(UserError, match=r"refuses the key \(401\)"):
            client(url).reset(seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs an address such as http://"),
        ({"url": "ftp://a"}, "needs an address"),
        ({"url": "http://a", "horizon": -1}, "horizon must be"),
        ({"url": "http://a", "seconds": 0.0}, "positive limits"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/OpenEnv-v0", options)
