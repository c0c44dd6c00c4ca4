"""`RemotePriceList`: `PriceList` whose calculator is a tool of an MCP server."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agentrl_jax.environment import Messages
from agentrl_jax.envs.tool_use.price_list import PriceList
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.tool_servers.mcp_tools import McpTools
from agentrl_jax.tools import Tool

CALCULATOR = "{python} -m agentrl_jax.envs.programs.calculator_server"


class RemotePriceList(PriceList):
    """As `PriceList`, but the tool `calculate` is a server's.

    The environments of a process share one connection. A server that ends or hangs is a failure of
    the environment.

    Args:
        command: a program that is a server over stdio.
        url: or the address of one that runs elsewhere; the command is not started then.
        token_variable: the environment variable with the bearer token of `url`.
        seconds: of a call.
        options: those of `PriceList`.
    """

    program_options: ClassVar[tuple[str, ...]] = ("command",)
    server_options: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        command: str = CALCULATOR,
        url: str = "",
        token_variable: str = "",
        seconds: float = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._mcp = McpTools(
            McpServer("" if url else command, url, token_variable, call_seconds=seconds)
        )

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        calculators = [t for t in self._mcp.tools if t.name == "calculate"]
        if not calculators:
            names = ", ".join(t.name for t in self._mcp.tools)
            raise EnvironmentFailure(f"the MCP server has no tool calculate, only {names}")
        remote = calculators[0]

        def run(expression: str) -> Any:
            output = remote.function(expression=expression)
            if not output.is_error:
                self.expressions |= {expression}
            return output

        return self.look_up, replace(remote, function=run)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        opening = super()._reset(options)
        self._mcp.restart()
        return opening

    def close(self) -> None:
        self._mcp.close()
