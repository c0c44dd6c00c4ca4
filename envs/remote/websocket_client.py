"""`WebsocketClient`: JSON over a websocket, with bounds on time and size, and failures by cause."""

import contextlib
import json
import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.tool_servers.access import check_url, key_of


@dataclass
class WebsocketClient:
    """A client of one server, which is connected to at the first request.

    What the server does wrong is a failure of the environment, which closes the connection: it is
    not there or breaks off (`died`), it is late (`deadline`), it answers too much (`flood`) or no
    JSON (`nonsense`).
    """

    address: str  # of the server, http://... or ws://...
    path: str
    key_variable: str = ""  # the environment variable that holds the bearer token; empty: none
    seconds: float = 60.0  # of a request
    max_bytes: int = 2**24  # of an answer
    _socket: Any = field(default=None, repr=False)
    _context: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    def __post_init__(self) -> None:
        """Raises UserError where the package is missing, or the address or a limit is none."""
        if find_spec("websockets") is None:
            raise UserError(
                "the package websockets is not installed: pip install 'agentrl_jax[openenv]' does "
                "it"
            )
        http = self.address.replace("ws", "http", 1) if self.address[:2] == "ws" else self.address
        check_url(http, "an environment server")
        if not 0 < self.seconds < math.inf or self.max_bytes < 1:
            raise UserError(f"a request to {self.address} needs positive limits of time and bytes")
        self.url = http.replace("http", "ws", 1).rstrip("/") + self.path

    def request(self, text: str) -> Any:
        """The JSON of the answer to a message; see the class for what is raised."""
        from websockets.exceptions import (  # type: ignore[import-not-found]
            ConnectionClosed,
            WebSocketException,
        )

        try:
            if self._socket is None:
                self._socket = self._connected()
            with contextlib.suppress(ConnectionClosed):  # why it was closed may be there to read
                self._socket.send(text)
            data = self._socket.recv(timeout=self.seconds)
        except TimeoutError as error:
            self._socket = self._closed()
            raise DeadlineExceeded(f"no answer from {self.url} in {self.seconds:g} s") from error
        except (OSError, WebSocketException) as error:
            self._socket = self._closed()
            is_flood = isinstance(error, ConnectionClosed) and _is_too_big(error)
            message = f"{self.url} broke off: {type(error).__name__}: {error!s:.300}"
            raise EnvironmentFailure(message, "flood" if is_flood else "died") from error
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            self._socket = self._closed()
            raise EnvironmentFailure(
                f"the answer of {self.url} is no JSON: {data!r:.300}", "nonsense"
            ) from None

    def close(self, text: str = "") -> None:
        """Send a last message and close the connection, if there is one."""
        if self._socket is not None:
            with contextlib.suppress(Exception):
                self._socket.send(text)
            self._socket = self._closed()

    def _connected(self) -> Any:
        from websockets.exceptions import InvalidStatus  # type: ignore[import-not-found]
        from websockets.sync.client import connect  # type: ignore[import-not-found]

        key = key_of(self.key_variable, self.address)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection = connect(
                self.url,
                max_size=self.max_bytes,
                open_timeout=self.seconds,
                close_timeout=1.0,
                additional_headers=headers,
            )
            return self._context.enter_context(connection)
        except InvalidStatus as error:
            if error.response.status_code in (401, 403):
                raise UserError(
                    f"{self.url} refuses the key ({error.response.status_code}): name the "
                    "environment variable that holds it"
                ) from error
            raise

    def _closed(self) -> None:
        with contextlib.suppress(Exception):
            self._context.close()


def _is_too_big(error: Any) -> bool:
    """Whether a connection was closed since a message was too big: the code 1009 of RFC 6455."""
    return 1009 in {frame.code for frame in (error.sent, error.rcvd) if frame is not None}
