"""Attacks on the capture endpoint: each meets a limit, and others are served meanwhile."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import (
    RENDERER,
    CaptureFixture,
    LineEngine,
    capture_fixture,
)

from agentrl_jax.capture.host_check import normalize_host
from agentrl_jax.capture.server import CaptureServer
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.strategy import CapturedEpisodes
from agentrl_jax.errors import UserError

CHAT: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "x"}]}
PATH = "/v1/chat/completions"


def address_of(capture: CaptureFixture) -> tuple[str, int]:
    host, port = capture.server.url.removeprefix("http://").split(":")
    return host, int(port)


def connect(capture: CaptureFixture) -> socket.socket:
    return socket.create_connection(address_of(capture), timeout=10)


def receive_all(connection: socket.socket) -> bytes:
    """All that a connection sends until the server closes it."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def fixture(*lines: str | None, **limits: Any) -> Iterator[CaptureFixture]:
    with capture_fixture(LineEngine(*lines), limits=ServerLimits(**limits)) as capture:
        yield capture


def post_chat(capture: CaptureFixture, **fields: Any) -> httpx2.Response:
    """A request of a client and an episode of its own."""
    with capture.client(capture.session()) as client:
        return client.post(PATH, json={**CHAT, **fields})


def test_headers_that_never_end_close_their_connection():
    with fixture("yes", header_timeout=0.4) as capture:
        silent, slow, later = (connect(capture) for _ in range(3))
        request = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        later.sendall(request + b"\r\n")  # a whole request, and then the start of another one
        assert later.recv(2**16).startswith(b"HTTP/1.1 401")
        start = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in request[:15]:  # each byte is in time
                for connection in (slow, later):
                    connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert receive_all(silent).startswith(b"HTTP/1.1 408")
        for connection in (silent, slow, later):
            receive_all(connection)  # until the server closes it
            connection.close()
        assert time.monotonic() - start < 5.0
        assert post_chat(capture).status_code == 200


def test_a_thousand_connections_of_one_client_are_bounded():
    with fixture("yes", max_connections_per_client=20) as capture:
        connections, num_refused = [], 0
        for _ in range(1000):
            connection = connect(capture)
            connections.append(connection)
            if len(connections) > 20:
                assert receive_all(connections.pop()).startswith(b"HTTP/1.1 429")
                connection.close()
                num_refused += 1
        assert num_refused == 980
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + 10.0  # for the server to notice
        while post_chat(capture).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_all_connections_together_are_bounded():
    with fixture("yes", max_connections=3) as capture:
        connections = [connect(capture) for _ in range(4)]
        assert receive_all(connections[3]).startswith(b"HTTP/1.1 429")
        for connection in connections:
            connection.close()


def test_a_body_of_50_mb_is_refused_before_it_is_sent_or_once_it_is_too_long():
    with fixture("yes", max_request_bytes=2**20) as capture:
        session = capture.session()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {session.secret}\r\n"
        )
        announced = connect(capture)
        announced.sendall(f"{head}Content-Length: {50 * 2**20}\r\n\r\n".encode())
        assert announced.recv(2**16).startswith(b"HTTP/1.1 413")
        announced.close()
        chunked = connect(capture)
        chunked.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = f"{2**16:x}\r\n".encode() + b" " * 2**16 + b"\r\n"
        num_sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(800):
                chunked.sendall(chunk)
                num_sent += 1
        assert num_sent < 200  # the server stopped reading
        chunked.close()
        assert post_chat(capture).status_code == 200


def test_a_body_that_arrives_too_slowly_is_refused():
    with fixture(body_timeout=0.2) as capture:
        session = capture.session()
        with connect(capture) as connection:
            connection.sendall(
                f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
                f"Authorization: Bearer {session.secret}\r\n\r\n{{".encode()
            )
            assert connection.recv(2**16).startswith(b"HTTP/1.1 408")


def test_a_prompt_of_ten_million_characters_is_not_tokenized(monkeypatch: pytest.MonkeyPatch):
    def refuse(text: str) -> np.ndarray:
        assert len(text) < 10**6
        return encode(text)

    encode = RENDERER.codec.encode_escaped
    monkeypatch.setattr(RENDERER.codec, "encode_escaped", refuse)
    with fixture("yes") as capture:
        long = [{"role": "user", "content": "é" * 10**7}]
        with capture.client(capture.session()) as client:
            body = json.dumps({**CHAT, "messages": long}, ensure_ascii=False).encode()
            assert len(body) > 16 * 2**20
            # The server does not read the rest, so a slow client may lose the answer.
            with contextlib.suppress(httpx2.TransportError):
                assert client.post(PATH, content=body).status_code == 413
        long[0]["content"] = "x" * 10**7
        answer = post_chat(capture, messages=long)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        tool = {"type": "function", "function": {"name": "f", "parameters": {"a": "x" * 10**7}}}
        answer = post_chat(capture, tools=[tool])
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert post_chat(capture).status_code == 200


def test_json_of_too_many_values_is_not_parsed():
    with fixture() as capture, capture.client(capture.session()) as client:
        answer = client.post(PATH, content=b"[" + b"[]," * 2**18 + b"[]]")
        assert answer.status_code == 413 and "commas and brackets" in answer.text


def test_requests_beyond_capacity_wait_and_are_refused_after_their_deadline():
    limits = {"running_requests": 1, "max_queued_requests": 1, "queue_timeout": 0.5}
    with fixture(None, "yes", retry_after=7, **limits) as capture:
        engine: Any = capture.agent_table.engines["policy"]
        answers: list[httpx2.Response] = []

        def ask() -> None:
            answers.append(post_chat(capture))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        capture.wait_until(lambda: len(engine.pending_generations) == 1)
        start = time.monotonic()
        threads[1].start()
        queue = capture.server._starter._queues["policy"]
        capture.wait_until(lambda: queue._num_waiting == 1)
        refused = post_chat(capture)  # the queue is full
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
        threads[1].join()
        (late,) = answers
        assert (late.status_code, late.headers["retry-after"]) == (503, "7")
        assert 0.4 < time.monotonic() - start < 5.0
        threads[1] = threading.Thread(target=ask)
        threads[1].start()
        capture.wait_until(lambda: queue._num_waiting == 1)
        engine.pending_generations[0].set_result(engine.submitted_calls[0])
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers[1:]] == [200, 200]


def test_a_queued_request_whose_episode_ends_is_answered_and_leaves_the_queue():
    with fixture(None, "yes", running_requests=1) as capture:
        engine: Any = capture.agent_table.engines["policy"]
        blocking = threading.Thread(target=post_chat, args=(capture,))
        blocking.start()
        capture.wait_until(lambda: len(engine.pending_generations) == 1)
        session = capture.session()
        answers: list[httpx2.Response] = []

        def ask() -> None:
            with capture.client(session) as client:
                answers.append(client.post(PATH, json=CHAT))

        waiting = threading.Thread(target=ask)
        waiting.start()
        queue = capture.server._starter._queues["policy"]
        capture.wait_until(lambda: queue._num_waiting == 1)
        capture.close_session(session)
        waiting.join()
        assert answers[0].status_code == 410 and queue._num_waiting == 0
        engine.pending_generations[0].set_result(engine.submitted_calls[0])
        blocking.join()
        assert post_chat(capture).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:80", 200),
        ("LOCALHOST.", 200),
        ("agents.example", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8000", 421),
        ("[::1]:8000", 421),
        ("", 421),
    ],
)
def test_only_requests_that_name_the_server_are_answered(host: str, status: int):
    with fixture(allowed_hosts=("Agents.example",)) as capture:
        with capture.client(capture.session()) as client:
            answer = client.get("/v1/models", headers={"Host": host})
        assert answer.status_code == status


def test_a_request_without_host_is_refused():
    with fixture() as capture, connect(capture) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 421")


def test_hosts_are_compared_without_port_case_and_final_dot():
    headers = ["A.example:80", "a.example.", "[::1]:80", "[::1]", "::1", "10.0.0.1:8000"]
    names = ["a.example", "a.example", "::1", "::1", "::1", "10.0.0.1"]
    assert list(map(normalize_host, headers)) == names


@pytest.mark.parametrize("host", ["", " "])
def test_an_unset_host_is_refused(host: str):
    with pytest.raises(UserError, match=r"needs a host: 127\.0\.0\.1"):
        CaptureServer(host)


def test_limits_out_of_range_are_refused():
    with pytest.raises(UserError, match="queue_timeout must be above 0 seconds, not 0"):
        CaptureServer(limits=ServerLimits(queue_timeout=0))
    with pytest.raises(UserError, match="header_timeout must be above 0"):
        ServerLimits(header_timeout=float("nan")).check()
    with pytest.raises(UserError, match="max_connections must be at least 1, not 0"):
        ServerLimits(max_connections=0).check()
    few = CapturedEpisodes(("x",), limits=ServerLimits(max_connections_per_client=4))
    with pytest.raises(UserError, match="at least max_concurrent_episodes"):
        few.check()


class LoopLatency:
    """The longest time that an event loop took for nothing, in seconds."""

    def __init__(self, capture: CaptureFixture) -> None:
        self.longest = 0.0
        self._task = capture.run(self._start())

    async def _start(self) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - start)

    async def _stop(self) -> None:
        self._task.cancel()

    def stop(self, capture: CaptureFixture) -> float:
        capture.run(self._stop())
        return self.longest


def delays_of_heavy_prompt(capture: CaptureFixture, text: str) -> tuple[float, float]:
    """The longest stop of the event loop during a heavy request, and by how much it lengthens the
    median of light ones.
    """
    heavy = threading.Thread(
        target=post_chat,
        args=(capture,),
        kwargs={"messages": [{"role": "user", "content": text}]},
    )
    with capture.client(capture.session()) as client:

        def light_request() -> float:
            start = time.perf_counter()
            assert client.post(PATH, json=CHAT).status_code == 200
            return time.perf_counter() - start

        undisturbed, disturbed = [light_request() for _ in range(6)][1:], list[float]()
        latency = LoopLatency(capture)
        heavy.start()
        while heavy.is_alive():
            disturbed.append(light_request())
        longest = latency.stop(capture)
    return longest, float(np.median(disturbed) - np.median(undisturbed))


def test_a_heavy_prompt_of_one_client_delays_neither_the_loop_nor_another_client():
    text = "the quick brown fox " * 10_000
    start = time.perf_counter()
    RENDERER.codec.encode_escaped(text)
    seconds = time.perf_counter() - start  # what it would take on the event loop
    with fixture(*["yes"] * 10_000) as capture:
        # The best of up to twelve: a busy machine delays everybody.
        delays = (delays_of_heavy_prompt(capture, text) for _ in range(12))
        assert any(loop < seconds / 2 and light < seconds / 2 for loop, light in delays)
