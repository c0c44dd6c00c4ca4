"""A server on loopback that answers every request the same way, right or wrong."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def odd_server(response: bytes, seconds: float = 0.0) -> Iterator[str]:
    """The address of a server that sends these bytes after so long, and closes the connection."""
    stopped = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(2**16)
            stopped.wait(seconds)
            connection.sendall(response)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            time.sleep(0)  # `accept` ends before the port is closed


def json_response(body: str, status: str = "200 OK") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}"
    ).encode()
