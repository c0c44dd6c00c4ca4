"""`LimitedProtocol`: HTTP of uvicorn, with bounds on connections and on waits for their clients."""

import asyncio
import json
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.server_limits import ServerLimits


class _StrictConnection(h11.Connection):
    """h11's parser, which also refuses a request whose length is stated in two ways.

    A proxy that believes the other statement takes a part of the body for another request (request
    smuggling, RFC 9112, section 6.1). h11 refuses conflicting lengths and other codings itself.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (
                b"content-length" in names or event.http_version < b"1.1"
            ):
                raise h11.RemoteProtocolError(
                    "Transfer-Encoding goes with neither Content-Length nor HTTP/1.0"
                )
        return event


class LimitedProtocol(H11Protocol):
    """A connection; `clients` counts those that are open, by the client's address."""

    def __init__(self, limits: ServerLimits, clients: Counter[str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn = _StrictConnection(h11.SERVER)
        self._limits, self._clients = limits, clients
        self._client_address = ""
        self._header_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  it is one with both ends
        # `pause_writing` follows whenever the client's system does not take all at once.
        self.transport.set_write_buffer_limits(high=0)
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
        self._stop_send_timer()
        self._clients[self._client_address] -= 1
        if not self._clients[self._client_address]:
            del self._clients[self._client_address]
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_timer = self.loop.call_later(self._limits.send_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_send_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; where a response has begun, only the connection is closed."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse("400 Bad Request", "this is no valid HTTP request")
        else:
            self.transport.close()

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _start_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                self._limits.header_timeout, self._refuse, "408 Request Timeout"
            )

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status: str, message: str = "") -> None:
        """Close the connection with a response; without a message the client may ask again."""
        body = json.dumps(APIError(message).body()) if message else ""
        header = (
            "content-type: application/json"
            if message
            else f"retry-after: {self._limits.retry_after}"
        )
        self.transport.write(
            f"HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {len(body)}\r\n"
            f"connection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
