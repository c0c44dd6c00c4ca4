"""Completions of text with OpenAI's client, and with `RemoteEngine` as the client."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

openai = pytest.importorskip(
    "openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'"
)
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import (  # noqa: E402
    AGENT,
    TOKENIZER,
    CaptureFixture,
    LineEngine,
    capture_fixture,
    decode_text,
    local_engine,
)

from agentrl_jax.capture.session import CaptureSession  # noqa: E402
from agentrl_jax.inference.local_engine import LocalEngine  # noqa: E402
from agentrl_jax.inference.remote_config import RemoteEngineConfig  # noqa: E402
from agentrl_jax.inference.remote_engine import RemoteEngine  # noqa: E402
from agentrl_jax.learner.sequences import collate, token_identity  # noqa: E402
from agentrl_jax.trajectories import Group, Sampling, Trajectory  # noqa: E402


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = local_engine()
    yield engine
    engine.close()


def client_of(capture: CaptureFixture, session: CaptureSession) -> Any:
    capture.clients.append(
        openai.OpenAI(
            base_url=f"{capture.server.url_of(session)}/v1", api_key=session.secret, max_retries=0
        )
    )
    return capture.clients[-1].completions


def rewarded(capture: CaptureFixture, session: CaptureSession) -> Trajectory:
    with capture.client(session) as post:
        post.post("/reward", json={"reward": 1.0, "final": True}).raise_for_status()
    return session.trajectory()


@pytest.mark.slow
def test_a_continued_text_is_one_sequence_of_exactly_what_was_sampled(engine: LocalEngine):
    with capture_fixture(engine) as capture:
        session = capture.session()
        ask, so_far = client_of(capture, session), "Once upon a time"
        for _ in range(3):
            reply = ask.create(
                model="a",
                prompt=so_far,
                max_tokens=8,
                logprobs=0,
                extra_body={"return_token_ids": True},
            ).choices[0]
            so_far += reply.text + " and then"
        ids = [*reply.prompt_token_ids, *reply.token_ids, 32, 33]
        last = ask.create(model="a", prompt=ids, max_tokens=4)
        other = ask.create(model="a", prompt="Elsewhere", max_tokens=4)
        trajectory = rewarded(capture, session)
        group = Group("a", (trajectory,))
        collated = collate([group])
        assert token_identity([group], collated) == 1.0 and len(collated.sequences) == 2
        assert [call.parent is not None for call in trajectory.calls] == [
            False,
            True,
            True,
            True,
            False,
        ]
        assert trajectory.calls[3].prompt.tolist() == ids and last.usage.prompt_tokens == len(ids)
        assert decode_text(trajectory.calls[2].prompt).startswith(
            "Once upon a time"
        ) and decode_text(trajectory.calls[2].prompt).endswith(" and then")
        third = trajectory.calls[2]
        assert (
            reply.logprobs.token_logprobs == pytest.approx(third.sampler_logp.tolist())
            and reply.token_ids == third.action.tolist()
        )
        assert (other.object, other.choices[0].finish_reason, other.usage.completion_tokens) == (
            "text_completion",
            "length",
            4,
        )
        assert (
            trajectory.messages[0].text == "Once upon a time"
            and trajectory.turns[0].observation[0].text == " and then"
        )


def test_a_stream_of_text_contains_the_text_of_the_full_response(engine: LocalEngine):
    with capture_fixture(engine) as capture:
        first, second = capture.session(), capture.session()
        ask: Any = {"model": "a", "prompt": "stream", "max_tokens": 12, "n": 2}
        complete = client_of(capture, first).create(**ask)
        texts, reasons, usage = ["", ""], [None, None], None
        for chunk in client_of(capture, second).create(
            **ask, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        assert texts == [choice.text for choice in complete.choices] and texts[0] != texts[1]
        assert (
            reasons == ["length", "length"] and usage is not None and usage.completion_tokens == 24
        )


def test_settings_of_a_text_are_those_of_its_call():
    with capture_fixture(LineEngine("a;b", "x", "y")) as capture:
        session = capture.session()
        ask = client_of(capture, session)
        assert (
            ask.create(
                model="a", prompt=["one"], stop=";", temperature=0.5, extra_body={"top_k": -1}
            )
            .choices[0]
            .text
            == "a"
        )
        ask.create(
            model="a",
            prompt=TOKENIZER("two")["input_ids"],
            extra_body={"stop_token_ids": [7], "top_k": 5},
        )
        ask.create(model="a", prompt="<|im_start|>x", max_tokens=3, extra_body={"ignore_eos": True})
        first, second, third = rewarded(capture, session).calls
        assert (
            first.sampling.stop_strings,
            first.sampling.temperature,
            first.sampling.top_k,
            first.sampling.budget,
        ) == (
            (";",),
            0.5,
            0,
            12,
        )
        assert (second.sampling.stop_ids, second.sampling.top_k) == (
            (*AGENT.sampling.stop_ids, 7),
            5,
        )
        assert decode_text(second.prompt) == "two" and (
            third.sampling.stop_ids,
            third.sampling.budget,
        ) == ((), 3)
        assert len(third.prompt) == 2  # the special token is one


def test_what_is_not_supported_of_texts_is_refused():
    with capture_fixture(LineEngine()) as capture:
        ask = client_of(capture, capture.session())
        for wish in (
            {"logprobs": 3},
            {"echo": True},
            {"best_of": 2},
            {"suffix": "x"},
            {"prompt": ["a", "b"]},
            {"prompt": [[1], [2]]},
            {"prompt": ""},
            {"prompt": [10**6]},
            {"prompt": [-1]},
            {"temperature": 0},
            {"presence_penalty": 1},
            {"extra_body": {"messages": []}},
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                ask.create(**{"model": "a", "prompt": "x", **wish})
            assert refused.value.body["message"]


def test_a_remote_engine_samples_from_it(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    judge = dataclasses.replace(AGENT, trainable=False)
    prompt, sampling = (
        np.array([72, 105, 33], np.int32),
        Sampling(budget=8, temperature=0.0, stop_ids=AGENT.sampling.stop_ids),
    )
    with capture_fixture(engine, agents={"policy": judge}) as capture:
        session = capture.session()
        monkeypatch.setenv("KEY", session.secret)
        outside = RemoteEngine(
            RemoteEngineConfig(
                url=f"{capture.server.url_of(session)}/v1",
                model="policy",
                positions=256,
                logprobs="processed",
                api_key_variable="KEY",
            ),
            detokenize=decode_text,
        )
        remote, local = (
            x.submit(prompt, sampling, (1, 2)).result(timeout=60) for x in (outside, engine)
        )
        assert (
            remote.action.tolist() == local.action.tolist()
            and remote.finish_reason == local.finish_reason
        )
        sampled = outside.submit(
            prompt, dataclasses.replace(sampling, temperature=1.0, top_k=3), (1, 2)
        ).result(timeout=60)
        assert (
            len(sampled.action)
            and np.all(sampled.sampler_logp <= 0)
            and np.all(sampled.sampler_logp > -20)
        )
        outside.close()
