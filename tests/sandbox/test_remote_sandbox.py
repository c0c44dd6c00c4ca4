"""A remote sandbox: our server behind our client, and servers that fail."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.launch.sandbox_serving import serve_sandbox
from agentrl_jax.sandbox import kernel, remote_sandbox
from agentrl_jax.sandbox.ladder import SandboxConfig, open_sandbox, zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.remote_sandbox import RemoteSandbox
from agentrl_jax.sandbox.snippet import BASH, Snippet
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

needs_landlock = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
KEY = "sk-test"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server of a sandbox of this machine."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    addresses: list[str] = []
    stop: list[asyncio.Event] = []

    async def serve() -> None:
        limits = SandboxLimits(seconds=10.0, memory_mb=256)
        with ZygoteSandbox(zygote_config(), limits) as sandbox:
            async with serve_sandbox(sandbox, "127.0.0.1", 0, KEY, ServerLimits()) as address:
                addresses.append(address)
                stop.append(asyncio.Event())
                ready.set()
                await stop[0].wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    yield addresses[0]
    loop.call_soon_threadsafe(stop[0].set)
    thread.join()
    loop.close()


@pytest.fixture
def remote(url: str, monkeypatch: pytest.MonkeyPatch) -> RemoteSandbox:
    monkeypatch.setenv("SANDBOX_KEY", KEY)
    sandbox = open_sandbox(SandboxConfig(url=url, key_variable="SANDBOX_KEY"))
    assert isinstance(sandbox, RemoteSandbox)
    return sandbox


@needs_landlock
def test_a_remote_snippet_ends_as_it_does_here(remote: RemoteSandbox):
    snippet = Snippet("import sys; print(sys.stdin.read(), open('f').read())\n1/0", "in")
    outcome = remote.run(Snippet(snippet.code, snippet.stdin, files={"f": b"file"}))
    assert outcome.stdout == "in file\n" and outcome.exit_code == 1
    assert outcome.stderr.endswith("ZeroDivisionError: division by zero\n")
    late = remote.run(Snippet("while True: pass"), SandboxLimits(seconds=0.3))
    assert late.limit == "time" and late.exit_code is None
    assert remote.run(Snippet("import os; os.abort()")).signal == 6
    assert remote.run(Snippet("x = bytearray(2**30)")).limit == "memory"
    bash = remote.run(
        Snippet("echo $((1 + 1)); exit 3", language=BASH), SandboxLimits(subprocesses=True)
    )
    assert (bash.stdout, bash.exit_code) == ("2\n", 3)
    assert remote.run(Snippet("print('x' * 99999)")).limit == "output"


@needs_landlock
def test_a_remote_session_replays_its_code(remote: RemoteSandbox):
    with remote.session() as session:
        assert session.run("x = 1\nprint('a')").stdout == "a\n"
        assert session.run("x + 1").stdout == "2\n"


@needs_landlock
def test_requests_have_sandbox_fusions_form(url: str):
    headers = {"Authorization": f"Bearer {KEY}"}

    def post(body: object, **extra: str) -> httpx2.Response:
        return httpx2.post(f"{url}/run_code", json=body, headers={**headers, **extra}, timeout=60)

    body = post({"code": "print(1)", "language": "python", "compile_timeout": 10}).json()
    assert body["status"] == "Success" and body["run_result"]["return_code"] == 0
    assert body["run_result"]["stdout"] == "1\n" and body["run_result"]["status"] == "Finished"
    late = post({"code": "while True: pass", "language": "python", "run_timeout": 0.3}).json()
    assert late["status"] == "Failed" and late["run_result"]["status"] == "TimeLimitExceeded"
    for wrong in (
        {}, [], {"code": 1}, {"code": "1", "language": "cobol"}, {"code": "1", "files": {"a": "?"}},
        {"code": "1", "files": {"../a": ""}}, {"code": "1", "run_timeout": "x"},
        {"code": "1", "run_timeout": -1},
    ):  # fmt: skip
        assert post(wrong).status_code == 400, wrong
    assert post({"code": "1"}, Authorization="Bearer no").status_code == 401
    assert post({"code": "1"}, Host="evil.example").status_code == 421
    assert httpx2.get(f"{url}/health").json()["status"] == "ok"


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (500, b"broken", EnvironmentFailure, "failed 3 times.*500: broken"),
        (404, b"nothing", UserError, "refuses a snippet.*404"),
        (200, b"<html>", EnvironmentFailure, "no JSON"),
        (200, b'{"status": "Success"}', EnvironmentFailure, "SandboxFusion's form"),
        (200, b'{"status": "SandboxError", "message": "full"}', EnvironmentFailure, "full"),
        (200, b"[]", EnvironmentFailure, "SandboxFusion's form"),
    ],
)
def test_a_server_that_fails_is_not_the_snippets_fault(
    status: int,
    body: bytes,
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(remote_sandbox.time, "sleep", lambda seconds: None)
    with answering(status, body) as url, pytest.raises(error, match=message):
        RemoteSandbox(url, SandboxLimits()).run(Snippet("1"))


def test_a_server_that_is_absent_or_silent_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    import socket

    monkeypatch.setattr(remote_sandbox.time, "sleep", lambda seconds: None)
    with pytest.raises(EnvironmentFailure, match="failed 3 times"):
        RemoteSandbox("http://127.0.0.1:9", SandboxLimits()).run(Snippet("1"))
    monkeypatch.setattr(remote_sandbox, "GRACE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineExceeded, match="no answer"):
            RemoteSandbox(url, SandboxLimits(seconds=0.1)).run(Snippet("1"))
    with pytest.raises(UserError, match="NO_SUCH_KEY should hold the key"):
        RemoteSandbox("http://x", SandboxLimits(), "NO_SUCH_KEY")
    with pytest.raises(UserError, match="is none"):
        RemoteSandbox("no url", SandboxLimits()).run(Snippet("1"))
