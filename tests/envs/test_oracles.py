"""Language models as oracles: what is asked over HTTP, what goes wrong, and how far two oracles agree."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.oracles import Asked, Endpoint, agreement
from agentrl_jax.envs.lmrl.twenty_questions.asked import asked
from agentrl_jax.envs.lmrl.twenty_questions.scripted import ScriptedOracle
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, things
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import texts


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `lines`: a text, a status, or bytes to send as they are; the last one again and again."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines: list[Any] = ["No."]
        self.seen: list[dict[str, Any]] = []
        self.pause = 0.0  # seconds between two pieces of an answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({"path": self.path, "key": self.headers["Authorization"], **body})
        line = self.server.lines.pop(0) if len(self.server.lines) > 1 else self.server.lines[0]
        reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": line}}]}).encode()
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
    with Server() as here:
        thread = threading.Thread(target=here.serve_forever, args=(0.01,))
        thread.start()
        yield here
        here.shutdown()
        thread.join()


def fast(server: Server, **fields: Any) -> Endpoint:
    return Endpoint(server.url, "oracle", backoff=0.001, **fields)


# --- Twenty Questions asks as published


@pytest.mark.parametrize(
    "form,prompt",
    [
        ("lmrl", "Answer the question about the object truthfully.\nobject: (Airplane)\nquestion: Can it fly?\nanswer (yes or no): "),
        ("archer", "The object is airplane.Can it fly?"),
    ],
)
def test_the_world_asks_the_published_prompt_greedily(server, form, prompt):
    server.lines = ["yes, it can", "no"]
    env = make("agentrl/TwentyQuestions-v0", {"oracle": {"url": server.url, "model": "t5", "form": form}})
    env.reset(seed=0, options={"target": "plane"})
    assert texts(env.step("Can it fly?")[0]) == ["Yes.\n"] and texts(env.step("Can it fly?\n")[0]) == ["No.\n"]
    assert server.seen == [
        {
            "path": "/v1/chat/completions", "key": None, "model": "t5", "temperature": 0, "max_tokens": 4,
            "messages": [{"role": "user", "content": prompt}],
        }
    ] * 2  # fmt: skip


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
def test_replies_are_read_as_published(reply, lmrl, archer):
    assert asked(lambda prompt: reply, "lmrl").answer("dog", "?") == lmrl
    assert asked(lambda prompt: reply, "archer").answer("dog", "?") == archer


def test_a_world_with_an_endpoint_can_be_pickled_and_forked(server):
    env = make("agentrl/TwentyQuestions-v0", {"oracle": {"url": server.url, "model": "m"}})
    env.reset(seed=0)
    env.step("Is it big?")
    assert pickle.loads(pickle.dumps(env)).step("Is it red?") == env.step("Is it red?")
    assert env.fork(1).render() == "Questions:\nIs it big?\nNo.\n"


# --- what goes wrong


def test_what_may_pass_is_tried_again(server):
    server.lines = [503, 429, b"{", b'{"choices": []}', "fine"]
    assert fast(server)("?") == "fine" and len(server.seen) == 5


@pytest.mark.parametrize("line", [500, 429, b"[]", b"[" * 100_000, None, b'{"choices": [{"message": {"content": 3}}]}'])
def test_what_does_not_pass_is_a_failure_of_the_world(server, line):
    server.lines = [line]
    with pytest.raises(EnvironmentFailure, match="failed 3 times") as error:
        fast(server, retries=2)("?")
    assert error.value.kind == "raised" and len(server.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_told_to_the_user_at_once(server, status):
    server.lines = [status]
    with pytest.raises(UserError, match=str(status)):
        fast(server)("?")
    assert len(server.seen) == 1


def test_nobody_at_the_address_is_a_failure():
    with pytest.raises(EnvironmentFailure, match="failed 2 times"):
        Endpoint("http://127.0.0.1:9/v1", "m", retries=1, backoff=0.001)("?")


@pytest.mark.parametrize("url", ["", "nowhere", "ftp://x/v1"])
def test_an_address_that_is_none_is_told(url):
    with pytest.raises((UserError, EnvironmentFailure)):
        Endpoint(url, "m", retries=0)("?")


def test_a_deadline_holds_for_silence_and_for_drops(server):
    server.pause = 0.1
    for line in ("x", "x" * 4000):
        server.lines = [line]
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            fast(server, timeout=0.3 if len(line) > 1 else 0.05)("?")
        assert time.monotonic() - began < 5


def test_the_wait_between_two_tries_is_within_the_deadline(server):
    server.lines = [500]
    with pytest.raises(DeadlineExceeded, match="at last: it answered 500"):
        Endpoint(server.url, "m", timeout=0.5, backoff=10.0)("?")
    assert len(server.seen) == 1


def test_a_flood_is_not_read(server):
    server.lines = ["x" * 2_000_000]
    with pytest.raises(EnvironmentFailure) as error:
        fast(server)("?")
    assert error.value.kind == "flood"


def test_the_key_comes_from_the_environment(server, monkeypatch):
    with pytest.raises(UserError, match="ORACLE_KEY"):
        fast(server, api_key_variable="ORACLE_KEY")("?")
    monkeypatch.setenv("ORACLE_KEY", "sk-1")
    fast(server, api_key_variable="ORACLE_KEY")("?")
    assert [seen["key"] for seen in server.seen] == ["Bearer sk-1"]


def test_any_text_can_be_asked(server):
    for text in ("\ud800", "\x00\u202e", '"}]', "x" * 100_000):
        assert fast(server)(text) == "No."
        assert server.seen[-1]["messages"][0]["content"] == text.replace("\ud800", "?")


# --- agreement


def test_agreement_by_hand():
    said = {"a": "Yes.", "b": "Yes.", "c": "No.", "d": "No."}
    other = {"a": "Yes.", "b": "No.", "c": "No.", "d": "No."}
    one, two = (Asked(lambda prompt, table=table: table[prompt], lambda h, q: q, lambda h, r: r) for table in (said, other))
    found = agreement(one, two, [("dog", q) for q in "abcd"])
    # chance: .5 * .25 for yes and .5 * .75 for no
    assert (found.count, found.share, found.kappa) == (4, 0.75, pytest.approx((0.75 - 0.5) / 0.5))
    assert agreement(one, one, [("dog", "a")]).kappa == 1
    with pytest.raises(UserError):
        agreement(one, two, [])


def test_the_twins_of_twenty_questions_agree_where_the_model_knows_the_table(server):
    """A model that reads the table agrees fully; one that says yes to everything by the share of yes."""
    pairs = [(thing.word, attribute.question) for thing in things()[::20] for attribute in attributes()[::15]]
    scripted = ScriptedOracle()
    knows = asked(lambda prompt: scripted.answer(prompt.split("(")[1].split(")")[0], prompt.split("question: ")[1].split("\n")[0]))
    assert agreement(scripted, knows, pairs).share == 1
    server.lines = ["yes"]
    found = agreement(scripted, asked(fast(server)), pairs)
    yes = sum(scripted.answer(*pair) == "Yes." for pair in pairs) / len(pairs)
    assert 0 < yes < 1 and found.share == pytest.approx(yes) and found.kappa == pytest.approx(0, abs=1e-9)
