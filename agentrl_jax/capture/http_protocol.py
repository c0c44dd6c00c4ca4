"""`LimitedProtocol`: uvicorn's HTTP protocol with bounds on connections and waits for headers."""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from agentrl_jax.capture.server_limits import ServerLimits


class LimitedProtocol(H11Protocol):
    """A connection; `clients` counts those that are open, by the client's address."""

    def __init__(self, limits: ServerLimits, clients: Counter[str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits, self._clients = limits, clients
        self._client_address = ""
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  it is one with both ends
        self._client_address = self.client[0] if self.client else ""
        self._clients[self._client_address] += 1
        if (
            self._clients[self._client_address] > self._limits.max_connections_per_client
            or len(self.connections) > self._limits.max_connections
        ):
            self._refuse("429 Too Many Requests")
        else:
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._start_timer()
        super().data_received(data)
        if self.cycle is not cycle:  # the headers are complete
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._clients[self._client_address] -= 1
        if not self._clients[self._client_address]:
            del self._clients[self._client_address]
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                self._limits.header_timeout, self._refuse, "408 Request Timeout"
            )

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status: str) -> None:
        self.transport.write(
            f"HTTP/1.1 {status}\r\nretry-after: {self._limits.retry_after}\r\n"
            "content-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        self.transport.close()
