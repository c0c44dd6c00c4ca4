"""A long observation fails its own episode, or is cut, and other environments go on meanwhile."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import ImagePart, Message, TextPart, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import AgentSession, EpisodeStart
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Sampling
from agentrl_jax.workers import worker_process
from agentrl_jax.workers.observation_limit import ObservationLimit
from agentrl_jax.workers.pool import EnvHandle, InlinePool, Task, WorkerPool
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.thread_pool import ThreadPool

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
TEN_MB = 10_000_000


def long_task(size: int, seed: int = 0) -> Task:
    how = f"long {size}" if size else ""
    return Task(faulty_envs.ENVIRONMENT_ID, seed, {"how": how})


def test_texts_are_cut_at_the_limit_and_what_follows_is_left_out():
    limit = ObservationLimit(8, truncate=True)
    exact = (user("abcd"), user("éé"))
    assert limit.apply(exact) == exact
    assert limit.apply((user("abcd"), user("abéé"), user("more"))) == (
        user("abcd"),
        user("abé\n[cut after 4 of 6 bytes]"),
    )
    image = ImagePart("data:image/png;base64,")
    parts = Message("user", (TextPart("abcdef"), image, TextPart("ghij")))
    assert limit.apply((parts,)) == (
        Message("user", (TextPart("abcdefgh\n[cut after 8 of 10 bytes]"), image)),
    )
    # A character is never cut in two.
    assert limit.apply((user("abcdefgé"),)) == (user("abcdefg\n[cut after 8 of 9 bytes]"),)
    with pytest.raises(EnvironmentFailure, match=r"9 bytes of text, where at most 8.*truncate"):
        ObservationLimit(8).apply((user("abcdefgé"),))


POOLS: Sequence[Callable[..., WorkerPool]] = (
    lambda **limit: InlinePool(**limit),
    lambda **limit: ThreadPool(1, **limit),
    lambda **limit: ProcessPool(1, **limit),
)


@pytest.mark.parametrize("make_pool", POOLS, ids=["inline", "thread", "process"])
def test_ten_megabytes_fail_their_own_episode_and_are_never_scored(
    make_pool: Callable[..., WorkerPool],
):
    tasks = [long_task(0, 1), long_task(TEN_MB, 2), long_task(0, 3)]
    engines, agents = {"policy": ScriptedEngine(RENDERER, "x")}, {"policy": AGENT}
    with Runtime(engines, agents, make_pool(), 0) as runtime:
        groups = runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
        failures = runtime.failures
    assert [[t.total_reward for t in group.trajectories] for group in groups] == [[3.0], [], [3.0]]
    assert [group.num_dropped for group in groups] == [0, 1, 0] and failures.counts["flood"] == 1
    assert "an observation of 10,000,007 bytes" in failures.last_messages["flood"]


@pytest.mark.parametrize("make_pool", POOLS, ids=["inline", "thread", "process"])
def test_a_long_observation_is_cut_by_option(make_pool: Callable[..., WorkerPool]):
    async def second_observation() -> str:
        pool = make_pool(observations=ObservationLimit(1000, truncate=True))
        env = EnvHandle(pool, long_task(TEN_MB))
        await pool.start()
        await env.reset()
        await env.step(Message("assistant", "a"))
        (message,), *_ = await env.step(Message("assistant", "a"))
        await pool.stop()
        return message.text

    expected = "turn 2\n" + "x" * 993 + "\n[cut after 1,000 of 10,000,007 bytes]"
    assert asyncio.run(second_observation()) == expected


def test_a_reply_of_too_many_values_is_a_flood():
    async def step_twice() -> None:
        env = EnvHandle(InlinePool(), Task(faulty_envs.ENVIRONMENT_ID, 0, {"how": "items"}))
        await env.reset()
        for _ in range(2):
            await env.step(Message("assistant", "a"))

    with pytest.raises(EnvironmentFailure, match="commas and brackets") as caught:
        asyncio.run(step_twice())
    assert caught.value.kind == "flood"


def test_long_replies_are_parsed_in_a_thread_and_stay_in_order(monkeypatch: pytest.MonkeyPatch):
    parsed: list[tuple[bool, bool]] = []  # whether long, whether in the event loop's thread

    def loads(line: bytes) -> Any:
        in_loop = threading.current_thread() is threading.main_thread()
        parsed.append((len(line) > worker_process.LARGE_LINE, in_loop))
        if not in_loop:
            time.sleep(0.2)  # short replies that follow arrive meanwhile
        return json.loads(line)

    async def play() -> list[int]:
        pool = ProcessPool(1, observations=ObservationLimit(2 * TEN_MB))
        await pool.start()
        envs = [EnvHandle(pool, long_task(size)) for size in (TEN_MB, 0)]
        for env in envs:
            await env.reset()
        sizes = []
        for _ in range(3):
            results = await asyncio.gather(*(env.step(Message("assistant", "a")) for env in envs))
            sizes += [len(messages[0].text) for messages, *_ in results]
        await pool.stop()
        return sizes

    monkeypatch.setattr(worker_process, "_parse_line", loads)
    assert asyncio.run(play()) == [7, 7, 7 + TEN_MB, 7, 7, 7]
    assert (True, False) in parsed and all(is_long != in_loop for is_long, in_loop in parsed)


def test_a_long_opening_is_tokenized_while_the_event_loop_goes_on():
    text = "the quick brown fox " * 5_000
    start = time.perf_counter()
    RENDERER.codec.encode_escaped(text)
    seconds = time.perf_counter() - start  # what it would take on the event loop

    async def act() -> float:
        session = AgentSession(
            AGENT, ScriptedEngine(RENDERER, "x"), (0, 0, 0, 0), EpisodeStart((user(text),)), 60.0
        )
        action = asyncio.ensure_future(session.act())
        longest = 0.0
        while not action.done():
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - start)
        assert len(session.current_calls[0].prompt) == len(text)
        return longest

    # The best of three: a busy machine stops the loop too, but seldom for so long.
    assert any(asyncio.run(act()) < seconds / 2 for _ in range(3))
