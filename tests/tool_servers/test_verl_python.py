"""Problems whose code runs on a VerlTool server: the same episodes as in a sandbox of their own."""

import copy
import functools
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cut_down import cut_down
from support.env_episodes import play_scripted_episode
from support.served_app import served

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.configs import code_verltool
from agentrl_jax.environment import Environment, make
from agentrl_jax.envs.code.scripted import call_python
from agentrl_jax.envs.code.served_code_problems import ServedCodeProblems
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.tool_formats import FencedCodeToolFormat
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tool_servers.served_tools import make_trajectory_tools
from agentrl_jax.tool_servers.verl_python import VerlPython
from agentrl_jax.tool_servers.verl_tool_serving import VerlToolServer, serve_verl_tool
from agentrl_jax.training import loop
from agentrl_jax.training.task_source import EnvironmentSpec

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
KEY, VARIABLE = "sk-python", "TOOL_SERVER_KEY"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(VARIABLE, KEY)
    config = SandboxConfig(limits=SandboxLimits(seconds=5.0, cpu_seconds=5.0))
    tools = functools.partial(make_trajectory_tools, ["python"], config)
    server = VerlToolServer(tools, FencedCodeToolFormat(), KEY, ServerLimits())
    with served(lambda: serve_verl_tool(server, "127.0.0.1", 0, ServerLimits())) as address:
        yield address
    server.close()


def make_served(url: str, **options: Any) -> ServedCodeProblems:
    env = make("agentrl/ServedCodeProblems-v0", {"url": url, "key_variable": VARIABLE, **options})
    assert isinstance(env, ServedCodeProblems)
    return env


def episode_of(env: Environment, player: str, seed: int) -> list[Any]:
    """What is said and rewarded in an episode."""
    turns = play_scripted_episode(env, player, seed).turns
    return [(turn.action, turn.observation, turn.reward, turn.info) for turn in turns]


def run_code(env: ServedCodeProblems, code: str) -> str:
    return env.step(call_python("", code))[0][0].text


@pytest.mark.parametrize("player", ["expert", "recovering", "mixture"])
def test_episodes_equal_those_in_a_sandbox(url: str, player: str):
    options = {"short_errors": True, "difficulty": [0.0, 1.0]}
    local, remote = make("agentrl/CodeProblems-v0", options), make_served(url, **options)
    for seed in range(10):
        assert episode_of(remote, player, seed) == episode_of(local, player, seed)
    local.close()
    remote.close()


def test_variables_stay_in_an_episode_and_errors_are_failures(url: str):
    env = make_served(url, short_errors=True)
    env.reset(seed=0)
    assert run_code(env, "x = 6\nx * 7") == "42"
    assert run_code(env, "print(x)\n{1: y}") == "6\nNameError: name 'y' is not defined"
    assert (env.calls, env.failed_calls) == (2, 1)
    env.reset(seed=0)
    assert run_code(env, "x") == "NameError: name 'x' is not defined"
    env.close()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_has_a_trajectory_of_its_own(url: str, duplicate: Any):
    env = make_served(url)
    env.reset(seed=0)
    run_code(env, "x = [1]")
    other = duplicate(env)
    assert run_code(env, "x.append(2); x") == "[1, 2]"
    assert run_code(other, "x") == "[1]"
    other.close()
    assert run_code(env, "x") == "[1, 2]"
    env.close()


def test_settings_and_servers_that_are_wrong(url: str):
    with pytest.raises(UserError, match="the code's place"):
        make_served(url, action="<python></python>")
    python = VerlPython(JsonClient(url, VARIABLE))
    with pytest.raises(UserError, match="call restart at each reset"):
        python.python("1")
    with pytest.raises(UserError, match="has files"):
        python.restart(files={"a": b""})
    tags = make_served(url, action="<python>{code}</python>")
    tags.reset(seed=0)
    assert run_code(tags, "1").startswith("Error: the action calls no tool")
    assert tags.failed_calls == 1
    away = make_served("http://127.0.0.1:9", request_seconds=2.0)
    away.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1:9"):
        run_code(away, "1")


@pytest.mark.skipif("ALL_LIMITS" not in os.environ, reason="make test-limits trains all configs")
@pytest.mark.slow
def test_the_config_trains(url: str, tmp_path: Path):
    experiment = code_verltool.get_config("smoke")
    experiment.environment.options["url"] = url
    for spec in experiment.evaluation.environments.values():
        assert isinstance(spec, EnvironmentSpec)
        spec.options["url"] = url
    loop.train(cut_down(experiment), tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["phase"] for line in lines} == {"sft", "rl"}
