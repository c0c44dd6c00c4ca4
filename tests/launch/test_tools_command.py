"""agentrl-tools: each protocol, started as a command and used by its client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import make
from agentrl_jax.sandbox import kernel
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tool_servers.verl_tool import VerlToolSession

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "agentrl_jax.launch.tools"]


@contextmanager
def command(*flags: str) -> Iterator[str]:
    """The address that the command prints; its key is in TOOLS_TEST_KEY."""
    with subprocess.Popen(
        [*COMMAND, "--port=0", "--api_key_variable=TOOLS_TEST_KEY", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving ") and "key" not in line
            yield line.split()[-1]
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLS_TEST_KEY", "secret")


@pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
def test_verltools_protocol_runs_fenced_code_in_a_session_for_each_trajectory():
    with command("--protocol=verltool", "--tool=python", "--format=fenced") as url:
        client = JsonClient(url, "TOOLS_TEST_KEY")
        first, second = VerlToolSession(client), VerlToolSession(client)
        first.restart()
        second.restart()
        assert first.act("```python\nx = 3\nx + 1\n```").text == "4\n"
        assert "NameError" in second.act("```python\nx\n```").text
        assert first.act("so\n```python\nx * 2\n```").text == "6\n"
        assert not first.act("no code").is_valid
        first.close()
        second.close()


def test_agentgyms_verbs_serve_an_environment():
    flags = ("--protocol=agentgym", "--environment=agentrl_jax.envs:agentrl/Chain-v0")
    with command(*flags, "--option=length=3") as url:
        env = make("agentrl/AgentGym-v0", {"url": url, "key_variable": "TOOLS_TEST_KEY"})
        assert (
            env.reset(seed=1)[0][0].text
            == make("agentrl/Chain-v0", {"length": 3}).reset(seed=1)[0][0].text
        )
        assert json.dumps(env.step("x")[4])
        env.close()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--protocol=agentgym", "--environment is for --protocol=agentgym and openenv"),
        ("--environment=agentrl/Chain-v0", "--environment is for --protocol=agentgym"),
        ("--protocol=agentgym --environment=agentrl/None-v0", "no environment is called"),
        ("--protocol=verltool", "a server needs tools of different names, not none"),
        ("--protocol=verltool --stdio --tool=calculator", "--stdio is for --protocol=mcp"),
        ("--protocol=ftp", "ftp"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(flags: str, message: str):
    done = subprocess.run(
        [*COMMAND, "--port=0", *flags.split()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
