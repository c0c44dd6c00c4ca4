"""OpenAI's client against the capture endpoint: sync, async, streaming, and invalid requests."""

import asyncio
import json
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
    RENDERER,
    CaptureFixture,
    LineEngine,
    capture_fixture,
    decode_text,
    local_engine,
)

from agentrl_jax.capture.session import CaptureSession  # noqa: E402
from agentrl_jax.inference.local_engine import LocalEngine  # noqa: E402
from agentrl_jax.learner.sequences import collate, token_identity  # noqa: E402
from agentrl_jax.rollout.agent import Limits  # noqa: E402
from agentrl_jax.trajectories import Group, Trajectory  # noqa: E402

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {}},
    },
}
CALLS = '<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = local_engine()
    yield engine
    engine.close()


def client_of(capture: CaptureFixture, session: CaptureSession, **fields: Any) -> Any:
    capture.clients.append(
        openai.OpenAI(
            base_url=f"{capture.server.url_of(session)}/v1",
            api_key=session.secret,
            max_retries=0,
            **fields,
        )
    )
    return capture.clients[-1]


def chat_message(content: str, role: str = "user") -> Any:
    return {"role": role, "content": content}


def rewarded(capture: CaptureFixture, session: CaptureSession, **fields: Any) -> Trajectory:
    with capture.client(session) as post:
        post.post("/reward", json={"reward": 1.0, "final": True, **fields}).raise_for_status()
    return session.trajectory()


@pytest.mark.slow
def test_a_conversation_with_a_real_engine_is_one_sequence_of_exactly_what_was_sampled(
    engine: LocalEngine,
):
    with capture_fixture(engine) as capture:
        session = capture.session()
        client, messages = (
            client_of(capture, session),
            [chat_message("be brief", "system"), chat_message("hello")],
        )
        for turn in range(4):
            reply = client.chat.completions.create(
                model="gpt-9", messages=messages, logprobs=True
            ).choices[0]
            messages += [reply.message, chat_message(f"turn {turn}")]
        trajectory = rewarded(capture, session, success=True)
        (row,) = collate([Group("a", (trajectory,))]).sequences
        assert (
            token_identity([Group("a", (trajectory,))], collate([Group("a", (trajectory,))])) == 1.0
        )
        assert [call.parent is not None for call in trajectory.calls] == [False, True, True, True]
        assert int(row.action_mask.sum()) == sum(len(call.action) for call in trajectory.calls)
        assert [x.logprob for x in reply.logprobs.content] == pytest.approx(
            trajectory.calls[-1].sampler_logp.tolist()
        )
        assert (
            decode_text(row.tokens)
            == decode_text(RENDERER.render([*trajectory.messages]).ids)[
                : len(decode_text(row.tokens))
            ]
        )
        assert (
            trajectory.success and trajectory.total_reward == 1 and trajectory.turns[-1].terminated
        )


def test_concurrent_async_agents_sample_the_same_in_any_order(engine: LocalEngine):
    async def agent(client: Any, name: str, pause: float) -> list[str]:
        messages, out = [chat_message(f"you are {name}")], []
        for _ in range(3):
            await asyncio.sleep(pause)
            reply = (
                (await client.chat.completions.create(model=name, messages=messages))
                .choices[0]
                .message
            )
            out.append(reply.content)
            messages += [reply, chat_message("go on")]
        return out

    async def team(base_url: str, api_key: str, pauses: list[float]) -> list[list[str]]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
            return await asyncio.gather(
                *(
                    agent(client, name, pause)
                    for name, pause in zip(("planner", "coder", "critic"), pauses)
                )
            )

    with capture_fixture(engine) as capture:
        answers, trajectories = [], []
        for pauses in ([0.0, 0.02, 0.04], [0.04, 0.02, 0.0]):
            session = capture.session()
            answers.append(
                asyncio.run(team(f"{capture.server.url}/v1", session.secret, pauses))
            )  # the session is identified by its key
            trajectories.append(rewarded(capture, session))
            capture.close_session(session)
        assert answers[0] == answers[1]
        for trajectory in trajectories:
            collated = collate([Group("a", (trajectory,))])
            assert len(trajectory.turns) == 9 and len(collated.sequences) == 3
            assert token_identity([Group("a", (trajectory,))], collated) == 1.0
            assert {turn.info["agent"] for turn in trajectory.turns} == {
                "planner",
                "coder",
                "critic",
            }


def test_a_stream_contains_the_text_of_the_full_response(engine: LocalEngine):
    with capture_fixture(engine) as capture:
        first, second = capture.session(), capture.session()
        ask: Any = {"model": "a", "messages": [chat_message("stream")], "max_tokens": 12, "n": 2}
        complete = client_of(capture, first).chat.completions.create(**ask)
        texts, reasons, usage, pieces = ["", ""], [None, None], None, 0
        for chunk in client_of(capture, second).chat.completions.create(
            **ask, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
                pieces += bool(choice.delta.content)
        assert (
            texts == [choice.message.content for choice in complete.choices]
            and texts[0] != texts[1]
        )
        assert (
            reasons == [choice.finish_reason for choice in complete.choices] == ["length", "length"]
        )
        assert (
            usage is not None and usage.completion_tokens == complete.usage.completion_tokens == 24
        )
        assert pieces > 2  # in chunks of four tokens
        assert len(collate([Group("a", (rewarded(capture, second),))]).sequences) == 2


def test_tools_are_called_and_answered_on_the_ids_that_were_sampled():
    with capture_fixture(LineEngine("Let me see.\n" + CALLS, "It is 3.", "no tool")) as capture:
        session = capture.session()
        client, messages = client_of(capture, session), [chat_message("1+2?")]
        reply = client.chat.completions.create(
            model="a", messages=messages, tools=[ADD], tool_choice="auto", max_tokens=None
        ).choices[0]
        assert reply.finish_reason == "length" or reply.message.tool_calls
        capture.close_session(session)

    agent = type(AGENT)("policy", RENDERER, AGENT.context, type(AGENT.sampling)(budget=200))
    with capture_fixture(
        LineEngine("Let me see.\n" + CALLS, "It is 3.", CALLS), agents={"policy": agent}
    ) as capture:
        session = capture.session()
        client, messages = client_of(capture, session), [chat_message("1+2?")]
        reply = client.chat.completions.create(model="a", messages=messages, tools=[ADD]).choices[0]
        (call,) = reply.message.tool_calls
        assert reply.finish_reason == "tool_calls" and reply.message.content == "Let me see."
        assert call.function.name == "add" and json.loads(call.function.arguments) == {
            "a": 1,
            "b": 2,
        }
        respaced = {
            "id": call.id,
            "type": "function",
            "function": {"name": "add", "arguments": '{"a":1,"b":2}'},
        }  # as clients do
        messages += [
            {"role": "assistant", "content": "Let me see.", "tool_calls": [respaced]},
            {"role": "tool", "tool_call_id": call.id, "name": "add", "content": "3"},
        ]
        assert (
            client.chat.completions.create(model="a", messages=messages, tools=[ADD])
            .choices[0]
            .message.content
            == "It is 3."
        )
        streamed = client.chat.completions.create(
            model="a", messages=messages, tools=[ADD], stream=True
        )
        deltas = [delta for chunk in streamed for delta in chunk.choices[0].delta.tool_calls or ()]
        assert [(d.index, d.function.name, json.loads(d.function.arguments)) for d in deltas] == [
            (0, "add", {"a": 1, "b": 2})
        ]
        trajectory = rewarded(capture, session)
        first, second, third = trajectory.calls
        assert trajectory.tools == (ADD,)
        assert trajectory.turns[0].action.raw_text == "Let me see.\n" + CALLS
        assert [turn.action.tool_calls[0].name for turn in trajectory.turns[::2]] == ["add"] * 2
        assert trajectory.turns[0].observation[0].tool_call_id == call.id
        assert (
            second.extends(first) and third.extends(first) and "tools" in decode_text(first.prompt)
        )
        assert [len(row) for row in collate([Group("a", (trajectory,))]).sequences] == [
            len(second.ids),
            len(third.ids),
        ]


def test_a_malformed_call_is_content():
    agent = type(AGENT)("policy", RENDERER, AGENT.context, type(AGENT.sampling)(budget=200))
    text = CALLS + "<tool_call>{</tool_call>"
    with capture_fixture(LineEngine(text), agents={"policy": agent}) as capture:
        session = capture.session()
        reply = client_of(capture, session).chat.completions.create(
            model="a", messages=[chat_message("1+2?")], tools=[ADD]
        )
        assert reply.choices[0].message.content == text
        assert reply.choices[0].message.tool_calls is None
        assert rewarded(capture, session).turns[0].action.text == text


def test_branches_retries_and_rewritten_history_train_each_token_once():
    with capture_fixture(LineEngine("one", "two", "again", "other", "new")) as capture:
        session = capture.session()
        client = client_of(capture, session)

        def ask(*messages: Any) -> Any:
            return client.chat.completions.create(model="a", messages=messages).choices[0].message

        root = ask(chat_message("q"))
        ask(chat_message("q"), root, chat_message("go on"))
        ask(chat_message("q"), root, chat_message("go on"))  # the same request again
        ask(chat_message("q"), root, chat_message("elsewhere"))
        ask(
            chat_message("q"), chat_message("ONE", "assistant"), chat_message("go on")
        )  # a message that was never sampled
        trajectory = rewarded(capture, session)
        group = Group("a", (trajectory,))
        collated = collate([group])
        assert [call.parent is None for call in trajectory.calls] == [
            True,
            False,
            False,
            False,
            True,
        ]
        assert len(collated.sequences) == 4 and token_identity([group], collated) == 1.0
        assert len(collated.token_index.token_sequence) == sum(
            len(call.action) for call in trajectory.calls
        )
        keys = {call.key for call in trajectory.calls}
        assert len(keys) == 5  # a retry has its own random numbers


def test_rewards_go_to_the_call_that_they_are_posted_for():
    with capture_fixture(LineEngine("one", "two", "three")) as capture:
        session = capture.session()
        client = client_of(capture, session)
        ids = [
            client.chat.completions.create(model=name, messages=[chat_message(name)]).id
            for name in "abc"
        ]
        with capture.client(session) as post:
            assert (
                post.post(
                    "/reward", json={"rewards": {"format": 0.25, "task": 0.5}, "call": ids[0]}
                ).status_code
                == 200
            )
            assert (
                post.post("/reward", json={"reward": 2.0, "agent": "b", "id": "once"}).status_code
                == 200
            )
            assert (
                post.post("/reward", json={"reward": 2.0, "agent": "b", "id": "once"}).status_code
                == 200
            )  # the response was lost
            assert post.post("/reward", json={"reward": -1.0}).status_code == 200
            for bad in (
                {"reward": "1"},
                {},
                {"reward": 1, "rewards": {"a": 2}},
                {"reward": True},
                {"reward": 1, "bonus": 1},
                [1],
            ):
                assert post.post("/reward", json=bad).status_code == 400
            assert post.post("/reward", content=b'{"reward": NaN}').status_code == 400
            assert post.post("/reward", json={"reward": 1, "agent": "nobody"}).status_code == 409
            assert post.post("/end").status_code == 200
            assert post.post("/reward", json={"reward": 1}).status_code == 410
        turns = session.trajectory().turns
        assert [turn.reward for turn in turns] == [0.75, 2.0, -1.0] and turns[0].rewards == {
            "format": 0.25,
            "task": 0.5,
        }
        assert [turn.terminated for turn in turns] == [False, False, True]


def test_what_is_not_supported_is_refused_and_never_ignored():
    with capture_fixture(LineEngine()) as capture:
        client = client_of(capture, capture.session())
        for wish in (
            {"presence_penalty": 0.5},
            {"response_format": {"type": "json_object"}},
            {"top_logprobs": 2, "logprobs": True},
            {"tools": [ADD], "tool_choice": "required"},
            {"temperature": 0},
            {"extra_body": {"no_such": 1}},
            {"n": 99},
            {"messages": [{"role": "user", "content": "x", "name": "bob"}]},
            {"messages": []},
            {"stop": ["a"] * 5},
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:"}}],
                    }
                ]
            },
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(
                    **{"model": "a", "messages": [chat_message("x")], **wish}
                )
            assert (
                refused.value.body["type"] == "invalid_request_error"
                and refused.value.body["message"]
            )
        assert [model.id for model in client.models.list()] == ["policy"]
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-1-test-wrong").models.list()
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="a", input="x")


def test_settings_of_a_request_are_those_of_its_call():
    with capture_fixture(LineEngine("a;b", "xyz", "x")) as capture:
        session = capture.session()
        client = client_of(capture, session)
        ask: Any = {"model": "a", "messages": [chat_message("x")]}
        cut_choice = client.chat.completions.create(
            **ask, stop=";", temperature=0.5, top_p=0.9, seed=3, extra_body={"top_k": 5}
        ).choices[0]
        assert cut_choice.message.content == "a"
        client.chat.completions.create(**ask, max_tokens=2, seed=3)
        client.chat.completions.create(**ask, max_completion_tokens=99)
        first, second, third = (call.sampling for call in rewarded(capture, session).calls)
        assert (first.temperature, first.top_p, first.top_k, first.stop_strings) == (
            0.5,
            0.9,
            5,
            (";",),
        )
        assert (second.budget, second.temperature, third.budget) == (
            2,
            1.0,
            12,
        )  # never more than the agent's own budget
        calls = session.trajectory().calls
        assert calls[0].key == calls[1].key != calls[2].key
    with capture_fixture(LineEngine("a"), allow_sampling_overrides=False) as capture:
        session = capture.session()
        client_of(capture, session).chat.completions.create(**ask, temperature=0, top_p=0.1)
        assert rewarded(capture, session).calls[0].sampling.temperature == 1.0


@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(calls=1)])
def test_limits_end_an_episode_with_their_stop_reason(limits: Limits):
    agent = type(AGENT)("policy", RENDERER, AGENT.context, AGENT.sampling, limits=limits)
    with capture_fixture(LineEngine("a", "b"), agents={"policy": agent}) as capture:
        session = capture.session()
        client = client_of(capture, session)
        client.chat.completions.create(model="a", messages=[chat_message("x")])
        with pytest.raises(openai.BadRequestError, match="limit of turns"):
            client.chat.completions.create(model="a", messages=[chat_message("y")])
        trajectory = rewarded(capture, session)
        assert (
            trajectory.stop_reason == "turns"
            and trajectory.turns[-1].truncated
            and not trajectory.turns[-1].terminated
        )


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_cancels_its_call(stream: bool):
    line_engine = LineEngine(None, "still here")
    with capture_fixture(line_engine) as capture:
        session = capture.session()
        client = client_of(capture, session, timeout=0.3)
        with pytest.raises(openai.APITimeoutError):
            list(
                client.chat.completions.create(
                    model="a", messages=[chat_message("x")], stream=stream
                )
            )
        capture.wait_until(lambda: line_engine.pending_generations[0].cancel_requested)
        client_of(capture, session).chat.completions.create(model="a", messages=[chat_message("x")])
        assert len(rewarded(capture, session).turns) == 1  # what was not delivered is not trained
        capture.close_session(session)
        assert line_engine.held_calls == []


def test_a_call_cancelled_in_progress_frees_its_row(engine: LocalEngine):
    before = engine.counts["sampled_tokens"]
    future = engine.submit(
        np.arange(5, dtype=np.int32), AGENT.sampling.__class__(budget=200), (1, 2)
    )
    future.on_tokens = lambda tokens: future.cancel()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="cancelled"):
        future.result(timeout=60)
    assert engine.counts["sampled_tokens"] - before <= 8 and not any(engine._slot_table.active)


def test_calls_end_with_their_timeout_and_with_their_episode():
    line_engine = LineEngine(None, None)
    with capture_fixture(line_engine, call_timeout=0.2) as capture:
        session = capture.session()
        with pytest.raises(openai.InternalServerError, match=r"took longer than 0\.2 s"):
            client_of(capture, session).chat.completions.create(
                model="a", messages=[chat_message("x")]
            )
        assert line_engine.pending_generations[0].cancel_requested
    with capture_fixture(line_engine) as capture:
        session = capture.session()

        async def end_soon() -> None:
            capture.loop.call_later(0.2, session.end)

        capture.run(end_soon())
        with pytest.raises(openai.APIStatusError) as over:
            client_of(capture, session).chat.completions.create(
                model="a", messages=[chat_message("x")]
            )
        assert over.value.status_code == 410 and line_engine.pending_generations[1].cancel_requested
