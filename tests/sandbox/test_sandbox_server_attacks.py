"""Attacks on a sandbox's server by the snippets that its clients send: a snippet reaches neither
the server nor another snippet, and what it prints is bounded and stays text.
"""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.served_app import served

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.launch.sandbox_serving import serve_sandbox
from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.ladder import zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import MAX_FILES, MAX_NAME_BYTES, MAX_PATH_BYTES
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
KEY = "sk-test"
LIMITS = SandboxLimits(seconds=0.7, memory_mb=128, disk_mb=1, output_kb=8)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ZygoteSandbox(zygote_config(), LIMITS) as sandbox:
        serving = served(lambda: serve_sandbox(sandbox, "127.0.0.1", 0, KEY, ServerLimits()))
        with serving as address:
            yield address


def post(url: str, **fields: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {KEY}"}
    content = json.dumps(fields)  # with half surrogates as escapes
    return httpx2.post(f"{url}/run_code", content=content, headers=headers, timeout=20)


def run(url: str, code: str, **fields: Any) -> dict[str, Any]:
    """The result of a snippet."""
    answer = post(url, code=code, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["run_result"]


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', {port}), 1)",
        "import socket; socket.socket(socket.AF_INET6).connect(('::1', {port}))",
        "import socket; socket.socket().bind(('127.0.0.1', 0))",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/health')",
        "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', {port}))",
    ],
)
def test_a_snippet_does_not_reach_its_own_server(url: str, code: str):
    result = run(url, code.format(port=url.rpartition(":")[2]))
    assert result["return_code"] == 1 and "rror" in result["stderr"]
    assert httpx2.get(f"{url}/health").json()["status"] == "ok"


def test_a_program_does_not_reach_its_own_server(url: str):
    port = url.rpartition(":")[2]
    result = run(url, f"echo x > /dev/tcp/127.0.0.1/{port} && echo reached", language="bash")
    assert result["return_code"] != 0 and "reached" not in result["stdout"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("data", ["b'x' * 9999", "bytes(range(256)) * 40", "b'\\xff' * 9999"])
def test_a_flood_ends_at_its_limit(url: str, stream: str, data: str):
    start = time.monotonic()
    result = run(url, f"import sys\nwhile True: sys.{stream}.buffer.write({data})")
    assert time.monotonic() - start < 2.0 and result["return_code"] != 0
    printed = result[stream].encode(errors="replace")
    assert 0 < len(result[stream]) <= 8 * 1024 and len(printed) <= 3 * 8 * 1024


def test_what_is_printed_is_text_and_no_part_of_the_answer(url: str):
    forged = json.dumps({"status": "SandboxError", "run_result": None})
    assert run(url, f"print({forged!r})")["stdout"] == forged + "\n"
    code = "import sys; sys.stdout.buffer.write(b'\\x00\\r\\n\\r\\n\\xed\\xa0\\x80\\xff')"
    assert run(url, code)["stdout"] == "\x00\r\n\r\n" + "�" * 4
    half = run(url, "print(ascii(input()))", stdin="\ud800")
    assert half["return_code"] == 0 and half["stdout"] == "'?'\n"
    assert run(url, "x = '\ud800'")["return_code"] == 1
    assert "null bytes" in run(url, "print(1)\0")["stderr"]


LONG_NAME, LONG_PATH = "é" * 128, "/".join(["a" * 200] * 6)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["."], "needs a path within its folder, not '.'"),
        ([""], "needs a path within its folder, not ''"),
        (["a/./b"], "needs a path within its folder"),
        (["a//b"], "needs a path within its folder"),
        (["a/"], "needs a path within its folder"),
        (["/a"], "needs a path within its folder"),
        (["a/../../b"], "needs a path within its folder"),
        (["..a"], "needs a path within its folder"),
        (["a\0b"], "needs a path within its folder"),
        (["\ud800"], "needs a path within its folder"),
        (["a", "a/b"], "goes through another one: 'a/b'"),
        (["a/b/c", "a/b"], "goes through another one: 'a/b/c'"),
        ([LONG_NAME], "is too long: 'é"),
        (["a" * (MAX_NAME_BYTES + 1)], "is too long: 'aaa"),
        ([LONG_PATH], "is too long: 'aaa"),
        ([f"f{i}" for i in range(MAX_FILES + 1)], "at most 1,000 files, not 1,001"),
    ],
)
def test_files_that_cannot_be_written_are_the_clients_mistake(
    url: str, paths: list[str], message: str
):
    answer = post(url, code="1", files=dict.fromkeys(paths, ""))
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]
    assert len(answer.text) < 300


def test_files_at_their_limits_are_written(url: str):
    names = ["a" * MAX_NAME_BYTES, "/".join(["b" * 204] * 5), "a\nb", "c\\..\\d", "é/f"]
    assert max(map(len, names)) == MAX_PATH_BYTES
    code = f"print([open(name).read() for name in {names!r}])"
    result = run(url, code, files=dict.fromkeys(names, "eA=="))
    assert result["stdout"] == f"{['x'] * 5}\n", result
    too_much = {f"f{i}": "eA==" for i in range(257)}  # 257 x 4 KiB
    refused = post(url, code="1", files=too_much)
    assert refused.status_code == 400 and "more than the 1 MB of its disk" in refused.text
    assert (
        run(url, "import os; print(len(os.listdir()))", files={f"{i}": "" for i in range(999)})[
            "stdout"
        ]
        == "999\n"
    )


@pytest.mark.parametrize(
    ("fields", "sandbox_seconds"),
    [
        ({"run_timeout": int("9" * 99)}, 0.7),
        ({"run_timeout": 0.2}, 0.2),
        ({"run_timeout": 1e-9}, 0.0),
    ],
)
def test_a_request_lowers_limits_and_raises_none(
    url: str, fields: dict[str, Any], sandbox_seconds: float
):
    start = time.monotonic()
    result = run(url, "while True: pass", **fields)
    assert result["status"] == "TimeLimitExceeded"
    assert sandbox_seconds <= time.monotonic() - start < sandbox_seconds + 1.5
    code = "try: x = bytearray(300 * 2**20)\nexcept MemoryError: print('refused')"
    for memory in (10**99, 1e300, 100_000, 64):
        assert run(url, code, memory_limit_MB=memory)["stdout"] == "refused\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"run_timeout": -1}, {"run_timeout": "x"}, {"run_timeout": [1]}, {"memory_limit_MB": 0.5},
        {"memory_limit_MB": "x"}, {"files": {"a": "?"}}, {"files": {"a": 1}}, {"files": ["a"]},
        {"files": "a"}, {"language": ["python"]}, {"language": None}, {"language": "Python"},
    ],
)  # fmt: skip
def test_wrong_fields_are_named(url: str, fields: dict[str, Any]):
    answer = post(url, code="1", **fields)
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]["message"]
    assert "\n" not in message and "Traceback" not in message and len(message) < 300


def test_snippets_beyond_capacity_wait_and_each_has_its_own_output(url: str):
    code = "import os; open('own', 'x').write('{i}'); print({i}, os.listdir())"

    def printed(i: int) -> str:
        return run(url, code.format(i=i))["stdout"]

    with ThreadPoolExecutor(12) as threads:
        outputs = list(threads.map(printed, range(24)))
    assert outputs == [f"{i} ['own']\n" for i in range(24)]


def test_a_client_that_leaves_does_not_stop_others(url: str):
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(
            f"{url}/run_code",
            json={"code": "while True: pass"},
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=0.1,
        )
    assert run(url, "print(1)")["stdout"] == "1\n"
