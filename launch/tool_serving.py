"""The servers of `agentrl-tools`, from its flags."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from agentrl_jax import tool_formats
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import parse_literals
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.tool_servers.agent_gym_serving import AgentGymServer, serve_agent_gym
from agentrl_jax.tool_servers.served_tools import make_tools, make_trajectory_tools
from agentrl_jax.tool_servers.verl_tool_serving import VerlToolServer, serve_verl_tool

FORMATS = {
    "hermes": tool_formats.HermesToolFormat,
    "llama": tool_formats.LlamaToolFormat,
    "python_list": tool_formats.PythonListToolFormat,
    "function_tag": tool_formats.FunctionTagToolFormat,
    "fenced": tool_formats.FencedCodeToolFormat,
}


def serve_stdio(f: Any) -> None:
    """Serve MCP on stdin and stdout. Raises UserError where the flags are of another protocol."""
    if f.protocol != "mcp":
        raise UserError(f"--stdio is for --protocol=mcp, not {f.protocol}")
    from agentrl_jax.tool_servers import mcp_serving  # an extra

    tools = make_tools(f.tool, _sandbox(f), True, f.seconds, f.characters)
    asyncio.run(mcp_serving.serve_stdio(tools, f.calls))


def make_server(
    f: Any, key: str, limits: ServerLimits
) -> tuple[AbstractAsyncContextManager[str], str]:
    """The server of the flags, which yields its address, and what it offers.

    Args:
        f: the flags.
        key: that clients send.
        limits: of connections and requests.

    Raises:
        UserError: a flag is missing, wrong or of another protocol.
    """
    limits.check()
    is_environment = f.protocol in ("agentgym", "openenv")
    if is_environment != bool(f.environment) or (f.environment and f.tool):
        raise UserError(
            "--environment is for --protocol=agentgym and openenv, which need it; the others need "
            "--tool"
        )
    if f.protocol == "openenv":
        from agentrl_jax.tool_servers.openenv_serving import OpenEnvServer, serve_openenv

        options = parse_literals(f.option)
        offer = OpenEnvServer(f.environment, options, key, limits, f.clients, f.seconds)
        return serve_openenv(offer, f.host, f.port), f.environment
    if f.protocol == "agentgym":
        server = AgentGymServer(
            f.environment, parse_literals(f.option), key, limits, f.clients, max_calls=f.calls
        )
        return _closing(server, serve_agent_gym(server, f.host, f.port, limits)), f.environment
    if f.protocol == "verltool":
        arguments = (f.tool, _sandbox(f), f.seconds, f.characters)
        first = make_trajectory_tools(*arguments)  # what is wrong is told at once
        first.close()
        names = ", ".join(tool.name for tool in first.tools)
        server = VerlToolServer(
            lambda: make_trajectory_tools(*arguments),
            FORMATS[f.format](),
            key,
            limits,
            f.clients,
            max_calls=f.calls,
        )
        return _closing(server, serve_verl_tool(server, f.host, f.port, limits)), names
    from agentrl_jax.tool_servers import mcp_serving  # an extra

    tools = make_tools(f.tool, _sandbox(f), False, f.seconds, f.characters)
    server = mcp_serving.serve_http(tools, f.host, f.port, key, limits, f.calls)
    return server, ", ".join(tool.name for tool in tools)


@asynccontextmanager
async def _closing(server: Any, served: AbstractAsyncContextManager[str]) -> AsyncIterator[str]:
    """The address of a server, which is closed with its trajectories or environments."""
    try:
        async with served as url:
            yield url
    finally:
        server.close()


def _sandbox(f: Any) -> SandboxConfig:
    limits = SandboxLimits(seconds=f.seconds, memory_mb=f.memory_mb)
    return SandboxConfig(f.minimum, limits, tuple(f.modules))
