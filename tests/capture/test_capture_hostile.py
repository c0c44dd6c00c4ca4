"""Invalid requests at the capture endpoint: all are answered, and none is recorded."""

import asyncio
import gc
import json
import socket
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import CaptureFixture, LineEngine, capture_fixture

from agentrl_jax.capture import server
from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.requests import parse_chat_request

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
)
any_json = st.recursive(
    scalars,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "model",
    "messages",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "seed",
    "n",
    "logprobs",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "max_tokens",
    "max_completion_tokens",
    "user",
    "response_format",
    "logit_bias",
)
MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name")
messages = st.lists(st.dictionaries(st.sampled_from(MESSAGE), any_json) | any_json, max_size=3)


@pytest.fixture(scope="module")
def capture() -> Iterator[CaptureFixture]:
    with capture_fixture(LineEngine(*["yes"] * 1000)) as capture:
        yield capture


@given(st.dictionaries(st.sampled_from(FIELDS), any_json | messages), messages, st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_body_is_parsed_or_refused(
    body: dict[str, Any], messages_field: list[Any], has_messages: bool
):
    body = {
        "model": "a",
        "messages": [{"role": "user", "content": "x"}],
        **body,
        **({"messages": messages_field} if has_messages else {}),
    }
    try:
        request = parse_chat_request(body)
    except APIError as error:
        assert error.status == 400 and json.dumps(error.body())
    else:
        assert (
            request.messages
            and all(isinstance(message.content, str) for message in request.messages)
            and 1 <= request.n <= 16
        )


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/chat/completions", b"", 400),
        ("/v1/chat/completions", b"\xff\xfe{", 400),
        ("/v1/chat/completions", b"[" * 100_000, 400),
        (
            "/v1/chat/completions",
            b'{"model": "a", "messages": [{"role": "user", "content": "\\ud800"}]}',
            400,
        ),
        ("/v1/chat/completions", b"x" * 3000, 413),
        ("/reward", b"null", 400),
        ("/v1/nothing", b"{}", 404),
    ],
)
def test_an_invalid_request_gets_an_error_and_the_next_one_works(
    capture: CaptureFixture, monkeypatch: Any, path: str, content: bytes, status: int
):
    if status == 413:
        monkeypatch.setattr(capture.server._limits, "max_request_bytes", 2000)
    session = capture.session()
    with capture.client(session) as post:
        answer = post.post(path, content=content)
        assert answer.status_code == status and answer.json()["error"]["message"]
        good = post.post(
            "/v1/chat/completions",
            json={"model": "a", "messages": [{"role": "user", "content": "x"}]},
        )
        assert good.status_code == 200 and good.json()["choices"][0]["message"]["content"] == "yes"
    assert len(session._tree.nodes) == 1
    capture.close_session(session)


def test_an_episode_accepts_only_its_own_key_and_the_servers_token(capture: CaptureFixture):
    own_session, other_session = capture.session(), capture.session()
    with capture.client(own_session) as post:
        models = f"{capture.server.url_of(other_session)}/v1/models"
        assert post.get(models).status_code == 401
        assert post.get(models, headers={"Authorization": ""}).status_code == 401
        assert (
            post.get(
                models, headers={"Authorization": f"Bearer {capture.server.token}"}
            ).status_code
            == 200
        )
        assert post.post(f"{capture.server.url}/episodes").status_code == 401
        capture.close_session(other_session)
        assert (
            post.get(
                models, headers={"Authorization": f"Bearer {capture.server.token}"}
            ).status_code
            == 410
        )
        assert (
            post.get(
                models, headers={"Authorization": f"Bearer {other_session.secret}"}
            ).status_code
            == 401
        )
    capture.close_session(own_session)


def test_silent_and_incomplete_connections_do_not_block_others(capture: CaptureFixture):
    host, port = capture.server.url.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(20)]
    for i, connection in enumerate(connections):
        connection.sendall(b"POST /reward HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"[: 10 * i])
    session = capture.session()
    with capture.client(session) as post:
        assert post.get("/v1/models").status_code == 200
    for connection in connections:
        connection.close()
    capture.close_session(session)


def test_a_taken_port_raises_and_a_closed_server_frees_its_port():
    with capture_fixture(LineEngine()) as capture:
        port = int(capture.server.url.rpartition(":")[2])

        async def again() -> None:
            await server.CaptureServer(port=port).start()

        with pytest.raises(server.UserError, match="cannot listen"):
            capture.run(again())
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_connections_accepted_while_a_server_closes_are_closed_however_slow_the_loop():
    loop = asyncio.new_event_loop()
    endpoint = server.CaptureServer()

    async def start() -> int:
        await endpoint.start()
        await asyncio.sleep(0.2)
        return int(endpoint.url.rpartition(":")[2])

    def slow_down() -> None:
        time.sleep(0.06)  # every iteration of the loop takes this long
        loop.call_soon(slow_down)

    port = loop.run_until_complete(start())
    clients = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(3)]
    loop.call_soon(slow_down)
    loop.run_until_complete(endpoint.stop())
    loop.close()
    for client in clients:
        client.close()
    del endpoint
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect()  # pytest raises what a finalizer raises
