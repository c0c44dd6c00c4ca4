"""Tools of MCP servers: over stdio and HTTP, their limits, and servers that end, hang or lie."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode
from support.processes import free_port

pytest.importorskip("mcp", reason="the SDK of MCP is not installed: make test-extras does it")

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import make
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.tool_environment import ToolEnvironment, tool_action
from agentrl_jax.tool_servers import stdio_transport
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.tool_servers.mcp_connection import McpConnection
from agentrl_jax.tool_servers.mcp_results import plain_schema
from agentrl_jax.tool_servers.mcp_tools import McpTools, close_shared_connections
from agentrl_jax.tools import ToolOutput
from agentrl_jax.workers.pool import InlinePool, Task

SHOP_PROGRAM = Path(__file__).parents[1] / "support" / "mcp_shop.py"
ROOT = Path(__file__).parents[2]
SHOP = McpServer(
    f"{{python}} {SHOP_PROGRAM}", call_seconds=1.0, probe_seconds=0.5, max_answer_bytes=100_000
)


def call(connection: McpConnection, name: str, **arguments: Any) -> ToolOutput:
    (tool,) = [tool for tool in connection.tools if tool.name == name]
    return tool.run(ToolCall("", name, json.dumps(arguments)))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_ended(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not end by themselves are killed sooner."""
    monkeypatch.setattr(stdio_transport, "EXIT_SECONDS", 0.3)


@pytest.fixture
def shop() -> Iterator[McpConnection]:
    connection = McpConnection(SHOP)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """The shop over HTTP, whose token is in MCP_TEST_TOKEN."""
    port = free_port()
    command = [sys.executable, str(SHOP_PROGRAM), f"--port={port}", "--token=secret"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}/mcp"
        wait_for_server(url, process)
        yield dataclasses.replace(SHOP, command="", url=url, token_variable="MCP_TEST_TOKEN")
        process.kill()


def wait_for_server(url: str, process: subprocess.Popen) -> None:
    import httpx2

    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx2.get(url)
            return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TEST_TOKEN", "secret")


def check_tools(connection: McpConnection) -> None:
    names = "price visit photo stock_list wait block quit close_in flood"  # "stock.list" there
    assert [tool.name for tool in connection.tools] == names.split()
    price = connection.tools[0]
    assert price.description == "Tell the price of so many of an item."
    assert price.parameters["required"] == ["item"]
    assert call(connection, "price", item="fig", count=2) == ToolOutput("6")
    assert call(connection, "price", item=3) == ToolOutput(
        "Error: item must be a string, not 3", True
    )
    wrong = call(connection, "price", item="pie")
    assert wrong.is_error and wrong.text.endswith("there is no pie")
    assert json.loads(call(connection, "stock_list").text) == {"fig": 7}
    photo = call(connection, "photo")
    assert photo.text == "the shop" and photo.images[0].url.startswith("data:image/png;base64,")


def test_a_servers_tools_are_tools_over_stdio(shop: McpConnection):
    check_tools(shop)
    long = call(shop, "flood", size=5000).text
    assert long.startswith("x" * 4000) and long.endswith("[cut after 4,000 of 5,000 characters]")


def test_a_servers_tools_are_tools_over_http(http_server: McpServer, token: None):
    connection = McpConnection(dataclasses.replace(http_server, call_seconds=10.0))
    check_tools(connection)
    with pytest.raises(EnvironmentFailure, match="answered more than 100,000 bytes") as failure:
        call(connection, "flood", size=200_000)
    assert failure.value.kind == "flood" and connection.is_broken
    connection.close()


def test_a_wrong_token_and_an_unset_variable_are_the_users(
    http_server: McpServer, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UserError, match=r"MCP_TEST_TOKEN should hold the key .*pass_variables"):
        McpConnection(http_server)
    monkeypatch.setenv("MCP_TEST_TOKEN", "wrong")
    with pytest.raises(UserError, match=r"refuses the token \(401\): set token_variable"):
        McpConnection(http_server)


def test_a_slow_call_is_the_policys_and_a_server_that_hangs_is_not(shop: McpConnection):
    assert call(shop, "wait", seconds=20) == ToolOutput("Error: wait took longer than 1 s", True)
    assert call(shop, "visit") == ToolOutput("visit 1")
    with pytest.raises(DeadlineExceeded, match="hangs since a call of block within 1 s"):
        call(shop, "block", seconds=20)
    assert shop.is_broken


def test_a_server_that_ends_is_a_failure_with_its_status_and_last_words(shop: McpConnection):
    match = "has ended: its exit status is 3; it printed last: .*the shop has burnt down"
    with pytest.raises(EnvironmentFailure, match=match) as failure:
        call(shop, "quit", status=3)
    assert failure.value.kind == "died"
    with pytest.raises(EnvironmentFailure, match=r"the connection .* is lost"):
        call(shop, "visit")


def test_a_server_that_ends_while_it_is_asked_for_a_sign_of_life_is_a_failure(shop: McpConnection):
    assert call(shop, "close_in", seconds=1.3).text == "soon"
    with pytest.raises(EnvironmentFailure, match="exit status is 6"):
        call(shop, "block", seconds=20)


def test_a_closed_connection_answers_no_call():
    connection = McpConnection(SHOP)
    connection.close()
    with pytest.raises(EnvironmentFailure, match="is lost"):
        call(connection, "visit")


def test_a_killed_server_is_a_failure_with_the_signal(shop: McpConnection):
    assert shop.pid is not None
    os.kill(shop.pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailure, match="has ended: killed by signal 9"):
        call(shop, "visit")


def test_a_message_that_is_too_long_is_a_flood(shop: McpConnection):
    with pytest.raises(EnvironmentFailure, match="message of more than 100,000 bytes") as failure:
        call(shop, "flood", size=200_000)
    assert failure.value.kind == "flood"


@pytest.mark.parametrize(
    ("command", "error", "match"),
    [
        ("no-such-program x", UserError, "cannot be started .* does the program exist"),
        ("cat", EnvironmentFailure, "answered with an error: Method not found"),
        ("echo hello", EnvironmentFailure, "its exit status is 0; .* no message: 'hello'"),
        ("sh -c 'echo no licence >&2; exit 7'", EnvironmentFailure, "status is 7; .*: no licence"),
        ("sleep 60", DeadlineExceeded, "has not named its tools within 0.3 s"),
        ("sh -c 'echo hello; exec sleep 60'", DeadlineExceeded, "no message: 'hello'"),
        ("yes", DeadlineExceeded, "no message: 'y'"),
    ],
)
def test_a_program_that_is_no_server_is_named(command: str, error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        McpConnection(dataclasses.replace(SHOP, command=command, start_seconds=0.3))


def test_what_answers_http_but_no_mcp_is_a_failure():
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind=127.0.0.1", str(port := free_port())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        url = f"http://127.0.0.1:{port}/mcp"
        wait_for_server(url, process)
        with pytest.raises(EnvironmentFailure, match="answered with an error"):
            McpConnection(McpServer(url=url))
        process.kill()
    with pytest.raises(EnvironmentFailure, match="ConnectError") as failure:
        McpConnection(McpServer(url=url))
    assert failure.value.kind == "died"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"command": ""}, "either a command or a url"),
        ({"url": "http://a"}, "either a command or a url"),
        ({"command": "", "url": "localhost:80"}, "needs an address such as http://"),
        ({"token_variable": "X"}, "token_variable is of a url"),
        ({"command": "a 'b"}, "cannot be read: No closing quotation"),
        ({"call_seconds": 0.0}, "call_seconds of an MCP server must be positive"),
        ({"max_characters": 0}, "max_characters of an MCP server must be at least 1"),
    ],
)
def test_a_wrong_config_is_one_sentence(change: dict[str, Any], match: str):
    with pytest.raises(UserError, match=match):
        McpTools(dataclasses.replace(SHOP, **change))


def test_the_config_chooses_tools_and_bounds_their_number():
    connection = McpConnection(dataclasses.replace(SHOP, tools=("stock.list", "visit")))
    assert [tool.name for tool in connection.tools] == ["visit", "stock_list"]
    connection.close()
    with pytest.raises(UserError, match=r"has no tool 'sell'; it has price, visit"):
        McpConnection(dataclasses.replace(SHOP, tools=("sell",)))
    with pytest.raises(UserError, match="has more than 3 tools"):
        McpConnection(dataclasses.replace(SHOP, max_tools=3))


def test_a_schema_says_nothing_where_it_says_true():
    schema = {"type": "object", "properties": {"a": True, "b": {"items": True}, "c": {"x": 1}}}
    properties = {"a": {}, "b": {"items": {}}, "c": {"x": 1}}
    assert plain_schema(schema) == {"type": "object", "properties": properties}


class Shop(ToolEnvironment):
    """An environment as in docs/tool_servers.md."""

    def __init__(self, mcp: McpTools) -> None:
        super().__init__()
        self.mcp = mcp

    def _tools(self):
        return self.mcp.tools

    def _reset(self, options):
        self.mcp.restart()
        return (Message("user", "How much?"),), {}

    def close(self):
        self.mcp.close()


def test_an_episode_has_a_server_of_its_own_where_none_is_shared():
    env = Shop(McpTools(SHOP, shared=False))
    for _ in range(2):
        env.reset(seed=0)
        (answer,), *_, info = env.step(tool_action("visit"))
        assert answer.text == "visit 1" and info["tool_errors"] == 0
    (answer,), *_ = env.step(tool_action("photo"))
    assert isinstance(answer.content, tuple) and answer.content[0] == TextPart("the shop")
    assert isinstance(answer.content[1], ImagePart) and answer.tool_call_id == "call_0"
    env.close()
    with pytest.raises(EnvironmentFailure, match="there is no connection"):
        env.step(tool_action("visit"))


def test_a_shared_connection_is_opened_again_once_it_is_lost():
    first, second = Shop(McpTools(SHOP)), Shop(McpTools(SHOP))
    try:
        for count, env in enumerate((first, second), start=1):
            env.reset(seed=0)
            assert env.step(tool_action("visit"))[0][0].text == f"visit {count}"
        assert pickle.loads(pickle.dumps(first.mcp)).tools == first.mcp.tools
        with pytest.raises(EnvironmentFailure, match="exit status is 5"):
            first.step(tool_action("quit", status=5))
        with pytest.raises(EnvironmentFailure, match="is lost"):  # its state is gone
            second.step(tool_action("visit"))
        first.reset(seed=0)
        assert first.step(tool_action("visit"))[0][0].text == "visit 1"
    finally:
        close_shared_connections()


def test_closing_ends_the_server_and_so_does_the_death_of_its_worker(shop: McpConnection):
    assert shop.pid is not None and is_running(shop.pid)
    shop.close()
    assert not is_running(shop.pid)
    code = (
        "import time\nfrom agentrl_jax.tool_servers.mcp_config import McpServer\n"
        "from agentrl_jax.tool_servers.mcp_connection import McpConnection\n"
        f"print(McpConnection(McpServer({SHOP.command!r})).pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
    ) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        os.killpg(worker.pid, signal.SIGKILL)
        assert wait_until_ended(pid)


def test_prices_are_calculated_by_a_server():
    env = make("agentrl/RemotePriceList-v0")
    try:
        episode = play_scripted_episode(env, "expert", seed=3)
        assert episode.success and [len(turn.action.tool_calls) for turn in episode.turns] == [
            1, 1, 1, 0
        ]  # fmt: skip
        env.reset(seed=4)
        (answer,), *_ = env.step(tool_action("calculate", expression="2**3"))
        assert answer.text.startswith("Error executing tool calculate: an expression has")
        assert env.step(tool_action("calculate", expression="2*3+4"))[0][0].text == "10"
        action = env.scripted_policies["random"](env, np.random.default_rng(0))
        assert env.step(action)[0] in env.observation_space
    finally:
        env.close()
        close_shared_connections()


def test_a_server_without_the_calculator_is_a_failure():
    env = make("agentrl/RemotePriceList-v0", {"command": SHOP.command})
    try:
        with pytest.raises(EnvironmentFailure, match="has no tool calculate, only price, visit"):
            env.reset(seed=0)
    finally:
        close_shared_connections()


DIES_ONCE = """
import pathlib, sys
from agentrl_jax.envs.programs.calculator_server import server
marker = pathlib.Path(sys.argv[1])
if not marker.exists():
    marker.touch()
    sys.exit("no licence")
server.run()
"""


@pytest.mark.parametrize("is_transient", [True, False])
def test_episodes_of_a_server_that_ends_are_played_again_or_dropped(
    is_transient: bool, tmp_path: Path
):
    program = tmp_path / "dies.py"
    program.write_text(DIES_ONCE)
    command = f"{{python}} {program} {tmp_path}/mark" if is_transient else "sh -c 'exit 4'"
    task = Task("agentrl_jax.envs:agentrl/RemotePriceList-v0", 3, {"command": command})
    try:
        with Runtime({}, {}, InlinePool()) as runtime:
            (group,) = runtime.collect(ScriptedEpisodes("expert"), [task], (0, 0))
            failures = runtime.failures
    finally:
        close_shared_connections()
    assert [t.total_reward for t in group.trajectories] == ([1.0] if is_transient else [])
    assert failures.dropped == group.num_dropped == (0 if is_transient else 1)
    assert failures.counts["died"] == (1 if is_transient else 3)
    cause = "printed last: no licence" if is_transient else "exit status is 4"
    assert cause in failures.last_messages["died"]


@pytest.mark.slow
def test_a_policy_trains_with_a_servers_tools(tmp_path: Path):
    from support.cut_down import cut_down

    from agentrl_jax.configs.mcp_tools_grpo import get_config
    from agentrl_jax.training import loop

    loop.train(cut_down(get_config("smoke")), tmp_path / "run", quiet=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["environment_failures"]["total"] == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    assert all(np.isfinite(step["loss"]) for step in steps if step["phase"] == "sft")
    rollouts = [step for step in steps if step["phase"] == "rl"]
    assert len(rollouts) == 2 and all(step["env/failures"] == 0 for step in rollouts)
