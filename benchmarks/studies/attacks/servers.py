"""Attacks on a capture server on loopback: each is refused, and the next request is served."""

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from outcome import Battery
from support.capture_server import AGENT, CaptureFixture, LineEngine, capture_fixture
from support.server_attacks import (
    BODY,
    CHAT,
    CONTROL_NAMES,
    LENGTHS,
    NESTINGS,
    NUMBERS,
    PATH,
    SMUGGLED,
    TOOL_NAMES,
    connect,
    exchange,
    refusal,
    request_head,
    use_small_send_buffers,
    with_call,
    with_tool,
)

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.trajectories import Sampling

LIMITS = ServerLimits(
    header_timeout=1.0, body_timeout=1.0, send_timeout=1.0, max_connections_per_client=20
)
NUM_CONNECTIONS = 1000
WAIT = 30.0  # seconds for a server to notice that connections are closed


def attack(battery: Battery) -> None:
    agent = dataclasses.replace(AGENT, sampling=Sampling(budget=600))
    engine = LineEngine(*["x" * 500] * 1000)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        use_small_send_buffers(patch)
        fixture = capture_fixture(engine, agents={"policy": agent}, limits=LIMITS)
        capture = stack.enter_context(fixture)
        _attack_with_requests(battery, capture)
        for name, expected, make in CONNECTION_ATTACKS:
            battery.attack(name, expected, lambda make=make: _then_served(capture, make))
    patient = dataclasses.replace(LIMITS, header_timeout=WAIT)  # connections stay open meanwhile
    with capture_fixture(LineEngine("yes"), limits=patient) as capture:
        battery.attack(
            f"{NUM_CONNECTIONS} connections of one client",
            "429 beyond its 20",
            lambda: _then_served(capture, _many_connections),
        )


def _attack_with_requests(battery: Battery, capture: CaptureFixture) -> None:
    for headers, body, version in LENGTHS:
        request = f"HTTP/{version} {' and '.join(headers)}"
        battery.attack(
            f"length: {request}",
            "one 400, and the connection is closed",
            lambda x=(headers, body, version): _refused_length(capture, *x),
        )
    bodies: list[tuple[str, str | dict[str, Any]]] = [
        *((f"number: {words}", content) for content, words in NUMBERS),
        *((f"nesting {i} of {name}", text) for i, (text, name) in enumerate(NESTINGS)),
        *((f"tool named {name!r:.12}", with_tool(name)) for name in TOOL_NAMES),
        *((f"call of {name!r:.12}", with_call(name=name)) for name in CONTROL_NAMES),
    ]
    for attack, content in bodies:
        battery.attack(attack, "400", lambda x=content: (True, f"400: {refusal(capture, x)}"))


def _refused_length(
    capture: CaptureFixture, headers: tuple[str, ...], body: str, version: str
) -> tuple[bool, str]:
    session = capture.session()
    head = request_head(session, *headers, version=version)
    answer = exchange(capture, head + body + SMUGGLED)
    responses = answer.count(b"HTTP/1.1 ")
    ok = answer.startswith(b"HTTP/1.1 400") and responses == 1
    return ok, f"{responses} response: {_status(answer)}"


def _status(answer: bytes) -> str:
    return answer.partition(b"\r\n")[0].decode() or "closed without a response"


def _then_served(
    capture: CaptureFixture, make: Callable[[CaptureFixture], tuple[bool, str]]
) -> tuple[bool, str]:
    """What the attack came to, if a request is served after it."""
    ok, happened = make(capture)
    deadline, status = time.monotonic() + WAIT, 429
    while status == 429 and time.monotonic() < deadline:
        with capture.client(capture.session()) as client:
            status = client.post(PATH, content=BODY).status_code
    return ok and status == 200, f"{happened}; the next request: {status}"


def _receive(connection: socket.socket) -> bytes:
    """The rest until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def _slow_headers(capture: CaptureFixture) -> tuple[bool, str]:
    with connect(capture) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in b"GET /v1/models HTTP/1.1\r\nHost: ":
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        answer = _receive(connection)
    return not answer or answer.startswith(b"HTTP/1.1 408"), _status(answer)


def _slow_body(capture: CaptureFixture) -> tuple[bool, str]:
    answer = exchange(capture, request_head(capture.session(), "Content-Length: 100") + "{")
    return answer.startswith(b"HTTP/1.1 408"), _status(answer)


def _many_connections(capture: CaptureFixture) -> tuple[bool, str]:
    num_refused = 0
    with contextlib.ExitStack() as stack:
        for i in range(NUM_CONNECTIONS):
            connection = stack.enter_context(connect(capture))
            if i >= LIMITS.max_connections_per_client:
                num_refused += _receive(connection).startswith(b"HTTP/1.1 429")
                connection.close()
    expected = NUM_CONNECTIONS - LIMITS.max_connections_per_client
    return num_refused == expected, f"{num_refused} of {NUM_CONNECTIONS} refused with 429"


def _huge_announced_body(capture: CaptureFixture) -> tuple[bool, str]:
    answer = exchange(capture, request_head(capture.session(), f"Content-Length: {50 * 2**20}"))
    return answer.startswith(b"HTTP/1.1 413"), _status(answer)


def _huge_chunked_body(capture: CaptureFixture) -> tuple[bool, str]:
    chunk = f"{2**16:x}\r\n".encode() + b" " * 2**16 + b"\r\n"
    num_sent = 0
    with connect(capture) as connection:
        connection.sendall(request_head(capture.session(), "Transfer-Encoding: chunked").encode())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1600):
                connection.sendall(chunk)
                num_sent += 1
    return num_sent < 1600, f"{num_sent * 2**16 / 1e6:.0f} of 105 MB were read"


def _huge_prompt(capture: CaptureFixture) -> tuple[bool, str]:
    content = json.dumps({**CHAT, "messages": [{"role": "user", "content": "x" * 10**7}]})
    with capture.client(capture.session()) as client:
        answer = client.post(PATH, content=content)
    code = answer.json()["error"]["code"]
    return code == "context_length_exceeded", f"{answer.status_code}: {code}"


def _many_values(capture: CaptureFixture) -> tuple[bool, str]:
    with capture.client(capture.session()) as client:
        answer = client.post(PATH, content=b"[" + b"[]," * 2**18 + b"[]]")
    return answer.status_code == 413, str(answer.status_code)


def _wrong_host(capture: CaptureFixture) -> tuple[bool, str]:
    hosts = ("evil.example", "127.0.0.1.evil.example", "[::1]:8000", "")
    with capture.client(capture.session()) as client:
        statuses = [client.get("/v1/models", headers={"Host": x}).status_code for x in hosts]
    return statuses == [421] * len(hosts), str(statuses)


def _stops_reading(capture: CaptureFixture) -> tuple[bool, str]:
    body = json.dumps({**CHAT, "n": 16, "stream": True, "logprobs": True})
    head = request_head(capture.session(), f"Content-Length: {len(body)}")
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.max_connections_per_client):
            stack.enter_context(connect(capture)).sendall(f"{head}{body}".encode())
        start = time.monotonic()
        for status in _statuses(capture):
            if status == 200:
                return True, f"all disconnected after {time.monotonic() - start:.1f} s"
    return False, f"they held their connections for {WAIT:g} s"


def _statuses(capture: CaptureFixture) -> Iterator[int]:
    """Of requests, one after the other, until too much time has passed."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        with capture.client(capture.session()) as client:
            yield client.post(PATH, content=BODY).status_code


CONNECTION_ATTACKS = (
    ("headers that arrive byte by byte", "408 or closed", _slow_headers),
    ("a body that does not arrive", "408", _slow_body),
    ("an announced body of 50 MiB", "413 before it is sent", _huge_announced_body),
    ("a chunked body of 105 MB", "reading stops", _huge_chunked_body),
    ("a prompt of 10,000,000 characters", "context_length_exceeded", _huge_prompt),
    ("a body of 262,145 lists", "413", _many_values),
    ("hosts that are not the server", "421", _wrong_host),
    ("20 clients that stop reading a stream", "all are disconnected", _stops_reading),
)
