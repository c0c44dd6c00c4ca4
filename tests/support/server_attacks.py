"""Requests that attack a server: tables of them, and raw connections to a capture server."""

import contextlib
import json
import socket
from typing import Any

import pytest
from support.capture_server import CaptureFixture

from agentrl_jax.capture import server
from agentrl_jax.capture.session import CaptureSession

PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "x"}]}
BODY = json.dumps(CHAT)
CHUNKED = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
SMUGGLED = "POST /end HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
# Headers that state the length of a body in two ways or in none, with the body and the version.
LENGTHS: list[tuple[tuple[str, ...], str, str]] = [
    (("Transfer-Encoding: chunked", f"Content-Length: {len(CHUNKED)}"), CHUNKED, "1.1"),
    (("Content-Length: 4", "Transfer-Encoding: chunked"), CHUNKED, "1.1"),
    ((f"Content-Length: {len(BODY)}", "Content-Length: 0"), BODY, "1.1"),
    ((f"Content-Length: {len(BODY)}, 0",), BODY, "1.1"),
    ((f"Content-Length: +{len(BODY)}",), BODY, "1.1"),
    (("Content-Length: -1",), BODY, "1.1"),
    ((f"Content-Length : {len(BODY)}",), BODY, "1.1"),
    (("Transfer-Encoding: gzip",), CHUNKED, "1.1"),
    (("Transfer-Encoding: gzip, chunked",), CHUNKED, "1.1"),
    (("Transfer-Encoding: chunked, identity",), CHUNKED, "1.1"),
    (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), CHUNKED, "1.1"),
    (("Transfer-Encoding: xchunked",), CHUNKED, "1.1"),
    (("Transfer-Encoding : chunked",), CHUNKED, "1.1"),
    (("Transfer-Encoding: chunked",), CHUNKED, "1.0"),
]


def with_field(name: str, text: str) -> str:
    """The body of a chat, with one more field of this JSON."""
    return f'{BODY[:-1]}, "{name}": {text}}}'


def with_schema(text: str) -> str:
    """The body of a chat with a tool, whose schema holds this JSON."""
    function = f'{{"name": "f", "parameters": {{"a": {text}}}}}'
    return with_field("tools", f'[{{"type": "function", "function": {function}}}]')


def with_call(**fields: Any) -> dict[str, Any]:
    """A chat with an assistant's tool call; the fields replace those of its function."""
    function = {"name": "f", "arguments": "{}", **fields}
    call = {"id": "1", "type": "function", "function": function}
    return {**CHAT, "messages": [*CHAT["messages"], {"role": "assistant", "tool_calls": [call]}]}


def with_tool(name: str) -> dict[str, Any]:
    """A chat with a tool of this name."""
    return {**CHAT, "tools": [{"type": "function", "function": {"name": name, "parameters": {}}}]}


# Bodies with numbers that are not finite or too long, and words of the refusal.
NUMBERS: list[tuple[str, list[str]]] = [
    (with_field("temperature", "NaN"), ["NaN", "temperature"]),
    (with_field("temperature", "1e999"), ["1e999", "temperature"]),
    (with_field("logit_bias", '{"7": -Infinity}'), ["-Infinity", "logit_bias.7"]),
    (with_field("metadata", '{"x": Infinity}'), ["Infinity", "metadata.x"]),
    (with_schema("[{}, -1e400]"), ["-1e400", "tools[0].function.parameters.a[1]"]),
    (with_field("metadata", '{"x": NaN, "x": 1}'), ["NaN"]),
    (with_field("seed", "9" * 5000), ["5,000 digits", "seed"]),
    (with_schema("-" + "1" * 101), ["101 digits", "tools[0].function.parameters.a"]),
    ("[NaN]", ["NaN", "[0]"]),
]
DEEP = "[" * 100_000 + "]" * 100_000
ARGUMENTS = "messages[1].tool_calls[0].function.arguments"
# Bodies that nest too deep, and what the refusal names.
NESTINGS: list[tuple[str, str]] = [
    (DEEP, "the body"),
    ("[" * 100_000, "the body"),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "the body"),
    (with_field("metadata", "[" * 500 + "]" * 500), "the body"),
    (with_schema(DEEP), "the body"),
    (with_schema("[" * 900 + "]" * 900), "the body"),
    (json.dumps(with_call(arguments=DEEP)), ARGUMENTS),
    (json.dumps(with_call(arguments='{"a": ' + "[" * 64 + "]" * 64 + "}")), ARGUMENTS),
]
CONTROL_NAMES = ("a\x00b", "a\n", "\x1b[31m", "\x7f", "\x9b", "\ud800")
TOOL_NAMES = ("", "é", "a.b", "x" * 65, *CONTROL_NAMES)


def connect(capture: CaptureFixture) -> socket.socket:
    """A connection whose client takes few bytes that it does not read."""
    host, port = capture.server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect((host, int(port)))
    return connection


def use_small_send_buffers(patch: pytest.MonkeyPatch) -> None:
    """The system takes few bytes for a client that does not read."""

    def open_listener(*arguments: Any) -> socket.socket:
        listener = original(*arguments)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    original = server.open_listener
    patch.setattr(server, "open_listener", open_listener)


def request_head(session: CaptureSession, *headers: str, version: str = "1.1") -> str:
    key = f"Authorization: Bearer {session.secret}"
    return "\r\n".join((f"POST {PATH} HTTP/{version}", "Host: 127.0.0.1", key, *headers, "", ""))


def exchange(capture: CaptureFixture, request: str) -> bytes:
    """All that the server sends until it closes the connection."""
    with connect(capture) as connection:
        connection.sendall(request.encode())
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(2**16):
                parts.append(part)
        return b"".join(parts)


def refusal(capture: CaptureFixture, content: str | dict[str, Any]) -> str:
    """The sentence of the 400 that a body gets; a good request is served after it."""
    session = capture.session()
    with capture.client(session) as client:
        data = content if isinstance(content, str) else json.dumps(content)
        answer = client.post(PATH, content=data.encode())
        assert client.post(PATH, content=BODY).status_code == 200
    capture.close_session(session)
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]["message"]
    assert "\n" not in message and "Error" not in message and len(message) < 300
    return message
