"""The remote engine, against a server with vLLM's completions and a local engine behind it."""

import dataclasses
import itertools
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import jax
import numpy as np
import pytest
from support.fake_engines import FakeEngine
from support.fixtures import tiny_policy
from support.untimed import call_time

from agentrl_jax.context import FullHistory
from agentrl_jax.engine import Engine, PromptImage
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.images.cache import ModelImage
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.remote_config import RemoteEngineConfig
from agentrl_jax.inference.remote_engine import RemoteEngine, RemoteScorer
from agentrl_jax.keys import seed_of
from agentrl_jax.models.tokenizers import character_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

TOKENIZER = character_tokenizer(["abc\n"])
VOCABULARY = len(TOKENIZER)
POSITIONS = 48
PROMPT = np.array([1, 2, 3, 1], np.int32)
Fault = Callable[["Handler", dict[str, Any]], None]


def decode_text(ids: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(ids)))


class Handler(BaseHTTPRequestHandler):
    """Answers POST /v1/completions as vLLM does, or with the next fault of the server."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(
            {"path": self.path, "key": self.headers["Authorization"], **body}
        )
        fault = self.server.faults.popleft() if self.server.faults else None
        with self.server.busy():
            if fault is None:
                self.reply(*completion(self.server.engine, body))
            else:
                fault(self, body)

    def reply(self, status: int, content: Any) -> None:
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
        self.requests: list[dict[str, Any]] = []
        self.release = threading.Event()  # ends hanging responses
        self.num_concurrent, self.max_concurrent = 0, 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def busy(self) -> Any:
        server = self

        class Busy:
            def __enter__(self) -> None:
                with server._lock:
                    server.num_concurrent += 1
                    server.max_concurrent = max(server.max_concurrent, server.num_concurrent)

            def __exit__(self, *_: Any) -> None:
                with server._lock:
                    server.num_concurrent -= 1

        return Busy()


def completion(engine: LocalEngine, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """vLLM's response to a request, with processed log-probs."""
    prompt, budget = body["prompt"], body["max_tokens"]
    if len(prompt) + budget > POSITIONS:
        message = (
            f"You passed {len(prompt)} input tokens and requested {budget} output tokens. "
            "However, the model's context length is only"
        )
        return 400, {
            "error": {
                "message": f"{message} {POSITIONS} tokens.",
                "type": "BadRequestError",
                "param": "input_tokens",
                "code": 400,
            }
        }
    sampling = Sampling(
        budget,
        body["temperature"],
        max(body["top_k"], 0),
        body["top_p"],
        body["min_p"],
        tuple(body["stop_token_ids"]),
        tuple(body["stop"]),
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
        "text": decode_text(ids),
        "logprobs": logprobs if body["logprobs"] is not None else None,
        "finish_reason": "stop" if call.finish_reason == "stop" else "length",
        "stop_reason": None,
        "token_ids": ids if body["return_token_ids"] else None,
        "prompt_token_ids": prompt if body["return_token_ids"] else None,
    }
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "total_tokens": len(prompt) + len(ids),
    }
    return 200, {
        "id": "cmpl-0",
        "object": "text_completion",
        "created": 0,
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }


@pytest.fixture(scope="module")
def local() -> Iterator[LocalEngine]:
    policy = tiny_policy(VOCABULARY, layers=1)
    config = EngineConfig(
        rows=8, positions=POSITIONS, prefill_chunk=8, min_decode_steps=4, batching_delay=0.0
    )
    rng = np.random.default_rng(0)  # arbitrary weights, without a compilation
    params = jax.tree.map(
        lambda x: rng.normal(scale=0.3, size=x.shape).astype(x.dtype),
        jax.eval_shape(policy.init, jax.random.key(0)),
    )
    engine = LocalEngine(policy, config, params, detokenize=decode_text)
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
def start(server: Server) -> Iterator[Callable[..., RemoteEngine]]:
    engines = []

    def make(arguments: dict[str, Any] | None = None, **fields: Any) -> RemoteEngine:
        config = RemoteEngineConfig(
            **{
                "url": server.url,
                "model": "minute",
                "positions": POSITIONS,
                "logprobs": "processed",
                **fields,
            }
        )
        config.timeout, config.backoff = fields.get("timeout", 20.0), 0.01
        engines.append(RemoteEngine(config, **{"detokenize": decode_text, **(arguments or {})}))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def sample_call(
    engine: Engine, sampling: Sampling, key: RandomKey = (7,), ids: np.ndarray = PROMPT
) -> Call:
    return engine.submit(ids, sampling, key).result(timeout=30)


def reference(
    local: LocalEngine, sampling: Sampling, key: RandomKey = (7,), ids: np.ndarray = PROMPT
) -> Call:
    """What the engine behind the server samples, called directly."""
    call = local.submit(ids, sampling, (seed_of(*key),)).result(timeout=30)
    local.release(call)
    return call


def contents(call: Call) -> list[Any]:
    return [
        call.prompt.tolist(),
        call.action.tolist(),
        call.sampler_logp.tolist(),
        call.version.tolist(),
        call.finish_reason,
        call.sampling,
    ]


def with_fields(**fields: Any) -> Fault:
    """A valid response with some fields of its choice replaced."""

    def fault(handler: Handler, body: dict[str, Any]) -> None:
        _, content = completion(handler.server.engine, body)
        content["choices"][0].update(fields)
        handler.reply(200, content)

    return fault


def respond(status: int, content: Any) -> Fault:
    return lambda handler, _: handler.reply(status, content)


def hang(handler: Handler, _: dict[str, Any]) -> None:
    handler.server.release.wait(20)
    handler.close_connection = True


def dribble(handler: Handler, _: dict[str, Any]) -> None:
    """Sends a byte now and then and never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while not handler.server.release.wait(0.02):
            handler.wfile.write(b" ")
    except OSError:
        pass
    handler.close_connection = True


def disconnect(handler: Handler, _: dict[str, Any]) -> None:
    handler.close_connection = True


def test_it_is_an_engine(start: Callable[..., RemoteEngine]):
    engine = start(max_concurrent_requests=3)
    assert isinstance(engine, Engine) and engine.num_slots == 3


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
def test_it_samples_what_the_engine_behind_the_server_samples(
    start: Callable[..., RemoteEngine], local: LocalEngine, sampling: Sampling
):
    engine = start()
    futures = [engine.submit(PROMPT, sampling, (7, sample)) for sample in range(6)]
    for sample, future in enumerate(futures):
        assert contents(future.result(timeout=30)) == contents(
            reference(local, sampling, (7, sample))
        )
    assert {future.result().finish_reason for future in futures} <= {"stop", "budget", "context"}


def test_members_of_a_group_differ_and_a_rerun_does_not(start: Callable[..., RemoteEngine]):
    engine = start()
    written = [
        tuple(sample_call(engine, Sampling(budget=20), (0, sample)).action.tolist())
        for sample in range(5)
    ]
    assert len(set(written)) == 5
    assert tuple(sample_call(engine, Sampling(budget=20), (0, 3)).action.tolist()) == written[3]


def test_the_fields_of_a_request(
    start: Callable[..., RemoteEngine], server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_KEY", "secret")
    sample_call(start(api_key_variable="MY_KEY"), Sampling(5, 0.7, 3, 0.9, 0.1, (4,), ("ab",)))
    assert server.requests == [
        {
            "path": "/v1/completions",
            "key": "Bearer secret",
            "model": "minute",
            "prompt": [1, 2, 3, 1],
            "max_tokens": 5,
            "temperature": 0.7,
            "top_k": 3,
            "top_p": 0.9,
            "min_p": 0.1,
            "seed": seed_of(7),
            "stop_token_ids": [4],
            "stop": ["ab"],
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "ignore_eos": True,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "return_token_ids": True,
            "logprobs": 0,
        }
    ]
    sample_call(start(logprobs="none"), Sampling())
    assert (
        server.requests[1]["top_k"] == -1
        and server.requests[1]["logprobs"] is None
        and server.requests[1]["key"] is None
    )


def test_a_parent_is_recorded_if_the_prompt_extends_it(start: Callable[..., RemoteEngine]):
    engine = start()
    first = sample_call(engine, Sampling(budget=3))
    second = engine.submit(
        np.append(first.ids, np.int32(1)), Sampling(budget=3), (8,), first
    ).result(timeout=30)
    other = engine.submit(PROMPT, Sampling(budget=3), (8,), first).result(timeout=30)
    assert second.parent is first and second.extends(first) and other.parent is None
    engine.release(first)


def test_forced_tokens_begin_the_action_and_count(
    start: Callable[..., RemoteEngine], local: LocalEngine, server: Server
):
    call = sample_call(start(), Sampling(budget=9, forced=(2, 2, 1)))
    continuation = reference(
        local, Sampling(budget=6), ids=np.append(PROMPT, np.array([2, 2, 1], np.int32))
    )
    assert call.prompt.tolist() == PROMPT.tolist() and call.action.tolist() == [
        2,
        2,
        1,
        *continuation.action.tolist(),
    ]
    assert (
        call.sampler_logp.tolist() == [0, 0, 0, *continuation.sampler_logp.tolist()]
        and call.finish_reason == "budget"
    )
    assert server.requests[0]["max_tokens"] == 6


@pytest.mark.parametrize(
    ("sampling", "action", "reason"),
    [
        (Sampling(budget=2, forced=(1, 2, 3)), [1, 2], "budget"),
        (Sampling(budget=9, forced=(2, 1, 2), stop_ids=(2,)), [2, 1, 2], "stop"),
        (Sampling(budget=9, forced=(1, 2, 3), stop_strings=(decode_text([1, 2]),)), [1, 2], "stop"),
    ],
)
def test_a_call_may_end_in_its_forced_tokens(
    start: Callable[..., RemoteEngine],
    server: Server,
    sampling: Sampling,
    action: list[int],
    reason: str,
):
    call = sample_call(start(), sampling)
    assert (
        call.action.tolist() == action
        and call.finish_reason == reason
        and not call.sampler_logp.any()
        and server.requests == []
    )


def test_a_stop_string_that_starts_in_the_forced_tokens_ends_the_call(
    start: Callable[..., RemoteEngine],
):
    engine = start()
    call = sample_call(engine, Sampling(budget=30, forced=(1,)))
    stop = decode_text(call.action[:3].tolist())
    cut = sample_call(engine, Sampling(budget=30, forced=(1,), stop_strings=(stop,)))
    assert cut.action.tolist() == call.action[:3].tolist() and cut.finish_reason == "stop"


def test_tokens_after_a_stop_string_are_dropped(start: Callable[..., RemoteEngine], server: Server):
    answers = {
        "token_ids": [3, 3, 1, 2, 1, 3],
        "logprobs": {"token_logprobs": [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]},
        "finish_reason": "stop",
    }
    server.faults.append(with_fields(**answers))
    call = sample_call(start(), Sampling(budget=9, stop_strings=(decode_text([3, 1, 2]),)))
    assert (
        call.action.tolist() == [3, 3, 1, 2]
        and call.sampler_logp.tolist() == [-1, -2, -3, -4]
        and call.finish_reason == "stop"
    )


@pytest.mark.parametrize("prompt", [45, 47, 48, 60])
def test_a_context_is_filled_to_its_last_position(
    start: Callable[..., RemoteEngine], server: Server, prompt: int
):
    call = sample_call(start(), Sampling(budget=50), ids=np.ones(prompt, np.int32))
    assert call.finish_reason == "context" and len(call.action) == max(
        0, POSITIONS - prompt
    ) == len(call.version)
    assert len(server.requests) == (prompt < POSITIONS)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 48 tokens. However, you requested 60 tokens.",
        "The input (60 tokens) is longer than the model's context length (48 tokens).",
        "request (60 tokens) exceeds the available context size (48 tokens), try increasing it",
    ],
)
def test_a_server_whose_context_is_smaller_than_configured_ends_the_call(
    start: Callable[..., RemoteEngine], server: Server, message: str
):
    engine = start(positions=1000)
    for fault in (None, respond(400, {"error": {"message": message}})):
        server.faults.extend([] if fault is None else [fault])
        call = sample_call(engine, Sampling(budget=50))
        assert call.finish_reason == "context" and len(call.action) == len(call.sampler_logp) == 0
    server.faults.append(
        with_fields(
            token_ids=[1, 2], logprobs={"token_logprobs": [-1.0, -2.0]}, finish_reason="length"
        )
    )
    call = sample_call(engine, Sampling(budget=5))
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
    start: Callable[..., RemoteEngine],
    server: Server,
    logprobs: str,
    right: list[Sampling],
    wrong: list[Sampling],
):
    engine = start(logprobs=logprobs)
    for sampling in right:
        call = sample_call(engine, sampling)
        if sampling is GREEDY:
            assert not call.sampler_logp.any()
        else:
            assert (
                np.isnan(call.sampler_logp).all()
                if logprobs == "none"
                else (call.sampler_logp < 0).all()
            )
    for sampling in wrong:
        with pytest.raises(UserError, match="--logprobs-mode processed_logprobs"):
            engine.submit(PROMPT, sampling, (0,))
    assert len(server.requests) == len(right)


def test_greedy_has_a_log_prob_of_zero_whatever_the_server_returns(
    start: Callable[..., RemoteEngine], server: Server
):
    server.faults.append(with_fields(token_ids=[1, 2], logprobs={"token_logprobs": [-0.5, -0.7]}))
    assert sample_call(start(), Sampling(budget=2, temperature=0.0)).sampler_logp.tolist() == [0, 0]


@pytest.mark.parametrize(
    "fault",
    [
        respond(500, "oh"),
        respond(503, "later"),
        respond(429, "slow down"),
        respond(200, b"<html>{"),
        respond(200, []),
        disconnect,
        respond(200, {"choices": []}),
        with_fields(finish_reason="abort"),
    ],
)
def test_a_transient_error_is_retried(
    start: Callable[..., RemoteEngine], server: Server, local: LocalEngine, fault: Fault
):
    server.faults.extend([fault, fault])
    assert contents(sample_call(start(), Sampling(budget=4))) == contents(
        reference(local, Sampling(budget=4))
    )
    assert len(server.requests) == 3 and server.requests[0] == server.requests[2]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (respond(503, "later"), 'failed 3 times, at last: it answered 503: "later"'),
        (respond(200, b"<html>"), "no completion: <html>"),
        (disconnect, "failed 3 times"),
        (with_fields(finish_reason="abort"), "broke a call off"),
    ],
)
def test_a_server_that_keeps_failing_is_an_environment_failure(
    start: Callable[..., RemoteEngine], server: Server, fault: Fault, words: str
):
    server.faults.extend([fault] * 3)
    with pytest.raises(EnvironmentFailure, match=words):
        sample_call(start(retries=2), Sampling())
    assert len(server.requests) == 3


def test_an_unreachable_server_is_an_environment_failure(start: Callable[..., RemoteEngine]):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EnvironmentFailure, match=f"http://127.0.0.1:{port}/v1 failed 2 times"):
        sample_call(start(url=f"http://127.0.0.1:{port}/v1", retries=1), Sampling())


@pytest.mark.parametrize("fault", [hang, dribble])
def test_a_server_that_hangs_times_out(
    start: Callable[..., RemoteEngine], server: Server, fault: Fault
):
    engine = start(timeout=0.3, max_concurrent_requests=1)
    server.faults.append(fault)
    since = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"did not finish a call within 0.3 seconds"):
        sample_call(engine, Sampling())
    assert time.monotonic() - since < 5
    engine.config.timeout = 20.0
    assert len(sample_call(engine, Sampling(budget=4)).action) == 4  # its connection is free again


def test_a_deadline_holds_over_all_retries(start: Callable[..., RemoteEngine], server: Server):
    server.faults.extend([respond(503, "later")] * 1000)
    with pytest.raises(DeadlineExceeded):
        sample_call(start(timeout=0.3, retries=999), Sampling())


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (with_fields(token_ids=None), "returns no token ids, and text cannot replace them"),
        (with_fields(token_ids=["token_id:1"]), "returns no token ids"),
        (with_fields(token_ids=[1, 2, 3]), "returned 4 log-probs for 3 tokens"),
        (with_fields(logprobs=None), "returns no log-probs"),
        (
            with_fields(logprobs={"token_logprobs": [None, -1.0, -1.0, -1.0]}),
            "returns no log-probs",
        ),
        (with_fields(prompt_token_ids=[0, 1, 2, 3, 1]), "changed a prompt"),
        (
            with_fields(
                token_ids=[1, 2], logprobs={"token_logprobs": [-1.0, -1.0]}, finish_reason="stop"
            ),
            r"after token \[2\]: if that is a stop id",
        ),
        (respond(401, {"error": "who are you"}), "refuses a request with 401: .*who are you"),
        (respond(404, {"error": "no such model"}), "refuses a request with 404: .*no such model"),
        (respond(400, {"error": "temperature must be in"}), "refuses a request with 400"),
    ],
)
def test_an_unsuitable_server_raises_without_retries(
    start: Callable[..., RemoteEngine], server: Server, fault: Fault, words: str
):
    server.faults.append(fault)
    with pytest.raises(UserError, match=words):
        sample_call(start(), Sampling(budget=4))
    assert len(server.requests) == 1


def test_at_most_max_concurrent_requests_are_in_flight(
    start: Callable[..., RemoteEngine], server: Server
):
    engine = start(max_concurrent_requests=3)
    for call in [engine.submit(PROMPT, Sampling(budget=20), (sample,)) for sample in range(12)]:
        assert len(call.result(timeout=30).action) == 20
    assert server.max_concurrent <= 3


def test_a_call_is_timed_from_its_submission_with_the_wait_for_a_connection(
    start: Callable[..., RemoteEngine], server: Server
):
    engine, before = start(max_concurrent_requests=1), time.time() - 0.01
    futures = [engine.submit(PROMPT, Sampling(budget=20), (sample,)) for sample in range(3)]
    times = sorted((call_time(f.result(timeout=30)) for f in futures), key=lambda t: t.admitted)
    for t in times:
        assert before < t.submitted <= t.admitted == t.prefilled < t.finished < time.time() + 0.01
        assert t.slot is None
    for t, next_time in itertools.pairwise(times):
        assert next_time.submitted < t.finished <= next_time.admitted


def test_a_cancelled_call_frees_its_connection(start: Callable[..., RemoteEngine], server: Server):
    engine = start(max_concurrent_requests=1)
    server.faults.append(hang)
    cancelled = engine.submit(PROMPT, Sampling(), (0,))
    while not server.requests:
        time.sleep(0.01)
    assert cancelled.cancel()
    assert len(sample_call(engine, Sampling(budget=4)).action) == 4


def test_a_closed_engine_refuses_requests_and_drops_queued_ones(
    start: Callable[..., RemoteEngine], server: Server
):
    engine = start(max_concurrent_requests=2)
    server.faults.extend([hang] * 2)
    waiting = [engine.submit(PROMPT, Sampling(), (sample,)) for sample in range(4)]
    while len(server.requests) < 2:
        time.sleep(0.01)
    engine.close()
    for future in waiting:
        with pytest.raises(RuntimeError, match="the engine has stopped"):
            future.result(timeout=0)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        engine.submit(PROMPT, Sampling(), (0,))
    engine.close()


def test_weights_go_through_the_publisher_and_tag_what_they_sample(
    start: Callable[..., RemoteEngine],
):
    published = []
    engine = start(
        {"publisher": lambda params, version: published.append((params, version)), "version": 3}
    )
    assert sample_call(engine, Sampling(budget=4)).version.tolist() == [3] * 4
    engine.publish("weights", 4)
    assert (
        published == [("weights", 4)]
        and sample_call(engine, Sampling(budget=4)).version.tolist() == [4] * 4
    )
    with pytest.raises(UserError, match="let the publisher reset"):
        engine.publish("weights", 5, recompute=True)
    with pytest.raises(UserError, match="cannot be changed from here"):
        start().publish("weights", 5)


def test_a_call_begun_before_new_weights_is_tagged_with_the_old(
    start: Callable[..., RemoteEngine], server: Server
):
    engine = start({"publisher": lambda params, version: None})
    server.faults.append(
        lambda handler, body: (
            engine.publish("weights", 1),
            handler.reply(*completion(handler.server.engine, body)),
        )[1]
    )
    assert sample_call(engine, Sampling(budget=4)).version.tolist() == [0] * 4
    assert sample_call(engine, Sampling(budget=4)).version.tolist() == [1] * 4


def test_an_invalid_request_is_refused(start: Callable[..., RemoteEngine], server: Server):
    engine = start({"detokenize": None})
    with pytest.raises(ValueError, match="at least one token"):
        engine.submit(PROMPT[:0], Sampling(), (0,))
    with pytest.raises(ValueError, match="decoder of ids"):
        engine.submit(PROMPT, Sampling(stop_strings=("a",)), (0,))
    with pytest.raises(UserError, match="images"):
        engine.submit(PROMPT, Sampling(), (0,), images=[PromptImage(0, cast(ModelImage, None))])
    with pytest.raises(UserError, match=r"a temperature of 0.001 by 0.01"):
        engine.submit(PROMPT, Sampling(temperature=0.001), (0,))
    assert server.requests == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_concurrent_requests": 0}, "needs max_concurrent_requests"),
        ({"positions": 0}, "needs max_concurrent_requests, positions"),
        ({"timeout": 0.0}, "timeout > 0"),
        ({"retries": -1}, "retries"),
        ({"url": "127.0.0.1:8000"}, "starts with http"),
        ({"url": "http://127.0.0.1:8000/v1/"}, "goes up to /v1"),
        ({"logprobs": "cooked"}, "processed, tempered, raw or none"),
        ({"api_key_variable": "NOBODY_SET_THIS"}, "NOBODY_SET_THIS should hold the API key"),
    ],
)
def test_an_invalid_remote_config_is_refused(wrong: dict[str, Any], words: str):
    config = RemoteEngineConfig("http://127.0.0.1:1/v1", "minute", 9)
    for name, value in wrong.items():  # as a flag sets them
        setattr(config, name, value)
    with pytest.raises(UserError, match=words):
        RemoteEngine(config)


class ServerKeysEngine(FakeEngine):
    """The local engine, with keys as the server gets them."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine, self.num_slots = engine, engine.num_slots

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> Any:
        return self._engine.submit(ids, sampling, (seed_of(*key),), parent)

    def release(self, call: Call) -> None:
        self._engine.release(call)


def collect_groups(engine: Engine) -> list[Group]:
    agent = Agent("policy", TextRenderer(TOKENIZER), FullHistory(), Sampling(budget=3))
    tasks = [Task("support.letter_task:tests/Letters-v0", seed) for seed in range(3)]
    with Runtime({}, {}, InlinePool(), retries=5) as runtime:
        runtime.add_agent("policy", agent, engine)
        return runtime.collect(IndependentEpisodes(4), tasks, (0, 0))


def test_episodes_are_those_of_the_engine_behind_the_server(
    start: Callable[..., RemoteEngine], local: LocalEngine
):
    remote_groups, local_groups = collect_groups(start()), collect_groups(ServerKeysEngine(local))
    for a, b in zip(remote_groups, local_groups, strict=True):
        for remote_trajectory, other in zip(a.trajectories, b.trajectories, strict=True):
            assert (
                remote_trajectory.messages == other.messages
                and remote_trajectory.stop_reason == other.stop_reason == "terminated"
            )
            for call, local_call in zip(remote_trajectory.calls, other.calls, strict=True):
                assert (
                    call.prompt.tolist() == local_call.prompt.tolist()
                    and call.action.tolist() == local_call.action.tolist()
                )
                assert call.finish_reason == local_call.finish_reason and (call.parent is None) == (
                    local_call.parent is None
                )
                np.testing.assert_allclose(
                    call.sampler_logp, local_call.sampler_logp, atol=1e-6
                )  # the local prompt was cached


@pytest.mark.slow
def test_an_episode_whose_server_failed_is_retried(
    start: Callable[..., RemoteEngine], server: Server
):
    groups_without_faults = collect_groups(start())
    turns = len(server.requests)
    server.faults.extend([respond(503, "later")] * 5)
    groups = collect_groups(start(retries=0))
    assert (
        len(server.requests) == turns + 5 + turns
        and sum(group.num_dropped for group in groups) == 0
    )
    assert [t.messages for g in groups for t in g.trajectories] == [
        t.messages for g in groups_without_faults for t in g.trajectories
    ]


def test_a_config_is_a_plain_dataclass_without_the_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "secret")
    config = RemoteEngineConfig("http://127.0.0.1:1/v1", "minute", 9, api_key_variable="MY_KEY")
    engine = RemoteEngine(config)
    engine.close()
    assert "secret" not in repr(dataclasses.asdict(config)) + repr(vars(engine))


def test_a_text_is_scored_by_the_log_probs_of_its_prompt_tokens(
    server: Server, start: Callable[..., RemoteEngine]
):
    entries = [
        None,
        {"2": {"logprob": -0.5, "rank": 1}},
        {"3": {"logprob": -1.5, "rank": 2}, "0": {"logprob": -0.1, "rank": 1}},
        {"1": {"logprob": -4.0, "rank": 3}},
    ]
    scorer = RemoteScorer(start())
    server.faults.append(with_fields(prompt_logprobs=entries))
    is_scored = np.array([False, False, True, True])
    assert scorer.submit(PROMPT, is_scored).result(30) == -5.5
    request = server.requests[-1]
    assert (request["prompt"], request["prompt_logprobs"]) == (PROMPT.tolist(), 1)
    assert (request["max_tokens"], request["temperature"]) == (1, 1.0)
    for fields, message in (
        ({}, "returns no prompt_logprobs for 4 tokens"),
        ({"prompt_logprobs": entries[:3]}, "returns no prompt_logprobs"),
        ({"prompt_logprobs": [None, {}, {}, {}]}, "without the prompt's own tokens"),
    ):
        server.faults.append(with_fields(**fields))
        with pytest.raises(UserError, match=message):
            scorer.submit(PROMPT, is_scored).result(30)


def test_a_score_has_the_retries_and_the_timeout_of_a_call(
    server: Server, start: Callable[..., RemoteEngine]
):
    server.faults.extend(
        [respond(500, {}), with_fields(prompt_logprobs=[None, {"2": {"logprob": -2}}])]
    )
    text = PROMPT[:2], np.array([False, True])
    assert RemoteScorer(start()).submit(*text).result(30) == -2.0
    server.faults.append(hang)
    with pytest.raises(DeadlineExceeded):
        RemoteScorer(start(timeout=0.2)).submit(*text).result(30)
