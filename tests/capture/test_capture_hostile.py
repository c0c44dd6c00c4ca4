"""Rubbish at the capture endpoint: every request is answered, nothing of it is recorded, and the next one works."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from served import Served, Speaker, served

from agentrl_jax.capture import server
from agentrl_jax.capture.wire import Refused, asked

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=6)
anything = st.recursive(scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3), max_leaves=8)
FIELDS = (
    "model", "messages", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "n", "logprobs", "stream", "stream_options", "tools",
    "tool_choice", "max_tokens", "max_completion_tokens", "user", "response_format", "logit_bias",
)  # fmt: skip
MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name")
messages = st.lists(st.dictionaries(st.sampled_from(MESSAGE), anything) | anything, max_size=3)


@pytest.fixture(scope="module")
def here() -> Iterator[Served]:
    with served(Speaker(*["yes"] * 1000)) as here:
        yield here


@given(st.dictionaries(st.sampled_from(FIELDS), anything | messages), messages, st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_body_is_understood_or_refused(body: dict[str, Any], said: list[Any], nearly: bool):
    body = {"model": "a", "messages": [{"role": "user", "content": "x"}], **body, **({"messages": said} if nearly else {})}
    try:
        found = asked(body)
    except Refused as refused:
        assert refused.status == 400 and json.dumps(refused.body())
    else:
        assert found.messages and all(isinstance(message.content, str) for message in found.messages) and 1 <= found.n <= 16


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/chat/completions", b"", 400),
        ("/v1/chat/completions", b"\xff\xfe{", 400),
        ("/v1/chat/completions", b"[" * 100_000, 400),
        ("/v1/chat/completions", b'{"model": "a", "messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        ("/v1/chat/completions", b"x" * 3000, 413),
        ("/reward", b"null", 400),
        ("/v1/nothing", b"{}", 404),
    ],
)
def test_rubbish_is_answered_and_the_next_request_works(here: Served, monkeypatch: Any, path: str, content: bytes, status: int):
    monkeypatch.setattr(server, "LARGEST", 2000 if status == 413 else server.LARGEST)
    session = here.session()
    with here.client(session) as post:
        answer = post.post(path, content=content)
        assert answer.status_code == status and answer.json()["error"]["message"]
        good = post.post("/v1/chat/completions", json={"model": "a", "messages": [{"role": "user", "content": "x"}]})
        assert good.status_code == 200 and good.json()["choices"][0]["message"]["content"] == "yes"
    assert len(session._tree.nodes) == 1
    here.close_session(session)


def test_an_episode_is_open_to_its_own_key_and_the_servers_token_alone(here: Served):
    mine, other = here.session(), here.session()
    with here.client(mine) as post:
        models = f"{here.server.url_of(other)}/v1/models"
        assert post.get(models).status_code == 401
        assert post.get(models, headers={"Authorization": ""}).status_code == 401
        assert post.get(models, headers={"Authorization": f"Bearer {here.server.token}"}).status_code == 200
        assert post.post(f"{here.server.url}/episodes").status_code == 401
        here.close_session(other)
        assert post.get(models, headers={"Authorization": f"Bearer {here.server.token}"}).status_code == 410
        assert post.get(models, headers={"Authorization": f"Bearer {other.secret}"}).status_code == 401
    here.close_session(mine)


def test_connections_that_say_nothing_or_half_of_it_hold_nobody_up(here: Served):
    host, port = here.server.url.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    for i, one in enumerate(silent):
        one.sendall(b"POST /reward HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"[: 10 * i])
    session = here.session()
    with here.client(session) as post:
        assert post.get("/v1/models").status_code == 200
    for one in silent:
        one.close()
    here.close_session(session)


def test_a_port_that_is_taken_and_one_that_is_given_back():
    with served(Speaker()) as here:
        port = int(here.server.url.rpartition(":")[2])

        async def again() -> None:
            await server.CaptureServer(port=port).start()

        with pytest.raises(server.UserError, match="cannot listen"):
            here.run(again())
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
