"""Raw HTTP to a server: bytes that no client library sends."""

import contextlib
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class RawServer:
    """A server by its URL."""

    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def exchange(self, request: str | bytes) -> bytes:
        """All that the server sends until it closes the connection."""
        data = request if isinstance(request, bytes) else request.encode("latin-1")
        with self.connect() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            return receive_all(connection)


def receive_all(connection: socket.socket) -> bytes:
    """All that a connection sends until the server closes it."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def statuses(answer: bytes) -> list[int]:
    """The status of each response in what a server has sent."""
    return [int(part.split(b" ", 1)[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]
