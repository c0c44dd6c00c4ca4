"""Attacks on a server by what its requests say, and by clients that stop reading: each is refused
in one sentence, and others are served meanwhile.
"""

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

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

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.request_json import MAX_DIGITS, parse_json
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.trajectories import Sampling

TEXT_LENGTH = 500  # of each of 16 choices: with log-probs, more than the system's buffers take


@pytest.fixture(scope="module")
def capture() -> Iterator[CaptureFixture]:
    with capture_fixture(LineEngine(*["yes"] * 1000)) as capture:
        yield capture


@pytest.mark.parametrize(("headers", "body", "version"), LENGTHS)
def test_a_request_whose_length_is_not_stated_once_is_refused(
    capture: CaptureFixture, headers: tuple[str, ...], body: str, version: str
):
    session = capture.session()
    answer = exchange(capture, request_head(session, *headers, version=version) + body + SMUGGLED)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and b"connection: close" in head.lower()
    assert answer.count(b"HTTP/1.1") == 1  # nothing after it is read as a request
    assert json.loads(content)["error"]["message"] == "this is no valid HTTP request"
    assert not session._tree.nodes
    capture.close_session(session)


def test_a_broken_chunk_after_the_response_closes_the_connection(
    capture: CaptureFixture, caplog: pytest.LogCaptureFixture
):
    head = "POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(capture) as connection:
        connection.sendall(head.encode())
        received = b""
        while not received.endswith(b"}}"):
            received += connection.recv(2**16)
        assert received.startswith(b"HTTP/1.1 404")
        connection.sendall(b"no chunk\r\n\r\n")
        assert connection.recv(2**16) == b""
    assert not caplog.records


@pytest.mark.parametrize(("content", "words"), NUMBERS)
def test_numbers_that_are_not_finite_or_too_long_are_named(
    capture: CaptureFixture, content: str, words: list[str]
):
    message = refusal(capture, content)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(("content", "name"), NESTINGS)
def test_deep_nesting_is_refused(capture: CaptureFixture, content: str, name: str):
    message = refusal(capture, content)
    assert message == f"{name} nests deeper than 64 levels of lists and objects"


def test_json_at_the_bounds_is_read():
    limits = ServerLimits(max_json_depth=3)
    text = f'{{"a": [[1.5, {"9" * MAX_DIGITS}]], "b": "{"[" * 99}NaN"}}'
    assert parse_json(text.encode(), limits) == json.loads(text)
    with pytest.raises(APIError, match="deeper than 3 levels"):
        parse_json(b'{"a": [[[]]]}', limits)


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_tools_are_named_as_openai_names_them(capture: CaptureFixture, name: str):
    message = refusal(capture, with_tool(name))
    assert message == "tools[0].function.name must be 1 to 64 letters, digits, _ and -"


@pytest.mark.parametrize("name", CONTROL_NAMES)
def test_control_characters_in_names_of_messages_are_refused(capture: CaptureFixture, name: str):
    called = "messages[1].tool_calls[0].function.name must be a text without control characters"
    assert refusal(capture, with_call(name=name)) == called
    for field in ("name", "tool_call_id"):
        message = {"role": "tool", "content": "x", "tool_call_id": "1", field: name}
        sentence = f"messages[1].{field} must be a text without control characters"
        assert refusal(capture, {**CHAT, "messages": [*CHAT["messages"], message]}) == sentence


def test_names_of_64_characters_and_those_that_a_policy_invents_are_read(capture: CaptureFixture):
    session = capture.session()
    with capture.client(session) as client:
        body = {**with_tool("a-Z_9" + "x" * 59), **with_call(name="no.such tool é")}
        assert client.post(PATH, json=body).status_code == 200
    capture.close_session(session)


@pytest.fixture
def small_send_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_send_buffers(monkeypatch)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_stops_reading_is_disconnected(small_send_buffers: None, is_streamed: bool):
    agent = dataclasses.replace(AGENT, sampling=Sampling(budget=TEXT_LENGTH + 10))
    last = None if is_streamed else "x" * TEXT_LENGTH
    engine = LineEngine(*["x" * TEXT_LENGTH] * 15, last, "yes")
    limits = ServerLimits(send_timeout=0.5, max_connections_per_client=1)
    with capture_fixture(engine, agents={"policy": agent}, limits=limits) as capture:
        session = capture.session()
        body = json.dumps({**CHAT, "n": 16, "stream": is_streamed, "logprobs": True})
        with connect(capture) as connection:
            head = request_head(session, f"Content-Length: {len(body)}")
            connection.sendall(f"{head}{body}".encode())
            capture.wait_until(lambda: len(engine.submitted_calls) == 16)
            if is_streamed:  # its last choice is still generated, and cancelled
                pending: Any = engine.pending_generations[0]
                capture.wait_until(lambda: pending.cancel_requested)
            deadline = time.monotonic() + 10.0
            with capture.client(capture.session()) as client:  # only one connection is allowed
                while (answer := client.post(PATH, content=BODY)).status_code == 429:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            assert answer.status_code == 200


def test_a_client_that_reads_slowly_gets_all(small_send_buffers: None):
    agent = dataclasses.replace(AGENT, sampling=Sampling(budget=TEXT_LENGTH + 10))
    limits, received = ServerLimits(send_timeout=2.0), b""
    engine = LineEngine(*["x" * TEXT_LENGTH] * 16)
    with capture_fixture(engine, agents={"policy": agent}, limits=limits) as capture:
        body = json.dumps({**CHAT, "n": 16, "stream": True, "logprobs": True})
        with connect(capture) as connection:
            head = request_head(capture.session(), f"Content-Length: {len(body)}")
            connection.sendall(f"{head}{body}".encode())
            start = time.monotonic()
            while b"[DONE]" not in received:
                received += connection.recv(2**13)
                time.sleep(0.02)
        assert time.monotonic() - start > 2.0 and received.count(b"x" * TEXT_LENGTH) == 16
