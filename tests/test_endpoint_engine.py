"""The endpoint engine, against a server on loopback that speaks vLLM's completions and has a local engine behind it."""

import dataclasses
import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import minute_policy

from agentrl_jax.context import FullHistory
from agentrl_jax.endpoint_engine import EndpointConfig, EndpointEngine
from agentrl_jax.engine import Engine, Image
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.tokenizers import character_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Call, Group, Key, Sampling
from agentrl_jax.workers import InProcess, Task

sys.path.insert(0, str(Path(__file__).parent))  # for the world "letters:tests/Letters-v0"

TOKENIZER = character_tokenizer(["abc\n"])
VOCABULARY = len(TOKENIZER)
POSITIONS = 48
PROMPT = np.array([1, 2, 3, 1], np.int32)
Fault = Callable[["Handler", dict[str, Any]], None]


def text(ids: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(ids)))


class Handler(BaseHTTPRequestHandler):
    """POST /v1/completions as vLLM answers it, or as the next fault of the server does."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
        fault = self.server.faults.popleft() if self.server.faults else None
        with self.server.busy():
            if fault is None:
                self.say(*completion(self.server.engine, body))
            else:
                fault(self, body)

    def say(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


class Server(ThreadingHTTPServer):
    def __init__(self, engine: LocalEngine) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine
        self.faults: deque[Fault] = deque()
        self.asked: list[dict[str, Any]] = []
        self.release = threading.Event()  # ends what hangs
        self.at_once, self.most = 0, 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def busy(self) -> Any:
        server = self

        class Busy:
            def __enter__(self) -> None:
                with server._lock:
                    server.at_once += 1
                    server.most = max(server.most, server.at_once)

            def __exit__(self, *_: Any) -> None:
                with server._lock:
                    server.at_once -= 1

        return Busy()


def completion(engine: LocalEngine, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """What vLLM makes of a request, processed log-probs included."""
    prompt, budget = body["prompt"], body["max_tokens"]
    if len(prompt) + budget > POSITIONS:
        message = f"You passed {len(prompt)} input tokens and requested {budget} output tokens. However, the model's context length is only"
        return 400, {
            "error": {"message": f"{message} {POSITIONS} tokens.", "type": "BadRequestError", "param": "input_tokens", "code": 400}
        }
    sampling = Sampling(
        budget, body["temperature"], max(body["top_k"], 0), body["top_p"], body["min_p"], tuple(body["stop_token_ids"]), tuple(body["stop"])
    )
    call = engine.submit(np.asarray(prompt, np.int32), sampling, (body["seed"],)).result(timeout=60)
    engine.release(call)
    ids, logp = call.action.tolist(), call.sampler_logp.tolist()
    names = [f"token_id:{i}" for i in ids]
    logprobs = {
        "tokens": names,
        "token_logprobs": logp,
        "top_logprobs": [{n: x} for n, x in zip(names, logp)],
        "text_offset": [0] * len(ids),
    }
    choice = {
        "index": 0,
        "text": text(ids),
        "logprobs": logprobs if body["logprobs"] is not None else None,
        "finish_reason": "stop" if call.finish_reason == "stop" else "length",
        "stop_reason": None,
        "token_ids": ids if body["return_token_ids"] else None,
        "prompt_token_ids": prompt if body["return_token_ids"] else None,
    }
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    return 200, {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": body["model"], "choices": [choice], "usage": usage}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalEngine]:
    policy = minute_policy(VOCABULARY, layers=1)
    config = EngineConfig(rows=8, positions=POSITIONS, chunk=8, burst=4, patience=0.0)
    rng = np.random.default_rng(0)  # any weights will do, and these need no compilation
    params = jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(x.dtype), jax.eval_shape(policy.init, jax.random.key(0)))
    engine = LocalEngine(policy, config, params, text=text)
    yield engine
    engine.close()


@pytest.fixture
def server(local: LocalEngine) -> Iterator[Server]:
    server = Server(local)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., EndpointEngine]]:
    engines = []

    def make(arguments: dict[str, Any] | None = None, **fields: Any) -> EndpointEngine:
        config = EndpointConfig(**{"url": server.url, "model": "minute", "positions": POSITIONS, "logprobs": "processed", **fields})
        config.timeout, config.backoff = fields.get("timeout", 20.0), 0.01
        engines.append(EndpointEngine(config, **{"text": text, **(arguments or {})}))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def ask(engine: Engine, sampling: Sampling, key: Key = (7,), ids: np.ndarray = PROMPT) -> Call:
    return engine.submit(ids, sampling, key).result(timeout=30)


def reference(local: LocalEngine, sampling: Sampling, key: Key = (7,), ids: np.ndarray = PROMPT) -> Call:
    """What the engine behind the server samples, asked for in person."""
    call = local.submit(ids, sampling, (seed_of(*key),)).result(timeout=30)
    local.release(call)
    return call


def recorded(call: Call) -> list[Any]:
    return [
        call.prompt.tolist(),
        call.action.tolist(),
        call.sampler_logp.tolist(),
        call.version.tolist(),
        call.finish_reason,
        call.sampling,
    ]


def changed(**fields: Any) -> Fault:
    """A true answer whose choice has other fields."""

    def fault(handler: Handler, body: dict[str, Any]) -> None:
        _, content = completion(handler.server.engine, body)
        content["choices"][0].update(fields)
        handler.say(200, content)

    return fault


def answer(status: int, content: Any) -> Fault:
    return lambda handler, _: handler.say(status, content)


def hang(handler: Handler, _: dict[str, Any]) -> None:
    handler.server.release.wait(20)
    handler.close_connection = True


def dribble(handler: Handler, _: dict[str, Any]) -> None:
    """Never done, and never silent for long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while not handler.server.release.wait(0.02):
            handler.wfile.write(b" ")
    except OSError:
        pass
    handler.close_connection = True


def hang_up(handler: Handler, _: dict[str, Any]) -> None:
    handler.close_connection = True


def test_it_is_an_engine(start: Callable[..., EndpointEngine]):
    engine = start(places=3)
    assert isinstance(engine, Engine) and engine.places == 3


SAMPLINGS = [
    Sampling(budget=9),
    Sampling(budget=9, temperature=0.5),
    Sampling(budget=9, temperature=1.3, top_k=3),
    Sampling(budget=9, top_p=0.8, min_p=0.05),
    Sampling(budget=9, temperature=0.0),
    Sampling(budget=30, stop_ids=(0, 4)),
    Sampling(budget=30, stop_strings=("ab", "c")),
    Sampling(budget=50),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_says_what_the_engine_behind_the_server_says(start: Callable[..., EndpointEngine], local: LocalEngine, sampling: Sampling):
    engine = start()
    futures = [engine.submit(PROMPT, sampling, (7, sample)) for sample in range(6)]
    for sample, future in enumerate(futures):
        assert recorded(future.result(timeout=30)) == recorded(reference(local, sampling, (7, sample)))
    assert {future.result().finish_reason for future in futures} <= {"stop", "budget", "context"}


def test_members_of_a_group_differ_and_a_rerun_does_not(start: Callable[..., EndpointEngine]):
    engine = start()
    written = [tuple(ask(engine, Sampling(budget=20), (0, sample)).action.tolist()) for sample in range(5)]
    assert len(set(written)) == 5
    assert tuple(ask(engine, Sampling(budget=20), (0, 3)).action.tolist()) == written[3]


def test_what_it_asks_for(start: Callable[..., EndpointEngine], server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "secret")
    ask(start(api_key_variable="MY_KEY"), Sampling(5, 0.7, 3, 0.9, 0.1, (4,), ("ab",)))
    assert server.asked == [
        {
            "path": "/v1/completions", "key": "Bearer secret", "model": "minute", "prompt": [1, 2, 3, 1], "max_tokens": 5,
            "temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": seed_of(7), "stop_token_ids": [4], "stop": ["ab"],
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "ignore_eos": True,
            "add_special_tokens": False, "skip_special_tokens": False, "return_token_ids": True, "logprobs": 0,
        }
    ]  # fmt: skip
    ask(start(logprobs="none"), Sampling())
    assert server.asked[1]["top_k"] == -1 and server.asked[1]["logprobs"] is None and server.asked[1]["key"] is None


def test_a_parent_is_recorded_where_the_prompt_extends_it(start: Callable[..., EndpointEngine]):
    engine = start()
    first = ask(engine, Sampling(budget=3))
    second = engine.submit(np.append(first.ids, np.int32(1)), Sampling(budget=3), (8,), first).result(timeout=30)
    other = engine.submit(PROMPT, Sampling(budget=3), (8,), first).result(timeout=30)
    assert second.parent is first and second.extends(first) and other.parent is None
    engine.release(first)


def test_forced_tokens_begin_the_action_and_count(start: Callable[..., EndpointEngine], local: LocalEngine, server: Server):
    call = ask(start(), Sampling(budget=9, forced=(2, 2, 1)))
    rest = reference(local, Sampling(budget=6), ids=np.append(PROMPT, np.array([2, 2, 1], np.int32)))
    assert call.prompt.tolist() == PROMPT.tolist() and call.action.tolist() == [2, 2, 1, *rest.action.tolist()]
    assert call.sampler_logp.tolist() == [0, 0, 0, *rest.sampler_logp.tolist()] and call.finish_reason == "budget"
    assert server.asked[0]["max_tokens"] == 6


@pytest.mark.parametrize(
    ("sampling", "action", "reason"),
    [
        (Sampling(budget=2, forced=(1, 2, 3)), [1, 2], "budget"),
        (Sampling(budget=9, forced=(2, 1, 2), stop_ids=(2,)), [2, 1, 2], "stop"),
        (Sampling(budget=9, forced=(1, 2, 3), stop_strings=(text([1, 2]),)), [1, 2], "stop"),
    ],
)
def test_a_call_may_end_in_its_forced_tokens(
    start: Callable[..., EndpointEngine], server: Server, sampling: Sampling, action: list[int], reason: str
):
    call = ask(start(), sampling)
    assert call.action.tolist() == action and call.finish_reason == reason and not call.sampler_logp.any() and server.asked == []


def test_a_stop_string_that_begins_in_the_forced_tokens_is_seen(start: Callable[..., EndpointEngine]):
    engine = start()
    call = ask(engine, Sampling(budget=30, forced=(1,)))
    stop = text(call.action[:3].tolist())
    cut = ask(engine, Sampling(budget=30, forced=(1,), stop_strings=(stop,)))
    assert cut.action.tolist() == call.action[:3].tolist() and cut.finish_reason == "stop"


def test_what_a_server_wrote_behind_a_stop_string_is_dropped(start: Callable[..., EndpointEngine], server: Server):
    answers = {
        "token_ids": [3, 3, 1, 2, 1, 3],
        "logprobs": {"token_logprobs": [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]},
        "finish_reason": "stop",
    }
    server.faults.append(changed(**answers))
    call = ask(start(), Sampling(budget=9, stop_strings=(text([3, 1, 2]),)))
    assert call.action.tolist() == [3, 3, 1, 2] and call.sampler_logp.tolist() == [-1, -2, -3, -4] and call.finish_reason == "stop"


@pytest.mark.parametrize("prompt", [45, 47, 48, 60])
def test_a_context_is_filled_to_its_last_position(start: Callable[..., EndpointEngine], server: Server, prompt: int):
    call = ask(start(), Sampling(budget=50), ids=np.ones(prompt, np.int32))
    assert call.finish_reason == "context" and len(call.action) == max(0, POSITIONS - prompt) == len(call.version)
    assert len(server.asked) == (prompt < POSITIONS)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 48 tokens. However, you requested 60 tokens.",
        "The input (60 tokens) is longer than the model's context length (48 tokens).",
        "request (60 tokens) exceeds the available context size (48 tokens), try increasing it",
    ],
)
def test_a_server_whose_context_is_smaller_than_was_said(start: Callable[..., EndpointEngine], server: Server, message: str):
    engine = start(positions=1000)
    for fault in (None, answer(400, {"error": {"message": message}})):
        server.faults.extend([] if fault is None else [fault])
        call = ask(engine, Sampling(budget=50))
        assert call.finish_reason == "context" and len(call.action) == len(call.sampler_logp) == 0
    server.faults.append(changed(token_ids=[1, 2], logprobs={"token_logprobs": [-1.0, -2.0]}, finish_reason="length"))
    call = ask(engine, Sampling(budget=5))
    assert call.finish_reason == "context" and call.action.tolist() == [1, 2]


GREEDY, PLAIN = Sampling(temperature=0.0, top_k=3), Sampling()
TEMPERED, FILTERED = Sampling(temperature=0.7), Sampling(top_p=0.9)


@pytest.mark.parametrize(
    ("logprobs", "right", "wrong"),
    [
        ("processed", [GREEDY, PLAIN, TEMPERED, FILTERED], []),
        ("tempered", [GREEDY, PLAIN, TEMPERED], [FILTERED, Sampling(top_k=2), Sampling(min_p=0.1)]),
        ("raw", [GREEDY, PLAIN], [TEMPERED, FILTERED]),
        ("none", [GREEDY, PLAIN, TEMPERED, FILTERED], []),
    ],
)
def test_only_log_probs_of_the_distribution_sampled_from_are_recorded(
    start: Callable[..., EndpointEngine], server: Server, logprobs: str, right: list[Sampling], wrong: list[Sampling]
):
    engine = start(logprobs=logprobs)
    for sampling in right:
        call = ask(engine, sampling)
        if sampling is GREEDY:
            assert not call.sampler_logp.any()
        else:
            assert np.isnan(call.sampler_logp).all() if logprobs == "none" else (call.sampler_logp < 0).all()
    for sampling in wrong:
        with pytest.raises(UserError, match="--logprobs-mode processed_logprobs"):
            engine.submit(PROMPT, sampling, (0,))
    assert len(server.asked) == len(right)


def test_greedy_has_a_log_prob_of_zero_whatever_the_server_says(start: Callable[..., EndpointEngine], server: Server):
    server.faults.append(changed(token_ids=[1, 2], logprobs={"token_logprobs": [-0.5, -0.7]}))
    assert ask(start(), Sampling(budget=2, temperature=0.0)).sampler_logp.tolist() == [0, 0]


@pytest.mark.parametrize(
    "fault", [answer(500, "oh"), answer(503, "later"), answer(429, "slow down"), answer(200, b"<html>{"), answer(200, []), hang_up,
              answer(200, {"choices": []}), changed(finish_reason="abort")]
)  # fmt: skip
def test_a_hiccup_is_tried_again(start: Callable[..., EndpointEngine], server: Server, local: LocalEngine, fault: Fault):
    server.faults.extend([fault, fault])
    assert recorded(ask(start(), Sampling(budget=4))) == recorded(reference(local, Sampling(budget=4)))
    assert len(server.asked) == 3 and server.asked[0] == server.asked[2]


@pytest.mark.parametrize(
    ("fault", "said"),
    [(answer(503, "later"), "failed 3 times, at last: it answered 503: \"later\""), (answer(200, b"<html>"), "no completion: <html>"),
     (hang_up, "failed 3 times"), (changed(finish_reason="abort"), "broke a call off")],
)  # fmt: skip
def test_a_server_that_keeps_failing_is_an_environment_failure(
    start: Callable[..., EndpointEngine], server: Server, fault: Fault, said: str
):
    server.faults.extend([fault] * 3)
    with pytest.raises(EnvironmentFailure, match=said):
        ask(start(retries=2), Sampling())
    assert len(server.asked) == 3


def test_a_server_that_is_not_there_is_an_environment_failure(start: Callable[..., EndpointEngine]):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EnvironmentFailure, match=f"http://127.0.0.1:{port}/v1 failed 2 times"):
        ask(start(url=f"http://127.0.0.1:{port}/v1", retries=1), Sampling())


@pytest.mark.parametrize("fault", [hang, dribble])
def test_a_server_that_hangs_is_not_waited_for(start: Callable[..., EndpointEngine], server: Server, fault: Fault):
    engine = start(timeout=0.3, places=1)
    server.faults.append(fault)
    since = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not finish a call within 0.3 seconds"):
        ask(engine, Sampling())
    assert time.monotonic() - since < 5
    engine.config.timeout = 20.0
    assert len(ask(engine, Sampling(budget=4)).action) == 4  # its place is free again


def test_a_deadline_holds_over_all_retries(start: Callable[..., EndpointEngine], server: Server):
    server.faults.extend([answer(503, "later")] * 1000)
    with pytest.raises(DeadlineExceeded):
        ask(start(timeout=0.3, retries=999), Sampling())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (changed(token_ids=None), "sends no token ids back, and text cannot stand for them"),
        (changed(token_ids=["token_id:1"]), "sends no token ids back"),
        (changed(token_ids=[1, 2, 3]), "sent 4 log-probs for 3 tokens"),
        (changed(logprobs=None), "sends no log-probs back"),
        (changed(logprobs={"token_logprobs": [None, -1.0, -1.0, -1.0]}), "sends no log-probs back"),
        (changed(prompt_token_ids=[0, 1, 2, 3, 1]), "changed a prompt"),
        (
            changed(token_ids=[1, 2], logprobs={"token_logprobs": [-1.0, -1.0]}, finish_reason="stop"),
            r"after token \[2\]: if that is a stop id",
        ),
        (answer(401, {"error": "who are you"}), "refuses a request with 401: .*who are you"),
        (answer(404, {"error": "no such model"}), "refuses a request with 404: .*no such model"),
        (answer(400, {"error": "temperature must be in"}), "refuses a request with 400"),
    ],
)
def test_a_server_that_does_not_fit_is_named_at_once(start: Callable[..., EndpointEngine], server: Server, fault: Fault, said: str):
    server.faults.append(fault)
    with pytest.raises(UserError, match=said):
        ask(start(), Sampling(budget=4))
    assert len(server.asked) == 1


def test_no_more_requests_than_places_are_under_way(start: Callable[..., EndpointEngine], server: Server):
    engine = start(places=3)
    for call in [engine.submit(PROMPT, Sampling(budget=20), (sample,)) for sample in range(12)]:
        assert len(call.result(timeout=30).action) == 20
    assert server.most <= 3


def test_a_call_that_nobody_wants_any_more_frees_its_place(start: Callable[..., EndpointEngine], server: Server):
    engine = start(places=1)
    server.faults.append(hang)
    unwanted = engine.submit(PROMPT, Sampling(), (0,))
    while not server.asked:
        time.sleep(0.01)
    assert unwanted.cancel()
    assert len(ask(engine, Sampling(budget=4)).action) == 4


def test_a_closed_engine_takes_nothing_more_and_drops_what_waits(start: Callable[..., EndpointEngine], server: Server):
    engine = start(places=2)
    server.faults.extend([hang] * 2)
    waiting = [engine.submit(PROMPT, Sampling(), (sample,)) for sample in range(4)]
    while len(server.asked) < 2:
        time.sleep(0.01)
    engine.close()
    for future in waiting:
        with pytest.raises(RuntimeError, match="the engine has stopped"):
            future.result(timeout=0)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        engine.submit(PROMPT, Sampling(), (0,))
    engine.close()


def test_weights_go_through_the_publisher_and_tag_what_they_sample(start: Callable[..., EndpointEngine]):
    published = []
    engine = start({"publisher": lambda params, version: published.append((params, version)), "version": 3})
    assert ask(engine, Sampling(budget=4)).version.tolist() == [3] * 4
    engine.publish("weights", 4)
    assert published == [("weights", 4)] and ask(engine, Sampling(budget=4)).version.tolist() == [4] * 4
    with pytest.raises(UserError, match="let the publisher reset"):
        engine.publish("weights", 5, recompute=True)
    with pytest.raises(UserError, match="cannot be changed from here"):
        start().publish("weights", 5)


def test_a_call_begun_before_new_weights_is_tagged_with_the_old(start: Callable[..., EndpointEngine], server: Server):
    engine = start({"publisher": lambda params, version: None})
    server.faults.append(lambda handler, body: (engine.publish("weights", 1), handler.say(*completion(handler.server.engine, body)))[1])
    assert ask(engine, Sampling(budget=4)).version.tolist() == [0] * 4
    assert ask(engine, Sampling(budget=4)).version.tolist() == [1] * 4


def test_a_request_that_makes_no_sense_is_refused(start: Callable[..., EndpointEngine], server: Server):
    engine = start({"text": None})
    with pytest.raises(ValueError, match="at least one token"):
        engine.submit(PROMPT[:0], Sampling(), (0,))
    with pytest.raises(ValueError, match="decoder of ids"):
        engine.submit(PROMPT, Sampling(stop_strings=("a",)), (0,))
    with pytest.raises(UserError, match="images"):
        engine.submit(PROMPT, Sampling(), (0,), images=[Image(0, np.zeros((1, 16), np.float32))])
    with pytest.raises(UserError, match=r"a temperature of 0.001 for 0.01"):
        engine.submit(PROMPT, Sampling(temperature=0.001), (0,))
    assert server.asked == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"places": 0}, "needs places"),
        ({"positions": 0}, "needs places, positions"),
        ({"timeout": 0.0}, "timeout > 0"),
        ({"retries": -1}, "retries"),
        ({"url": "127.0.0.1:8000"}, "starts with http"),
        ({"url": "http://127.0.0.1:8000/v1/"}, "goes up to /v1"),
        ({"logprobs": "cooked"}, "processed, tempered, raw or none"),
        ({"api_key_variable": "NOBODY_SET_THIS"}, "NOBODY_SET_THIS should hold the API key"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str):
    config = EndpointConfig("http://127.0.0.1:1/v1", "minute", 9)
    for name, value in wrong.items():  # as a flag sets them
        setattr(config, name, value)
    with pytest.raises(UserError, match=said):
        EndpointEngine(config)


class Seeded:
    """The local engine, with keys as the server gets them."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine, self.places = engine, engine.places

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()) -> Any:
        return self._engine.submit(ids, sampling, (seed_of(*key),), parent)

    def release(self, call: Call) -> None:
        self._engine.release(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...


def played(engine: Engine) -> list[Group]:
    agent = Agent("policy", TextRenderer(TOKENIZER), FullHistory(), Sampling(budget=3))
    tasks = [Task("letters:tests/Letters-v0", seed) for seed in range(3)]
    with Runtime({}, {}, InProcess(), retries=5) as runtime:
        runtime.add("policy", agent, engine)
        return runtime.collect(Independent(4), tasks, (0, 0))


def test_episodes_are_those_of_the_engine_behind_the_server(start: Callable[..., EndpointEngine], local: LocalEngine):
    far, near = played(start()), played(Seeded(local))
    for a, b in zip(far, near, strict=True):
        for one, other in zip(a.trajectories, b.trajectories, strict=True):
            assert one.messages == other.messages and one.stop_reason == other.stop_reason == "terminated"
            for call, twin in zip(one.calls, other.calls, strict=True):
                assert call.prompt.tolist() == twin.prompt.tolist() and call.action.tolist() == twin.action.tolist()
                assert call.finish_reason == twin.finish_reason and (call.parent is None) == (twin.parent is None)
                np.testing.assert_allclose(call.sampler_logp, twin.sampler_logp, atol=1e-6)  # the twin's prompt was cached


def test_an_episode_whose_server_failed_is_played_anew(start: Callable[..., EndpointEngine], server: Server):
    calm = played(start())
    turns = len(server.asked)
    server.faults.extend([answer(503, "later")] * 5)
    groups = played(start(retries=0))
    assert len(server.asked) == turns + 5 + turns and sum(group.dropped for group in groups) == 0
    assert [t.messages for g in groups for t in g.trajectories] == [t.messages for g in calm for t in g.trajectories]


def test_a_config_is_a_plain_dataclass_without_the_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "secret")
    config = EndpointConfig("http://127.0.0.1:1/v1", "minute", 9, api_key_variable="MY_KEY")
    engine = EndpointEngine(config)
    engine.close()
    assert "secret" not in repr(dataclasses.asdict(config)) + repr(vars(engine))
