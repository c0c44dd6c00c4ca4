"""Language models as oracles: requests over HTTP, failures, and agreement of oracles."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.oracles import ChatEndpoint, LLMOracle, measure_agreement
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import all_items, attributes
from agentrl_jax.envs.lmrl.twenty_questions.llm_oracle import make_llm_oracle
from agentrl_jax.envs.lmrl.twenty_questions.scripted import ScriptedOracle
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import texts


class Server(ThreadingHTTPServer):
    """Replies with the next of `lines`, a text, a status or raw bytes."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines: list[Any] = ["No."]
        self.requests: list[dict[str, Any]] = []
        self.pause = 0.0  # seconds between two pieces of an answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(
            {"path": self.path, "key": self.headers["Authorization"], **body}
        )
        line = self.server.lines.pop(0) if len(self.server.lines) > 1 else self.server.lines[0]
        reply = json.dumps(
            {"choices": [{"message": {"role": "assistant", "content": line}}]}
        ).encode()
        data = line if isinstance(line, bytes) else reply
        try:
            self.send_response(line if isinstance(line, int) and line else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for place in range(0, len(data), 20 if self.server.pause else len(data)):
                time.sleep(self.server.pause)
                self.wfile.write(data[place : place + 20] if self.server.pause else data)
                self.wfile.flush()
        except OSError:
            pass  # the client has gone

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running_server:
        thread = threading.Thread(target=running_server.serve_forever, args=(0.01,))
        thread.start()
        yield running_server
        running_server.shutdown()
        thread.join()


def fast_endpoint(server: Server, **fields: Any) -> ChatEndpoint:
    return ChatEndpoint(server.url, "oracle", backoff=0.001, **fields)


@pytest.mark.parametrize(
    "form,prompt",
    [
        (
            "lmrl",
            "Answer the question about the object truthfully.\nobject: (Airplane)\nquestion: Can "
            "it fly?\nanswer (yes or no): ",
        ),
        ("archer", "The object is airplane.Can it fly?"),
    ],
)
def test_the_environment_sends_the_published_prompt_greedily(server, form, prompt):
    server.lines = ["yes, it can", "no"]
    env = make(
        "agentrl/TwentyQuestions-v0", {"oracle": {"url": server.url, "model": "t5", "form": form}}
    )
    env.reset(seed=0, options={"target": "plane"})
    assert texts(env.step("Can it fly?")[0]) == ["Yes.\n"] and texts(
        env.step("Can it fly?\n")[0]
    ) == ["No.\n"]
    assert (
        server.requests
        == [
            {
                "path": "/v1/chat/completions",
                "key": None,
                "model": "t5",
                "temperature": 0,
                "max_tokens": 4,
                "messages": [{"role": "user", "content": prompt}],
            }
        ]
        * 2
    )


@pytest.mark.parametrize(
    "reply,lmrl,archer",
    [
        ("Yes", "Yes.", "Yes."),
        (" yes.\n", "Yes.", "Yes."),
        ("Yesterday", "Yes.", "Yes."),
        ("no", "No.", "No."),
        ("I say yes", "No.", "Yes."),
        ("not yes", "No.", "Yes."),
        ("maybe", "No.", "Invalid Question."),
        ("", "No.", "Invalid Question."),
        ("The object is a dog!", "No.", "Invalid Question."),
    ],
)
def test_replies_are_parsed_as_published(reply, lmrl, archer):
    assert make_llm_oracle(lambda prompt: reply, "lmrl").answer("dog", "?") == lmrl
    assert make_llm_oracle(lambda prompt: reply, "archer").answer("dog", "?") == archer


def test_an_environment_with_an_endpoint_can_be_pickled_and_forked(server):
    env = make("agentrl/TwentyQuestions-v0", {"oracle": {"url": server.url, "model": "m"}})
    env.reset(seed=0)
    env.step("Is it big?")
    assert pickle.loads(pickle.dumps(env)).step("Is it red?") == env.step("Is it red?")
    assert env.fork(1).render() == "Questions:\nIs it big?\nNo.\n"


def test_transient_errors_are_retried(server):
    server.lines = [503, 429, b"{", b'{"choices": []}', "fine"]
    assert fast_endpoint(server)("?") == "fine" and len(server.requests) == 5


@pytest.mark.parametrize(
    "line", [500, 429, b"[]", b"[" * 100_000, None, b'{"choices": [{"message": {"content": 3}}]}']
)
def test_persistent_errors_are_environment_failures(server, line):
    server.lines = [line]
    with pytest.raises(EnvironmentFailure, match="failed 3 times") as error:
        fast_endpoint(server, retries=2)("?")
    assert error.value.kind == "raised" and len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_request_is_a_user_error_without_retries(server, status):
    server.lines = [status]
    with pytest.raises(UserError, match=str(status)):
        fast_endpoint(server)("?")
    assert len(server.requests) == 1


def test_an_unreachable_server_is_a_failure():
    with pytest.raises(EnvironmentFailure, match="failed 2 times"):
        ChatEndpoint("http://127.0.0.1:9/v1", "m", retries=1, backoff=0.001)("?")


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://x/v1"])
def test_an_invalid_url_is_an_error(url):
    with pytest.raises((UserError, EnvironmentFailure)):
        ChatEndpoint(url, "m", retries=0)("?")


def test_the_deadline_holds_for_a_silent_and_a_slow_server(server):
    server.pause = 0.1
    for line in ("x", "x" * 4000):
        server.lines = [line]
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            fast_endpoint(server, timeout=0.3 if len(line) > 1 else 0.05)("?")
        assert time.monotonic() - began < 5


def test_the_backoff_respects_the_deadline(server):
    server.lines = [500]
    with pytest.raises(DeadlineExceeded, match="at last: it answered 500"):
        ChatEndpoint(server.url, "m", timeout=0.5, backoff=10.0)("?")
    assert len(server.requests) == 1


def test_a_response_that_is_too_long_is_a_failure(server):
    server.lines = ["x" * 2_000_000]
    with pytest.raises(EnvironmentFailure) as error:
        fast_endpoint(server)("?")
    assert error.value.kind == "flood"


def test_the_api_key_comes_from_an_environment_variable(server, monkeypatch):
    with pytest.raises(UserError, match="ORACLE_KEY"):
        fast_endpoint(server, api_key_variable="ORACLE_KEY")("?")
    monkeypatch.setenv("ORACLE_KEY", "sk-1")
    fast_endpoint(server, api_key_variable="ORACLE_KEY")("?")
    assert [request["key"] for request in server.requests] == ["Bearer sk-1"]


def test_any_text_can_be_sent(server):
    for text in ("\ud800", "\x00\u202e", '"}]', "x" * 100_000):
        assert fast_endpoint(server)(text) == "No."
        assert server.requests[-1]["messages"][0]["content"] == text.replace("\ud800", "?")


def test_agreement_by_hand():
    first_table = {"a": "Yes.", "b": "Yes.", "c": "No.", "d": "No."}
    second_table = {"a": "Yes.", "b": "No.", "c": "No.", "d": "No."}
    first, second = (
        LLMOracle(lambda prompt, table=table: table[prompt], lambda h, q: q, lambda h, r: r)
        for table in (first_table, second_table)
    )
    agreement = measure_agreement(first, second, [("dog", q) for q in "abcd"])
    # chance: .5 * .25 for yes and .5 * .75 for no
    assert (agreement.count, agreement.equal_fraction, agreement.kappa) == (
        4,
        0.75,
        pytest.approx((0.75 - 0.5) / 0.5),
    )
    assert measure_agreement(first, first, [("dog", "a")]).kappa == 1
    with pytest.raises(UserError):
        measure_agreement(first, second, [])


def test_oracles_of_twenty_questions_agree_where_the_model_knows_the_table(server):
    """A model that reads the table agrees fully; one that says yes, with the frequency of yes."""
    pairs = [
        (thing.listed_name, attribute.question)
        for thing in all_items()[::20]
        for attribute in attributes()[::15]
    ]
    scripted = ScriptedOracle()
    knows = make_llm_oracle(
        lambda prompt: scripted.answer(
            prompt.split("(")[1].split(")")[0], prompt.split("question: ")[1].split("\n")[0]
        )
    )
    assert measure_agreement(scripted, knows, pairs).equal_fraction == 1
    server.lines = ["yes"]
    agreement = measure_agreement(scripted, make_llm_oracle(fast_endpoint(server)), pairs)
    yes = sum(scripted.answer(*pair) == "Yes." for pair in pairs) / len(pairs)
    assert (
        0 < yes < 1
        and agreement.equal_fraction == pytest.approx(yes)
        and agreement.kappa == pytest.approx(0, abs=1e-9)
    )
