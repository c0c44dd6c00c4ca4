"""Clients of the capture endpoint that were not made for it: OpenAI's own, sync, async and streaming, and those that send rubbish."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

openai = pytest.importorskip("openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from served import AGENT, RENDERER, Served, Speaker, local_engine, served, text  # noqa: E402

from agentrl_jax.capture.session import Session  # noqa: E402
from agentrl_jax.local_engine import LocalEngine  # noqa: E402
from agentrl_jax.rows import collate, token_identity  # noqa: E402
from agentrl_jax.speaking import Limits  # noqa: E402
from agentrl_jax.trajectories import Group, Trajectory  # noqa: E402

ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
CALLS = '<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = local_engine()
    yield engine
    engine.close()


def client_of(here: Served, session: Session, **fields: Any) -> Any:
    here.clients.append(openai.OpenAI(base_url=f"{here.server.url_of(session)}/v1", api_key=session.secret, max_retries=0, **fields))
    return here.clients[-1]


def said(content: str, role: str = "user") -> Any:
    return {"role": role, "content": content}


def rewarded(here: Served, session: Session, **fields: Any) -> Trajectory:
    with here.client(session) as post:
        post.post("/reward", json={"reward": 1.0, "final": True, **fields}).raise_for_status()
    return session.trajectory()


def test_a_conversation_with_a_real_engine_is_one_row_of_exactly_what_was_sampled(engine: LocalEngine):
    with served(engine) as here:
        session = here.session()
        client, messages = client_of(here, session), [said("be brief", "system"), said("hello")]
        for turn in range(4):
            reply = client.chat.completions.create(model="gpt-9", messages=messages, logprobs=True).choices[0]
            messages += [reply.message, said(f"turn {turn}")]
        trajectory = rewarded(here, session, success=True)
        (row,) = collate([Group("a", (trajectory,))]).rows
        assert token_identity([Group("a", (trajectory,))], collate([Group("a", (trajectory,))])) == 1.0
        assert [call.parent is not None for call in trajectory.calls] == [False, True, True, True]
        assert int(row.action_mask.sum()) == sum(len(call.action) for call in trajectory.calls)
        assert [x.logprob for x in reply.logprobs.content] == pytest.approx(trajectory.calls[-1].sampler_logp.tolist())
        assert text(row.tokens) == text(RENDERER.render([*trajectory.messages]).ids)[: len(text(row.tokens))]
        assert trajectory.success and trajectory.total_reward == 1 and trajectory.turns[-1].terminated


def test_async_agents_side_by_side_sample_the_same_whoever_is_first(engine: LocalEngine):
    async def agent(client: Any, name: str, pause: float) -> list[str]:
        messages, out = [said(f"you are {name}")], []
        for _ in range(3):
            await asyncio.sleep(pause)
            reply = (await client.chat.completions.create(model=name, messages=messages)).choices[0].message
            out.append(reply.content)
            messages += [reply, said("go on")]
        return out

    async def team(base_url: str, api_key: str, pauses: list[float]) -> list[list[str]]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
            return await asyncio.gather(*(agent(client, name, pause) for name, pause in zip(("planner", "coder", "critic"), pauses)))

    with served(engine) as here:
        heard, trajectories = [], []
        for pauses in ([0.0, 0.02, 0.04], [0.04, 0.02, 0.0]):
            session = here.session()
            heard.append(asyncio.run(team(f"{here.server.url}/v1", session.secret, pauses)))  # found by its key alone
            trajectories.append(rewarded(here, session))
            here.close_session(session)
        assert heard[0] == heard[1]
        for trajectory in trajectories:
            collated = collate([Group("a", (trajectory,))])
            assert len(trajectory.turns) == 9 and len(collated.rows) == 3
            assert token_identity([Group("a", (trajectory,))], collated) == 1.0
            assert {turn.info["agent"] for turn in trajectory.turns} == {"planner", "coder", "critic"}


def test_a_stream_says_what_the_whole_answer_would(engine: LocalEngine):
    with served(engine) as here:
        first, second = here.session(), here.session()
        ask: Any = {"model": "a", "messages": [said("stream")], "max_tokens": 12, "n": 2}
        whole = client_of(here, first).chat.completions.create(**ask)
        texts, reasons, usage, pieces = ["", ""], [None, None], None, 0
        for chunk in client_of(here, second).chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
                pieces += bool(choice.delta.content)
        assert texts == [choice.message.content for choice in whole.choices] and texts[0] != texts[1]
        assert reasons == [choice.finish_reason for choice in whole.choices] == ["length", "length"]
        assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens == 24
        assert pieces > 2  # in bursts of four tokens, not at once
        assert len(collate([Group("a", (rewarded(here, second),))]).rows) == 2


def test_tools_are_called_and_answered_on_the_ids_that_were_sampled():
    with served(Speaker("Let me see.\n" + CALLS, "It is 3.", "no tool")) as here:
        session = here.session()
        client, messages = client_of(here, session), [said("1+2?")]
        reply = client.chat.completions.create(model="a", messages=messages, tools=[ADD], tool_choice="auto", max_tokens=None).choices[0]
        assert reply.finish_reason == "length" or reply.message.tool_calls
        here.close_session(session)

    agent = type(AGENT)("policy", RENDERER, AGENT.context, type(AGENT.sampling)(budget=200))
    with served(Speaker("Let me see.\n" + CALLS, "It is 3.", CALLS), agents={"policy": agent}) as here:
        session = here.session()
        client, messages = client_of(here, session), [said("1+2?")]
        reply = client.chat.completions.create(model="a", messages=messages, tools=[ADD]).choices[0]
        (call,) = reply.message.tool_calls
        assert reply.finish_reason == "tool_calls" and reply.message.content == "Let me see."
        assert call.function.name == "add" and json.loads(call.function.arguments) == {"a": 1, "b": 2}
        respaced = {"id": call.id, "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}  # as clients do
        messages += [
            {"role": "assistant", "content": "Let me see.", "tool_calls": [respaced]},
            {"role": "tool", "tool_call_id": call.id, "name": "add", "content": "3"},
        ]
        assert client.chat.completions.create(model="a", messages=messages, tools=[ADD]).choices[0].message.content == "It is 3."
        streamed = client.chat.completions.create(model="a", messages=messages, tools=[ADD], stream=True)
        deltas = [delta for chunk in streamed for delta in chunk.choices[0].delta.tool_calls or ()]
        assert [(d.index, d.function.name, json.loads(d.function.arguments)) for d in deltas] == [(0, "add", {"a": 1, "b": 2})]
        trajectory = rewarded(here, session)
        first, second, third = trajectory.calls
        assert second.extends(first) and third.extends(first) and "tools" in text(first.prompt)
        assert [len(row) for row in collate([Group("a", (trajectory,))]).rows] == [len(second.ids), len(third.ids)]


def test_branches_retries_and_rewritten_history_train_each_token_once():
    with served(Speaker("one", "two", "again", "other", "new")) as here:
        session = here.session()
        client = client_of(here, session)

        def ask(*messages: Any) -> Any:
            return client.chat.completions.create(model="a", messages=messages).choices[0].message

        root = ask(said("q"))
        ask(said("q"), root, said("go on"))
        ask(said("q"), root, said("go on"))  # the same once more
        ask(said("q"), root, said("elsewhere"))
        ask(said("q"), said("ONE", "assistant"), said("go on"))  # history that was never said
        trajectory = rewarded(here, session)
        group = Group("a", (trajectory,))
        collated = collate([group])
        assert [call.parent is None for call in trajectory.calls] == [True, False, False, False, True]
        assert len(collated.rows) == 4 and token_identity([group], collated) == 1.0
        assert len(collated.indices.token_row) == sum(len(call.action) for call in trajectory.calls)
        keys = {call.key for call in trajectory.calls}
        assert len(keys) == 5  # a retry draws its own numbers


def test_rewards_go_to_the_call_that_they_are_posted_for():
    with served(Speaker("one", "two", "three")) as here:
        session = here.session()
        client = client_of(here, session)
        ids = [client.chat.completions.create(model=name, messages=[said(name)]).id for name in "abc"]
        with here.client(session) as post:
            assert post.post("/reward", json={"rewards": {"format": 0.25, "task": 0.5}, "call": ids[0]}).status_code == 200
            assert post.post("/reward", json={"reward": 2.0, "agent": "b", "id": "once"}).status_code == 200
            assert post.post("/reward", json={"reward": 2.0, "agent": "b", "id": "once"}).status_code == 200  # its answer was lost
            assert post.post("/reward", json={"reward": -1.0}).status_code == 200
            for bad in ({"reward": "1"}, {}, {"reward": 1, "rewards": {"a": 2}}, {"reward": True}, {"reward": 1, "bonus": 1}, [1]):
                assert post.post("/reward", json=bad).status_code == 400
            assert post.post("/reward", content=b'{"reward": NaN}').status_code == 400
            assert post.post("/reward", json={"reward": 1, "agent": "nobody"}).status_code == 409
            assert post.post("/end").status_code == 200
            assert post.post("/reward", json={"reward": 1}).status_code == 410
        turns = session.trajectory().turns
        assert [turn.reward for turn in turns] == [0.75, 2.0, -1.0] and turns[0].rewards == {"format": 0.25, "task": 0.5}
        assert [turn.terminated for turn in turns] == [False, False, True]


def test_what_is_not_supported_is_refused_and_never_ignored():
    with served(Speaker()) as here:
        client = client_of(here, here.session())
        for wish in (
            {"presence_penalty": 0.5}, {"response_format": {"type": "json_object"}}, {"top_logprobs": 2, "logprobs": True},
            {"tools": [ADD], "tool_choice": "required"}, {"temperature": 0}, {"extra_body": {"no_such": 1}}, {"n": 99},
            {"messages": [{"role": "user", "content": "x", "name": "bob"}]}, {"messages": []}, {"stop": ["a"] * 5},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        ):  # fmt: skip
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(**{"model": "a", "messages": [said("x")], **wish})
            assert refused.value.body["type"] == "invalid_request_error" and refused.value.body["message"]
        assert [model.id for model in client.models.list()] == ["policy"]
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-1-test-wrong").models.list()
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="a", input="x")


def test_settings_of_a_request_are_those_of_its_call():
    with served(Speaker("a;b", "xyz", "x")) as here:
        session = here.session()
        client = client_of(here, session)
        ask: Any = {"model": "a", "messages": [said("x")]}
        cut = client.chat.completions.create(**ask, stop=";", temperature=0.5, top_p=0.9, seed=3, extra_body={"top_k": 5}).choices[0]
        assert cut.message.content == "a"
        client.chat.completions.create(**ask, max_tokens=2, seed=3)
        client.chat.completions.create(**ask, max_completion_tokens=99)
        first, second, third = (call.sampling for call in rewarded(here, session).calls)
        assert (first.temperature, first.top_p, first.top_k, first.stop_strings) == (0.5, 0.9, 5, (";",))
        assert (second.budget, second.temperature, third.budget) == (2, 1.0, 12)  # never more than the run's own
        calls = session.trajectory().calls
        assert calls[0].key == calls[1].key != calls[2].key
    with served(Speaker("a"), obey=False) as here:
        session = here.session()
        client_of(here, session).chat.completions.create(**ask, temperature=0, top_p=0.1)
        assert rewarded(here, session).calls[0].sampling.temperature == 1.0


def test_limits_end_an_episode_with_their_own_reason():
    agent = type(AGENT)("policy", RENDERER, AGENT.context, AGENT.sampling, limits=Limits(turns=1))
    with served(Speaker("a", "b"), agents={"policy": agent}) as here:
        session = here.session()
        client = client_of(here, session)
        client.chat.completions.create(model="a", messages=[said("x")])
        with pytest.raises(openai.BadRequestError, match="limit of turns"):
            client.chat.completions.create(model="a", messages=[said("y")])
        trajectory = rewarded(here, session)
        assert trajectory.stop_reason == "turns" and trajectory.turns[-1].truncated and not trajectory.turns[-1].terminated


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_gives_its_call_up(stream: bool):
    speaker = Speaker(None, "still here")
    with served(speaker) as here:
        session = here.session()
        client = client_of(here, session, timeout=0.3)
        with pytest.raises(openai.APITimeoutError):
            list(client.chat.completions.create(model="a", messages=[said("x")], stream=stream))
        here.until(lambda: speaker.waiting[0].unwanted)
        client_of(here, session).chat.completions.create(model="a", messages=[said("x")])
        assert len(rewarded(here, session).turns) == 1  # what nobody heard is not trained
        here.close_session(session)
        assert speaker.held == []


def test_a_call_that_is_given_up_at_work_frees_its_row(engine: LocalEngine):
    before = engine.counts["sampled_tokens"]
    future = engine.submit(np.arange(5, dtype=np.int32), AGENT.sampling.__class__(budget=200), (1, 2))
    future.heard = lambda tokens: future.cancel()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="given up"):
        future.result(timeout=60)
    assert engine.counts["sampled_tokens"] - before <= 8 and not any(engine._places.working)


def test_calls_end_with_their_deadline_and_with_their_episode():
    speaker = Speaker(None, None)
    with served(speaker, turn=0.2) as here:
        session = here.session()
        with pytest.raises(openai.InternalServerError, match=r"took longer than 0\.2 s"):
            client_of(here, session).chat.completions.create(model="a", messages=[said("x")])
        assert speaker.waiting[0].unwanted
    with served(speaker) as here:
        session = here.session()

        async def end_soon() -> None:
            here.loop.call_later(0.2, session.end)

        here.run(end_soon())
        with pytest.raises(openai.APIStatusError) as over:
            client_of(here, session).chat.completions.create(model="a", messages=[said("x")])
        assert over.value.status_code == 410 and speaker.waiting[1].unwanted
