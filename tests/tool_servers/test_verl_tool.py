"""VerlTool's tool server: our client, our server, and what each does where the other is wrong."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from support.odd_server import json_response, odd_server
from support.served_app import served

from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, ToolCall
from agentrl_jax.tool_formats import HermesToolFormat, TagToolFormat
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tool_servers.served_tools import TrajectoryTools
from agentrl_jax.tool_servers.verl_tool import Answer, VerlToolSession, observe
from agentrl_jax.tool_servers.verl_tool_serving import (
    VerlToolServer,
    serve_verl_tool,
)
from agentrl_jax.tools import ToolOutput, tool

KEY = "sk-test"
LIMITS = ServerLimits(max_request_bytes=5000, max_json_depth=8)
ended: list[int] = []  # the totals of the trajectories that ended
meeting = threading.Barrier(2, timeout=10)


class Account:
    """The state of a trajectory."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        """Add."""
        self.total += amount
        return self.total

    def look(self) -> ToolOutput:
        """Look."""
        return ToolOutput("seen", images=(ImagePart("data:image/png;base64,AA=="),))

    def meet(self) -> str:
        """Wait for another trajectory."""
        meeting.wait()
        return "met"

    def fail(self) -> str:
        """Fail."""
        raise EnvironmentFailure("the bank is closed")


def make_account() -> TrajectoryTools:
    account = Account()
    tools = [tool(f) for f in (account.add, account.look, account.meet, account.fail)]
    return TrajectoryTools(tools, lambda: ended.append(account.total))


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("VERL_TEST_KEY", KEY)
    ended.clear()
    server = VerlToolServer(make_account, HermesToolFormat(), KEY, LIMITS, max_trajectories=3)
    with served(lambda: serve_verl_tool(server, "127.0.0.1", 0, LIMITS)) as address:
        yield address
    server.close()


@pytest.fixture
def client(url: str) -> JsonClient:
    return JsonClient(url, "VERL_TEST_KEY", seconds=10.0)


def has_ended(*totals: int) -> bool:
    """Whether the trajectories with these totals end, in a thread of the server."""
    deadline = time.monotonic() + 10
    while not set(totals) <= set(ended) and time.monotonic() < deadline:
        time.sleep(0.005)
    return set(totals) <= set(ended)


def action(name: str, **arguments: Any) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"I do it. <tool_call>{call}</tool_call>"


def test_each_trajectory_of_a_batch_has_its_own_state(client: JsonClient):
    answers = observe(
        client,
        ["a", "b", "a", "c"],
        [action("add", amount=1), action("add", amount=10), action("add", amount=2), "nothing"],
    )
    assert answers[:3] == [
        Answer("1", False, True),
        Answer("10", False, True),
        Answer("3", False, True),
    ]
    assert not answers[3].is_valid and answers[3].reason.startswith("the action calls no tool; ")
    more = [action("add", amount=5), action("look"), action("sell"), action("add", amount="x")]
    added, seen, unknown, wrong = observe(client, ["a", "b", "c", "b"], more)
    assert added.text == "8" and seen.images[0].url == "data:image/png;base64,AA=="
    assert not unknown.is_valid and "there is no tool 'sell'; there are add, look" in unknown.text
    assert wrong.is_valid and wrong.text == 'Error: amount must be an integer, not "x"'


def test_trajectories_run_at_the_same_time_and_end_with_finish(client: JsonClient):
    met = observe(client, ["a", "b"], [action("meet"), action("meet")])
    assert [answer.text for answer in met] == ["met", "met"]
    observe(client, ["a"], [action("add", amount=7)])
    assert observe(client, ["a"], [""], finish=[True]) == [Answer("", True, True)]
    assert has_ended(7)
    with pytest.raises(EnvironmentFailure, match="'a' ended or was idle too long") as failure:
        observe(client, ["a"], [action("add", amount=1)])
    assert failure.value.kind == "lost"
    assert observe(client, ["never"], [""], extra_fields=[{"finish": True}])[0].is_done


def test_the_number_of_trajectories_is_bounded(client: JsonClient):
    observe(client, ["a", "b", "c"], ["x"] * 3)
    with pytest.raises(EnvironmentFailure, match=r"answered 429: .* 3 trajectories already"):
        observe(client, ["d"], ["x"])
    observe(client, ["b"], [""], finish=[True])
    assert observe(client, ["d"], [action("add", amount=1)])[0].text == "1"


def test_an_idle_trajectory_makes_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VERL_TEST_KEY", KEY)
    server = VerlToolServer(
        make_account, HermesToolFormat(), KEY, LIMITS, max_trajectories=1, idle_seconds=1e-9
    )
    with served(lambda: serve_verl_tool(server, "127.0.0.1", 0, LIMITS)) as url:
        client = JsonClient(url, "VERL_TEST_KEY")
        assert [observe(client, [name], ["x"])[0].is_valid for name in "ab"] == [False, False]
        with pytest.raises(EnvironmentFailure, match="'a' ended or was idle too long"):
            observe(client, ["a"], ["x"])
    server.close()


def test_a_tool_that_fails_is_a_failure_and_the_others_of_its_batch_are_answered(
    client: JsonClient, url: str
):
    body = {"trajectory_ids": ["a", "b"], "actions": [action("fail"), action("add", amount=2)]}
    headers = {"Authorization": f"Bearer {KEY}"}
    data = httpx2.post(f"{url}/get_observation", json=body, headers=headers).json()
    assert data["observations"] == [{"obs": "", "error": "the bank is closed"}, "2"]
    assert (data["dones"], data["valids"]) == ([True, False], [False, True])
    with pytest.raises(EnvironmentFailure, match=r"a tool of .* failed: the bank is closed"):
        observe(client, ["a"], [action("fail")])


def test_a_session_is_a_trajectory_and_its_calls_are_actions(client: JsonClient):
    session = VerlToolSession(client)
    with pytest.raises(UserError, match="call restart at reset"):
        session.act("x")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    text = '<tool_call>{{"name": "add", "arguments": {{"amount": {n}}}}}</tool_call>'
    add = session.tool("add", "Add.", schema, text)
    unknown = session.tool(
        "sell", "Sell.", {"type": "object"}, action("sell").replace("{", "{{").replace("}", "}}")
    )
    session.restart()
    assert add.run(ToolCall("", "add", '{"n": 4}')) == ToolOutput("4")
    assert add.run(ToolCall("", "add", '{"n": 5}')) == ToolOutput("9")
    assert add.run(ToolCall("", "add", '{"n": "5"}')).text.startswith("Error: n must be an integer")
    assert unknown.run(ToolCall("", "sell", "{}")).is_error
    session.restart()
    assert has_ended(9) and add.run(ToolCall("", "add", '{"n": 1}')) == ToolOutput("1")
    session.close()
    session.close()
    assert has_ended(9, 1)


def test_actions_may_be_written_in_another_format(monkeypatch: pytest.MonkeyPatch):
    tags = TagToolFormat({"add": ("add", "amount")})
    server = VerlToolServer(make_account, tags, "", LIMITS)
    with served(lambda: serve_verl_tool(server, "127.0.0.1", 0, LIMITS)) as url:
        (answer,) = observe(JsonClient(url), ["a"], ["so <add>3</add>"])
        assert answer.text == "3"
        health = JsonClient(url).get("/health")
        assert health["status"] == "healthy" and health["active_tasks"] == 1
    server.close()


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("[]", 400, "a request is"),
        ("{", 400, "the body is no JSON"),
        (
            '{"trajectory_ids": "a", "actions": ["x"]}',
            400,
            "trajectory_ids must be a list of texts",
        ),
        (
            '{"trajectory_ids": [1], "actions": ["x"]}',
            400,
            "trajectory_ids must be a list of texts",
        ),
        ('{"trajectory_ids": ["a"]}', 400, "actions must be a list of texts"),
        ('{"trajectory_ids": [], "actions": []}', 400, "the same length, not 0"),
        ('{"trajectory_ids": ["a"], "actions": ["x", "y"]}', 400, "the same length"),
        ('{"trajectory_ids": [""], "actions": ["x"]}', 400, "has 1 to 200 characters"),
        ('{"trajectory_ids": ["a"], "actions": ["x"], "finish": [1]}', 400, "true and false"),
        ('{"trajectory_ids": ["a"], "actions": ["x"], "finish": [true, true]}', 400, "as long as"),
        ('{"trajectory_ids": ["a"], "actions": ["x"], "extra_fields": [2]}', 400, "holds objects"),
        ("[" * 20 + "]" * 20, 400, "nests deeper than 8 levels"),
        ('{"actions": ["' + "x" * 6000 + '"]}', 413, "a request may have 5,000 bytes"),
    ],
)
def test_a_wrong_request_is_one_sentence(url: str, body: str, status: int, message: str):
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx2.post(f"{url}/get_observation", content=body, headers=headers)
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_requests_without_the_key_or_of_other_hosts_are_refused(
    url: str, client: JsonClient, monkeypatch: pytest.MonkeyPatch
):
    evil = httpx2.get(f"{url}/health", headers={"Host": "evil.example"})
    assert evil.status_code == 421
    assert httpx2.get(f"{url}/nothing").status_code == 404
    monkeypatch.setenv("VERL_TEST_KEY", "wrong")
    with pytest.raises(UserError, match=r"refuses the key \(401\)"):
        observe(client, ["a"], ["x"])
    monkeypatch.delenv("VERL_TEST_KEY")
    with pytest.raises(UserError, match="VERL_TEST_KEY should hold the key"):
        observe(client, ["a"], ["x"])


RIGHT = {"observations": ["o"], "dones": [False], "valids": [True]}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("not JSON", "nonsense", "is no JSON: not JSON"),
        ("[]", "nonsense", "has not VerlTool's form"),
        ({**RIGHT, "observations": []}, "nonsense", "has not VerlTool's form"),
        ({**RIGHT, "observations": ["o", "p"]}, "nonsense", "has not VerlTool's form"),
        ({key: [*x, *x] for key, x in RIGHT.items()}, "nonsense", "2 answers to 1 actions"),
        ({**RIGHT, "dones": ["no"]}, "nonsense", "dones and valids are not booleans"),
        ({**RIGHT, "observations": [{"obs": 3}]}, "nonsense", "obs and image are not texts"),
        ({**RIGHT, "observations": [{"reward": 1e999}]}, "nonsense", "the reward is not finite"),
        ({**RIGHT, "observations": ["x" * 3000]}, "flood", "answered more than 2,000 bytes"),
    ],
)
def test_a_server_that_answers_nonsense_is_a_failure(answer: Any, kind: str, message: str):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    with odd_server(json_response(text)) as url:
        with pytest.raises(EnvironmentFailure, match=message) as failure:
            observe(JsonClient(url, max_bytes=2000), ["a"], ["x"])
        assert failure.value.kind == kind


def test_a_server_that_hangs_breaks_off_or_is_gone_is_a_failure():
    late = pytest.raises(DeadlineExceeded, match=r"no answer from .* in 0.2 s")
    with odd_server(b"", seconds=20.0) as url, late:
        observe(JsonClient(url, seconds=0.2), ["a"], ["x"])
    with odd_server(json_response("{}")[:-1]) as url:
        with pytest.raises(EnvironmentFailure, match="cannot be reached") as failure:
            observe(JsonClient(url), ["a"], ["x"])
        assert failure.value.kind == "died"
    with pytest.raises(EnvironmentFailure, match="cannot be reached: ConnectError"):
        observe(JsonClient(url), ["a"], ["x"])
    error = pytest.raises(EnvironmentFailure, match="answered 500: out of memory")
    with odd_server(json_response("out of memory", "500 Oh")) as url, error:
        observe(JsonClient(url), ["a"], ["x"])
    session = VerlToolSession(JsonClient(url))
    session.restart()
    session.close()  # nobody is there, and nothing is left to end


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://a", "http://"])
def test_a_wrong_address_is_the_users(url: str):
    with pytest.raises(UserError, match="needs an address such as http://"):
        VerlToolSession(JsonClient(url))
