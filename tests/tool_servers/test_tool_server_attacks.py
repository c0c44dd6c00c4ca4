"""Attacks on the servers of a sandbox, of tools and of environments by what their clients send:
each meets a limit, and others are served meanwhile.
"""

import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import httpx2
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.raw_http import RawServer, receive_all, statuses
from support.served_app import served

from agentrl_jax.capture import http_server
from agentrl_jax.capture.host_check import normalize_host
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.environment import Environment
from agentrl_jax.launch.sandbox_serving import serve_sandbox
from agentrl_jax.messages import user
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import ReplayedSession, Sandbox
from agentrl_jax.sandbox.snippet import Outcome, Snippet
from agentrl_jax.tool_formats import HermesToolFormat
from agentrl_jax.tool_servers.agent_gym_serving import AgentGymServer, serve_agent_gym
from agentrl_jax.tool_servers.served_tools import TrajectoryTools
from agentrl_jax.tool_servers.verl_tool_serving import (
    MAX_CALLS,
    VerlToolServer,
    serve_verl_tool,
)
from agentrl_jax.tools import tool

KEY = "sk-test"
LIMITS = ServerLimits(
    header_timeout=0.2,
    body_timeout=0.1,
    idle_timeout=1,
    max_request_bytes=10_000,
    max_json_items=500,
)
# The path that each server serves to those who have the key, and a body for it.
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "sandbox": ("/run_code", {"code": "1"}),
    "verltool": ("/get_observation", {"trajectory_ids": ["a"], "actions": ["x"]}),
    "agentgym": ("/create", {"data_idx": 1}),
}
SMUGGLED = "POST /end HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"


class Parrot(Environment):
    """Repeats what it is told."""

    def _reset(self, options):
        return (user("hello"),), {}

    def _step(self, text):
        return (user(text),), 1.0, False, False, {}


if "tests/Parrot-v0" not in gymnasium.registry:
    gymnasium.register("tests/Parrot-v0", entry_point=lambda **options: Parrot(**options))


class Printer(Sandbox):
    """A sandbox that runs nothing and prints the code."""

    description = "none"

    def run(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        return Outcome(snippet.code, "", 0)

    def session(self, seed: int = 0, limits: SandboxLimits | None = None) -> ReplayedSession:
        return ReplayedSession(self, seed, limits)


def make_account() -> TrajectoryTools:
    total = 0

    def add(amount: int) -> int:
        """Add."""
        nonlocal total
        total += amount
        return total

    return TrajectoryTools([tool(add)], lambda: None)


def gym_server(**options: Any) -> AgentGymServer:
    return AgentGymServer("tests/Parrot-v0", {}, KEY, LIMITS, **options)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, RawServer]]:
    tools = VerlToolServer(make_account, HermesToolFormat(), KEY, LIMITS, max_trajectories=3)
    environments = gym_server()
    sandbox = Printer(SandboxLimits())
    with (
        served(lambda: serve_sandbox(sandbox, "127.0.0.1", 0, KEY, LIMITS)) as first,
        served(lambda: serve_verl_tool(tools, "127.0.0.1", 0, LIMITS)) as second,
        served(lambda: serve_agent_gym(environments, "127.0.0.1", 0, LIMITS)) as third,
    ):
        yield {name: RawServer(url) for name, url in zip(PATHS, (first, second, third))}
    tools.close()
    environments.close()


@pytest.fixture(params=PATHS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(servers: dict[str, RawServer], name: str) -> Iterator[RawServer]:
    """A server, which still serves others after an attack."""
    yield servers[name]
    if name != "agentgym":  # which has a bounded number of environments
        assert post(servers[name], *PATHS[name]).status_code == 200


def post(server: RawServer, path: str, body: Any, key: str = KEY) -> httpx2.Response:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.post(server.url + path, content=content, headers=headers, timeout=20)


def head(name: str, *headers: str, key: str = KEY, host: str = "127.0.0.1") -> str:
    lines = (f"POST {PATHS[name][0]} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {key}")
    return "\r\n".join((*lines, *headers, "", ""))


def test_headers_and_bodies_that_never_end_close_their_connection(server: RawServer, name: str):
    announced = head(name, "Content-Length: 100")
    with server.connect() as silent, server.connect() as partial, server.connect() as body:
        partial.sendall(announced[:40].encode())
        body.sendall((announced + "{").encode())
        start = time.monotonic()
        assert [statuses(receive_all(c)) for c in (silent, partial, body)] == [[408]] * 3
    assert time.monotonic() - start < 3.0


def test_a_body_that_goes_on_after_the_refusal_of_its_key_ends_its_connection(
    server: RawServer, name: str
):
    with server.connect() as connection:
        connection.sendall(head(name, "Content-Length: 9999999", key="no").encode())
        assert connection.recv(2**16).startswith(b"HTTP/1.1 401")
        start = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() - start < 5.0:
                connection.sendall(b"x")
                time.sleep(0.01)


@pytest.mark.parametrize(
    "request_line",
    ["GET /" + "a" * 10**6, "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "a" * 10**6],
)
def test_a_path_or_header_of_a_megabyte_is_refused(server: RawServer, request_line: str):
    assert statuses(server.exchange(request_line)) == [400]
    many = "".join(f"X{i}: 1\r\n" for i in range(50_000))
    answer = server.exchange(f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n")
    assert statuses(answer) == [400]


@pytest.mark.parametrize(
    "path", ["/%00%ff%0d%0aX:y", "//evil/health", "http://evil/x", "*", "/../x"]
)
def test_other_paths_are_not_served(server: RawServer, path: str):
    answer = server.exchange(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert statuses(answer) == [404] and b"\r\nX:y" not in answer


@pytest.mark.parametrize("method", ["TRACE", "PUT", "DELETE", "OPTIONS", "GET"])
def test_other_methods_are_not_served(server: RawServer, name: str, method: str):
    request = head(name, "Connection: close").replace("POST", method, 1)
    assert statuses(server.exchange(request)) == [405]


BODY = "{}"
CHUNKED = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: 4", "Transfer-Encoding: chunked"), CHUNKED),
        (("Transfer-Encoding: chunked", f"Content-Length: {len(CHUNKED)}"), CHUNKED),
        (("Content-Length: 2", "Content-Length: 0"), BODY),
        (("Content-Length: 2, 0",), BODY),
        (("Content-Length: -2",), BODY),
        (("Content-Length: +2",), BODY),
        (("Content-Length: 0x2",), BODY),
        (("Content-Length: " + "9" * 5000,), BODY),
        (("Transfer-Encoding: chunked, identity",), CHUNKED),
        (("Transfer-Encoding: xchunked",), CHUNKED),
        (("Transfer-Encoding : chunked",), CHUNKED),
        (("X: a\x00b", "Content-Length: 2"), BODY),
        (("Host: evil.example", "Content-Length: 2"), BODY),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(
    server: RawServer, name: str, headers: tuple[str, ...], body: str
):
    answer = server.exchange(head(name, *headers) + body + SMUGGLED)
    assert statuses(answer) == [400] and b"connection: close" in answer.lower()


def test_lengths_that_lie(server: RawServer, name: str):
    late = server.exchange(head(name, "Content-Length: 50") + "{}")  # longer than what comes
    assert statuses(late) == [408] and b"connection: close" in late.lower()
    short = server.exchange(head(name, "Content-Length: 1") + "{ no request")  # shorter
    assert statuses(short) == [400, 400]
    for announced in ("10001", "9" * 19):
        refused = server.exchange(head(name, f"Content-Length: {announced}"))
        assert statuses(refused) == [413] and b"connection: close" in refused.lower()
    expecting = head(name, "Expect: 100-continue", "Content-Length: 999999")
    assert statuses(server.exchange(expecting)) == [413]  # no 100
    chunk = f"{2**12:x}\r\n{' ' * 2**12}\r\n"
    flood = server.exchange(head(name, "Transfer-Encoding: chunked") + chunk * 9)
    assert statuses(flood) == [413]


def test_what_is_no_http_is_refused(server: RawServer):
    hello = bytes.fromhex("16030100a5010000a1") + bytes(100)  # of TLS
    assert statuses(server.exchange(hello)) == [400]
    assert set(statuses(server.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))) <= {400, 421}


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_no_connection_is_upgraded(server: RawServer, protocol: str):
    answer = server.exchange(
        f"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\n"
        f"Upgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert statuses(answer) == [404]


def test_pipelined_requests_are_answered_in_order_each_with_its_own_key(
    server: RawServer, name: str
):
    bodies = [json.dumps({"wrong": i}) for i in range(3)]
    lengths = [f"Content-Length: {len(body)}" for body in bodies]
    wrong = [head(name, length, key="no") + body for length, body in zip(lengths, bodies)]
    bad = head(name, "Content-Length: 1") + "["
    last = head(name, "Content-Length: 1", "Connection: close", key="no") + "{"
    answer = server.exchange("".join((*wrong, bad, wrong[0], last)))
    assert statuses(answer) == [401, 401, 401, 400, 401, 401]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1/x", "127.0.0.1:x",
        "127.0.0.1:[", "[127.0.0.1]evil.example", "[127.0.0.1]:x", "localhost:80:80", "",
        "127.0.0.1:80@evil", "127.0.0.1 evil",
    ],
)  # fmt: skip
def test_a_host_that_does_not_name_the_server_is_refused(server: RawServer, name: str, host: str):
    answer = server.exchange(head(name, "Content-Length: 0", "Connection: close", host=host))
    assert statuses(answer) == [421]


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("LOCALHOST", "localhost"), ("localhost.", "localhost"), ("a.b:80", "a.b"), ("a:", "a"),
        ("[::1]:80", "::1"), ("[::1]", "::1"), ("::1", "::1"), (" a ", "a"), ("a:x", "a:x"),
        ("[::1]x", "[::1]x"), ("[::1]:x", "[::1]:x"), ("[::1", "::1"), ("a:٣", "a:٣"),
    ],
)  # fmt: skip
def test_a_host_is_read_with_its_port_or_not_at_all(header: str, host: str):
    assert normalize_host(header) == host


@pytest.mark.parametrize(
    "authorization",
    [
        "", "Bearer", "Bearer ", "Bearer sk-tes", "Bearer sk-testt", "Bearer sk-TEST",
        "Basic sk-test", "bearer sk-test", "Bearer Bearer sk-test", "Bearer \xff\xe9",
        "Bearer sk-test, sk-test", "Bearer no\r\nAuthorization: Bearer sk-test",
    ],
)  # fmt: skip
def test_a_wrong_key_is_refused(server: RawServer, name: str, authorization: str):
    request = (
        f"POST {PATHS[name][0]} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Length: 0\r\nAuthorization: {authorization}\r\n\r\n"
    )
    assert statuses(server.exchange(request)) == [401]
    without = request.replace(f"Authorization: {authorization}\r\n", "")
    assert statuses(server.exchange(without)) == [401]


def test_keys_are_compared_in_a_time_that_does_not_depend_on_them(
    server: RawServer, name: str, monkeypatch: pytest.MonkeyPatch
):
    compared: list[tuple[bytes, bytes]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return hmac.compare_digest(first, second)

    class Digests:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(http_server, "hmac", Digests)
    for key in ("s", "sk-tesx", KEY):
        post(server, "/nothing", {}, key)
        post(server, PATHS[name][0], "[", key)
    assert compared == [(key.encode(), KEY.encode()) for key in ("s", "sk-tesx", KEY)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"data_idx": NaN}', "NaN is no JSON number"),
        ('{"data_idx": [Infinity]}', "Infinity is no JSON number"),
        ('{"data_idx": 1e999}', "1e999 is too large a number"),
        (f'{{"data_idx": {"9" * 5000}}}', "a number of 5,000 digits"),
        ("[" * 400 + "]" * 400, "nests deeper than 64 levels"),
        ('{"a":' * 400 + "1" + "}" * 400, "nests deeper than 64 levels"),
        ("{", "the body is no JSON"),
        ('{"a": "\xff"}', ""),
        ("[]", ""),
        ('"text"', ""),
        ("7", ""),
    ],
)
def test_bodies_that_are_no_request_are_named(
    server: RawServer, name: str, content: str, words: str
):
    answer = post(server, PATHS[name][0], content.encode("latin-1"))
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]["message"]
    assert words in message and "\n" not in message and len(message) < 300
    many = post(server, PATHS[name][0], "[" + "1," * 600 + "1]")
    assert many.status_code == 413 and "500 commas and brackets" in many.text


def test_requests_beyond_the_number_of_threads_wait(server: RawServer, name: str):
    path, body = PATHS[name]
    if name == "agentgym":
        pytest.skip("its environments are bounded instead")
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: post(server, path, body).status_code, range(32)))
    assert answers == [200] * 32


def call(amount: str) -> str:
    return f'<tool_call>{{"name": "add", "arguments": {{"amount": {amount}}}}}</tool_call>'


def observe(server: RawServer, **actions: str) -> httpx2.Response:
    body = {"trajectory_ids": list(actions), "actions": list(actions.values())}
    return post(server, "/get_observation", body)


@pytest.fixture
def accounts() -> Iterator[RawServer]:
    tools = VerlToolServer(make_account, HermesToolFormat(), KEY, LIMITS, max_trajectories=3)
    with served(lambda: serve_verl_tool(tools, "127.0.0.1", 0, LIMITS)) as url:
        yield RawServer(url)
    tools.close()


def test_a_batch_beyond_capacity_runs_none_of_its_actions(accounts: RawServer):
    names = dict.fromkeys("abcd", call("1"))
    for _ in range(2):  # a client sends it again
        refused = observe(accounts, **names)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert observe(accounts, a=call("1")).json()["observations"] == ["1"]
    refused = observe(accounts, a=call("1"), b=call("1"), c=call("1"), d=call("1"))
    assert refused.status_code == 429
    assert observe(accounts, a=call("1"), b=call("5"), c=call("5")).json()["observations"] == [
        "2", "5", "5",
    ]  # fmt: skip


def test_a_batch_whose_idle_trajectory_makes_room_runs_none_of_its_actions():
    tools = VerlToolServer(
        make_account, HermesToolFormat(), KEY, LIMITS, max_trajectories=9, idle_seconds=1e-9
    )
    with served(lambda: serve_verl_tool(tools, "127.0.0.1", 0, LIMITS)) as url:
        server = RawServer(url)
        assert observe(server, a=call("1")).json()["observations"] == ["1"]
        assert observe(server, a=call("1"), b=call("1")).status_code == 410
        assert observe(server, b=call("1")).json()["observations"] == ["1"]
    tools.close()


def test_of_many_calls_in_one_action_some_are_run(accounts: RawServer):
    answer = observe(accounts, a=call("1") * (MAX_CALLS + 2)).json()
    *lines, last = answer["observations"][0].splitlines()
    assert lines == [str(i + 1) for i in range(MAX_CALLS)] and answer["valids"] == [False]
    assert last == f"Error: of {MAX_CALLS + 2} calls the first {MAX_CALLS} were run"
    exactly = observe(accounts, b=call("1") * MAX_CALLS).json()
    assert exactly["valids"] == [True] and exactly["observations"][0].endswith(f"\n{MAX_CALLS}")


@pytest.mark.parametrize(
    "action",
    [
        call("NaN"), call("1e999"), call("9" * 5000), call("[" * 400 + "]" * 400),
        call('"\\ud800"'),
        call("1").replace("add", "\\ud800"), "<tool_call>" * 800, "\ud800",
        call("true"), call("1.5"),
    ],
)  # fmt: skip
def test_a_hostile_action_is_the_policys_mistake(accounts: RawServer, action: str):
    answer = observe(accounts, a=action, b=call("2"))
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["observations"]
    assert second == "2" and ("Error" in str(first) or first["invalid_reason"])
    assert observe(accounts, a=call("3")).json()["observations"] == ["3"]  # it goes on


def test_environments_of_others_are_not_found_by_counting(server: RawServer, name: str):
    if name != "agentgym":
        pytest.skip("clients name their trajectories themselves")
    identities = [post(server, "/create", {}).json()["id"] for _ in range(3)]
    assert len(set(identities)) == 3 and min(identities) > 1000  # of 2^53
    near = [i + step for i in identities for step in (-1, 1)]
    wrong = [0, 1, -identities[0], 2**53 + identities[0], *(i for i in near if i not in identities)]
    for identity in wrong:
        answer = post(server, "/step", {"id": identity, "action": "x"})
        assert answer.status_code == 404, answer.text
    for no_id in (str(identities[0]), float(identities[0]), None, True, [identities[0]]):
        assert post(server, "/step", {"id": no_id, "action": "x"}).status_code == 400
    for text in ("9" * 100, "-1", "1e3", "%00", ""):
        query = httpx2.get(
            f"{server.url}/observation?id={text}", headers={"Authorization": f"Bearer {KEY}"}
        )
        assert query.status_code == 400
    for identity in identities:
        post(server, "/close", {"id": identity})
        assert post(server, "/step", {"id": identity, "action": "x"}).status_code == 410


def test_half_a_surrogate_pair_does_not_end_an_environment(servers: dict[str, RawServer]):
    server = servers["agentgym"]
    identity = post(server, "/create", {}).json()["id"]
    refused = post(server, "/step", {"id": identity, "action": "\ud800"})
    assert refused.status_code == 400 and "half of a surrogate pair" in refused.text
    step = post(server, "/step", {"id": identity, "action": "\U0001f600\x00"}).json()
    assert step["observation"] == "\U0001f600\x00" and not step["done"]
    post(server, "/close", {"id": identity})
