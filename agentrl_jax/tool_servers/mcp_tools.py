"""`McpTools`: the tools of an MCP server for a `ToolEnvironment`."""

import atexit
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.tool_servers.mcp_config import McpServer
from agentrl_jax.tools import Tool

if TYPE_CHECKING:
    from agentrl_jax.tool_servers.mcp_connection import McpConnection

_lock = threading.Lock()
_connections: dict[McpServer, "McpConnection"] = {}


class McpTools:
    """The tools of a server for one environment.

    An environment lists `self.mcp.tools` among its tools, calls `restart` when it is reset and
    `close` when it is closed. Copies of one that is shared use the same connection.
    """

    def __init__(self, server: McpServer, shared: bool = True) -> None:
        """Connects to nothing yet.

        Args:
            server: which server, and the limits of a call.
            shared: the environments of a process share one connection, whose server may remember
                what other episodes did; else each episode has a connection, and a server that is
                started, of its own.

        Raises:
            UserError: the config is wrong, or the SDK of MCP is not installed.
        """
        self._server, self._shared = server.check(), shared
        self._connection: McpConnection | None = None
        if not _is_sdk_installed():
            raise UserError("an MCP server needs the SDK of MCP: pip install 'agentrl_jax[mcp]'")

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Raises EnvironmentFailure where an episode's own connection is closed."""
        if self._connection is None and not self._shared:
            raise EnvironmentFailure(
                f"there is no connection to {self._server.name}: reset", "lost"
            )
        if self._connection is None:  # this is a copy
            self._connection = shared_connection(self._server)
        return self._connection.tools

    def restart(self) -> None:
        """Connect where there is no connection, it is broken, or it is not shared.

        Raises:
            UserError, EnvironmentFailure: as `McpConnection`.
        """
        self.close()
        self._connection = (
            shared_connection(self._server) if self._shared else _connect(self._server)
        )

    def close(self) -> None:
        """End a connection of its own."""
        if self._connection is not None and not self._shared:
            self._connection.close()
        self._connection = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}


def _is_sdk_installed() -> bool:
    try:
        return find_spec("mcp") is not None
    except ValueError:  # it is marked as absent
        return False


def _connect(server: McpServer) -> "McpConnection":
    from agentrl_jax.tool_servers.mcp_connection import McpConnection  # an extra

    return McpConnection(server)


def shared_connection(server: McpServer) -> "McpConnection":
    """The one connection of this process to a server; it is closed when Python exits.

    Raises:
        UserError, EnvironmentFailure: as `McpConnection`.
    """
    with _lock:
        connection = _connections.pop(server, None)
        if connection is not None and connection.is_broken:
            connection.close()
            connection = None
        _connections[server] = connection = connection or _connect(server)
        return connection


def close_shared_connections() -> None:
    """Close the connections of this process."""
    with _lock:
        while _connections:
            _connections.popitem()[1].close()


atexit.register(close_shared_connections)
