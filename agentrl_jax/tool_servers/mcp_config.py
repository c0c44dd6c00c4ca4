"""`McpServer`: which server of the Model Context Protocol offers tools, and its limits."""

import math
import shlex
import sys
from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.tool_servers.access import check_url


@dataclass(frozen=True)
class McpServer:
    """A server that is started (`command`, over stdio) or reached (`url`, streamable HTTP)."""

    command: str = ""  # a program and its arguments, quoted as in a shell; {python} is this Python
    url: str = ""  # such as http://127.0.0.1:8000/mcp
    token_variable: str = ""  # the environment variable with the bearer token of `url`
    pass_variables: tuple[str, ...] = ()  # environment variables that the command gets too
    tools: tuple[str, ...] = ()  # which of its tools; empty: all
    start_seconds: float = 60.0  # until it has named its tools
    call_seconds: float = 30.0  # of a call
    probe_seconds: float = 5.0  # for a sign of life after a call that was late
    max_characters: int = 4000  # of a result's text; more are cut, with a mark
    max_answer_bytes: int = 2**24  # of what the server sends for one request
    max_tools: int = 128

    def check(self) -> "McpServer":
        """This config. Raises UserError where it names no server or two, or a limit is none."""
        if bool(self.command.strip()) == bool(self.url.strip()):
            raise UserError("an MCP server needs either a command or a url")
        if self.token_variable and not self.url:
            raise UserError("token_variable is of a url: a command gets pass_variables")
        if self.url:
            check_url(self.url, "an MCP server")
        for name in ("start_seconds", "call_seconds", "probe_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} of an MCP server must be positive and finite")
        for name in ("max_characters", "max_answer_bytes", "max_tools"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of an MCP server must be at least 1")
        self.arguments()
        return self

    def arguments(self) -> list[str]:
        """The command and its arguments. Raises UserError where a quote is not closed."""
        try:
            parts = shlex.split(self.command)
        except ValueError as error:
            raise UserError(f"the command {self.command!r} cannot be read: {error}") from error
        return [part.replace("{python}", sys.executable) for part in parts]

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"the MCP server {self.url or self.command!r}"
