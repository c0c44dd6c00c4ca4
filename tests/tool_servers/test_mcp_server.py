"""Our tools as a server of MCP: for the SDK's own client, and for requests that are wrong."""

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.served_app import served

pytest.importorskip("mcp", reason="the SDK of MCP is not installed: make test-extras does it")

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, ToolCall
from agentrl_jax.sandbox import kernel
from agentrl_jax.tool_servers.arithmetic import calculate
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.tool_servers.mcp_connection import McpConnection
from agentrl_jax.tool_servers.mcp_serving import serve_http
from agentrl_jax.tools import ToolOutput, tool

KEY = "sk-test"
LIMITS = ServerLimits(max_request_bytes=2000, max_json_depth=8)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    },
}
HEADERS = {
    "Authorization": f"Bearer {KEY}",
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}
barrier = threading.Barrier(3, timeout=10)


def look() -> ToolOutput:
    """Look."""
    data = base64.b64encode(b"png").decode()
    return ToolOutput("seen", images=(ImagePart(f"data:image/png;base64,{data}"),))


def meet() -> str:
    """Wait for two others."""
    barrier.wait()
    return "met"


def fail() -> str:
    """Fail as an environment does."""
    raise EnvironmentFailure("the warehouse is gone")


def sleep() -> str:
    """Sleep."""
    threading.Event().wait(5)
    return ""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    tools = [tool(calculate, max_characters=20), *map(tool, (look, meet, fail)), tool(sleep, 0.1)]
    with served(lambda: serve_http(tools, "127.0.0.1", 0, KEY, LIMITS)) as address:
        yield address


def test_the_sdks_client_lists_and_calls_our_tools(url: str):
    sdk, transport = map(pytest.importorskip, ("mcp", "mcp.client.streamable_http"))

    async def use() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http,
            sdk.Client(transport.streamable_http_client(url, http_client=http)) as client,
        ):
            listed = (await client.list_tools()).tools
            names = [t.name for t in listed]
            assert names == ["calculate", "look", "meet", "fail", "sleep"]
            assert listed[0].input_schema["required"] == ["expression"]
            result = await client.call_tool("calculate", {"expression": "2*(3+4)"})
            assert result.content[0].text == "14" and not result.is_error
            wrong = await client.call_tool("calculate", {"expression": 3})
            assert wrong.is_error and "must be a string" in wrong.content[0].text
            long = await client.call_tool("calculate", {"expression": "10**30"})
            assert long.content[0].text.endswith("[cut after 20 of 31 characters]")
            late = await client.call_tool("sleep", {})
            assert late.is_error and "took longer than 0.1 s" in late.content[0].text
            seen = await client.call_tool("look", {})
            image = seen.content[1]
            assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", b"png")
            met = await asyncio.gather(*(client.call_tool("meet", {}) for _ in range(3)))
            assert [r.content[0].text for r in met] == ["met"] * 3  # they ran at the same time
            with pytest.raises(sdk.MCPError, match="there is no tool 'buy'; there are calc"):
                await client.call_tool("buy", {})
            with pytest.raises(sdk.MCPError, match="the warehouse is gone"):
                await client.call_tool("fail", {})

    asyncio.run(use())


def test_our_client_meets_our_server(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MCP_TEST_KEY", KEY)
    connection = McpConnection(McpServer(url=url, token_variable="MCP_TEST_KEY"))
    tools = {t.name: t for t in connection.tools}
    assert tools["calculate"].run(ToolCall("", "", '{"expression": "7//2"}')) == ToolOutput("3")
    with pytest.raises(EnvironmentFailure, match="the warehouse is gone"):
        tools["fail"].run(ToolCall("", "", "{}"))
    connection.close()
    monkeypatch.setenv("MCP_TEST_KEY", "other")
    with pytest.raises(UserError, match=r"refuses the token \(401\)"):
        McpConnection(McpServer(url=url, token_variable="MCP_TEST_KEY"))


@pytest.mark.parametrize(
    ("change", "data", "status", "message"),
    [
        ({"Authorization": "Bearer x"}, INITIALIZE, 401, "this is not the key of this server"),
        ({"Authorization": ""}, INITIALIZE, 401, "this is not the key of this server"),
        ({"Host": "evil.example"}, INITIALIZE, 421, "'evil.example' is not served here"),
        ({}, "x" * 3000, 413, "a request may have 2,000 bytes"),
        ({}, "{", 400, "the body is no JSON"),
        ({}, "[" * 20 + "]" * 20, 400, "nests deeper than 8 levels"),
        ({}, '{"a": NaN}', 400, "NaN is no JSON number"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    url: str, change: dict[str, str], data: Any, status: int, message: str
):
    content = data if isinstance(data, str) else json.dumps(data)
    reply = httpx2.post(url, content=content, headers={**HEADERS, **change})
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_other_paths_are_not_served_and_what_is_no_message_of_mcp_is_refused(url: str):
    assert httpx2.get(url.removesuffix("/mcp") + "/x", headers=HEADERS).status_code == 404
    reply = httpx2.post(url, content='{"jsonrpc": "2.0"}', headers=HEADERS)
    assert reply.status_code == 400 and "error" in reply.json()
    assert httpx2.post(url, content=json.dumps(INITIALIZE), headers=HEADERS).status_code == 200


@pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
def test_the_command_serves_python_whose_variables_stay_over_stdio():
    command = "{python} -m agentrl_jax.launch.tools --tool=python --tool=calculator --stdio"
    connection = McpConnection(McpServer(command, pass_variables=("PYTHONPATH",)))
    python, calculator = connection.tools

    def run(code: str) -> str:
        return python.run(ToolCall("", "python", json.dumps({"code": code}))).text

    assert run("x = 3\nx + 1") == "4\n" and run("x + 2") == "5\n"
    assert "PermissionError" in run("open('/etc/passwd')")
    assert calculator.run(ToolCall("", "", '{"expression": "2**0.5"}')).text.startswith("1.414")
    connection.close()


def test_the_command_serves_a_users_function_over_http(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        'def twice(n: int) -> int:\n    "Double."\n    return 2 * n\n'
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-m", "agentrl_jax.launch.tools", "--tool=mine:twice", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": ""},
    ) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        url, key = words[3], words[-1]
        assert words[:3] == ["serving", "twice", "at"]
        headers = {**HEADERS, "Authorization": f"Bearer {key}"}
        reply = httpx2.post(url, content=json.dumps(INITIALIZE), headers=headers)
        assert reply.json()["result"]["serverInfo"]["name"] == "agentrl_jax"
        process.terminate()
        assert process.wait(10) == 0
