"""What the server answers, and what it does not."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.viewer_runs import HOSTILE, write_hostile_run, write_run

from agentrl_jax.errors import UserError
from agentrl_jax.viewer.page import page
from agentrl_jax.viewer.run_view import RunView
from agentrl_jax.viewer.server import ViewerServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerServer]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "secret.txt").write_text("secret")
    runs = [RunView(write_run(folder / "run")), RunView(write_hostile_run(folder / "hostile"))]
    for run in runs:
        run.refresh()
    with ViewerServer(runs, interval=0.05) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: ViewerServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    headers = {"Host": f"127.0.0.1:{server.server_port}" if host is None else host}
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def ask_json(server: ViewerServer, path: str) -> dict[str, Any]:
    response, body = ask(server, path)
    assert response.status == 200, body
    return json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_page_comes_with_a_policy_that_admits_nothing_else(server: ViewerServer):
    response, body = ask(server, "/")
    assert response.status == 200 and body.decode() == page()
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80"]
)
def test_another_host_is_refused(server: ViewerServer, host: str):
    for path in ("/", "/api/runs"):
        response, body = ask(server, path, host)
        assert response.status == 403 and b"run" not in body


def test_a_name_of_loopback_is_served(server: ViewerServer):
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        assert ask(server, "/api/runs", f"{name}:{server.server_port}")[0].status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/..%2fsecret.txt", "//etc/passwd", "/etc/passwd", "/config.json",
        "/api/../config.json", "/api", "/api/episode/0-000000",
        "/api/episode?id=../secret.txt/0", "/api/episode?id=..%2f..%2fsecret.txt",
        "/api/episode?run=9&id=0-000000/0", "/api/episodes?run=-1", "/api/metrics?run=x",
    ],
)  # fmt: skip
def test_no_other_path_is_found(server: ViewerServer, path: str):
    response, body = ask(server, path)
    assert response.status == 404 and b"secret" not in body and b"root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_is_answered(server: ViewerServer, method: str):
    assert ask(server, "/api/runs", method=method)[0].status == 501


@pytest.mark.parametrize(
    "path", ["/api/episodes?limit=x", "/api/timeline?step=x", "/api/timeline?step=nan"]
)
def test_a_wrong_parameter_is_one_sentence(server: ViewerServer, path: str):
    response, body = ask(server, path)
    assert response.status == 400 and json.loads(body).keys() == {"error"}


def test_a_list_is_paged(server: ViewerServer):
    first = ask_json(server, "/api/episodes?sort=sample&limit=3")
    rest = ask_json(server, "/api/episodes?sort=sample&limit=100&offset=3")
    names = [row["id"] for row in (*first["rows"], *rest["rows"])]
    assert first["total"] == 8 and len(first["rows"]) == 3 and len(set(names)) == 8


def test_every_hostile_line_is_answered(server: ViewerServer):
    rows = ask_json(server, "/api/episodes?run=1&limit=100&sort=step")["rows"]
    assert len(rows) == 16 and sum(bool(row["damage"]) for row in rows) == 7
    episodes = [ask_json(server, f"/api/episode?run=1&id={row['id']}") for row in rows]
    for row, episode in zip(rows, episodes):
        assert ("damage" in episode) == bool(row["damage"])
    tasks = [x["trajectory"]["task"] for x in episodes if "trajectory" in x]
    assert set(HOSTILE) <= {task for task in tasks if isinstance(task, str)}
    infinite = next(row for row in rows if row["task"] == '["a"]')
    assert infinite["total_reward"] == {"$float": "inf"}
    for path in ("timeline?run=1&phase=rl&step=0", "metrics?run=1", "compare", "runs"):
        ask_json(server, f"/api/{path}")


def test_a_run_in_progress_is_followed(tmp_path: Path):
    run = RunView(write_run(tmp_path / "run", 1, 1, 1))
    with ViewerServer([run], interval=0.01):
        path = tmp_path / "run" / "trajectories" / "0-000000.jsonl"
        line = path.read_bytes()
        with open(path, "ab") as file:
            file.write(line)
        deadline = time.monotonic() + 10
        while run.description()["episodes"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_address_in_use_is_one_sentence(server: ViewerServer):
    with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{server.server_port}"):
        ViewerServer([], port=server.server_port)
