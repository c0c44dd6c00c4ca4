"""A small resources server in the form of NeMo Gym's: a counter for each session of cookies."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        counters: dict[str, int] = self.server.counters  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = (self.headers.get("Cookie") or "").removeprefix("session=")
        if self.path == "/seed_session":
            session = session or str(len(counters))
            counters[session] = body["start"]
            self._reply(200, {}, session)
        elif session not in counters:
            self._reply(400, {"detail": "no session"})
        elif self.path == "/add":
            if not isinstance(body.get("count"), int):
                self._reply(422, {"detail": "count must be a number"})
                return
            counters[session] += body["count"]
            self._reply(200, {"value": counters[session]})
        elif self.path == "/crash":
            self._reply(500, {"detail": "the tool is broken"})
        elif self.path == "/verify":
            kinds = [item["type"] for item in body["response"]["output"]]
            right = counters[session] == body["goal"]
            reply = {**body, "reward": float(right), "reward_components": {"calls": len(kinds)}}
            self._reply(200, {**reply, "mask_sample": body.get("is_broken", False)})
        else:
            self._reply(404, {"detail": "Not Found"})

    def _reply(self, status: int, data: Any, session: str = "") -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if session:
            self.send_header("Set-Cookie", f"session={session}")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def nemo_gym_server() -> Iterator[str]:
    """The address of a server on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.counters = {}  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
