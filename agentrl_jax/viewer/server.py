"""A server of the page and its data, for this machine alone.

It answers GET requests for a fixed list of paths and opens no file that a request names. A request
whose Host is another name is refused, so a page of another site that resolves its own name to this
machine reads nothing.
"""

import contextlib
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agentrl_jax.errors import UserError
from agentrl_jax.viewer.api import NotFound, answer, to_json
from agentrl_jax.viewer.page import content_security_policy, page
from agentrl_jax.viewer.run_view import RunView

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
REQUEST_TIMEOUT = 30.0  # seconds for a client to send its request


class ViewerServer(ThreadingHTTPServer):
    """Serves runs; a thread looks for new lines of them.

    Args:
        runs: what is shown.
        host: another address than loopback admits other machines.
        port: 0: any.
        interval: seconds between two looks at the run folders.

    Raises:
        UserError: the address is in use, or is none of this machine.
    """

    daemon_threads = True

    def __init__(
        self, runs: Sequence[RunView], host: str = "127.0.0.1", port: int = 0, interval: float = 1.0
    ) -> None:
        self._closed = threading.Event()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port} ({error.strerror}): choose another --port"
            ) from error
        self.runs = tuple(runs)
        self.hosts = {f"{name}:{self.server_port}" for name in (host, *LOOPBACK)}
        self._interval = interval
        threading.Thread(target=self._refresh, daemon=True).start()

    def _refresh(self) -> None:
        while not self._closed.is_set():
            for run in self.runs:
                with contextlib.suppress(OSError):  # of a file system that comes back later
                    run.refresh()
            self._closed.wait(self._interval)

    def server_close(self) -> None:
        """Stop listening and looking."""
        self._closed.set()
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    timeout = REQUEST_TIMEOUT
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agentrl-view", ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            return self._send_json(HTTPStatus.FORBIDDEN, to_json({"error": "unknown host"}))
        url = urlsplit(self.path)
        if url.path == "/":
            return self._send(HTTPStatus.OK, page().encode(), "text/html; charset=utf-8")
        self._send_json(*self._answer(url.path, dict(parse_qsl(url.query))))

    def _answer(self, path: str, parameters: dict[str, str]) -> tuple[HTTPStatus, str]:
        try:
            return HTTPStatus.OK, to_json(answer(self.server.runs, path, parameters))
        except NotFound as error:
            return HTTPStatus.NOT_FOUND, to_json({"error": str(error)})
        except UserError as error:
            return HTTPStatus.BAD_REQUEST, to_json({"error": str(error)})

    def _send_json(self, status: HTTPStatus, text: str) -> None:
        self._send(status, text.encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {
            **HEADERS,
            "Content-Security-Policy": content_security_policy(),
            "Content-Type": kind,
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
