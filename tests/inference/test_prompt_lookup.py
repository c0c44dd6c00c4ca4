"""Decode steps that check guesses from the prompt sample what steps of one token do."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import (
    POSITIONS,
    VOCAB_SIZE,
    Conversation,
    action_tokens,
    call_contents,
    environment_tokens,
    play_concurrently,
    sampling_for,
    start_engine,
)

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.prompt_lookup import look_up
from agentrl_jax.inference.sampling import MAX_FED_TOKENS
from agentrl_jax.trajectories import Call, Sampling

SEEDS = range(12)


@pytest.fixture(scope="module")
def plain_engine() -> Iterator[LocalEngine]:
    engine = start_engine(spans=1, alternatives=2)
    yield engine
    engine.close()


@pytest.fixture(scope="module", params=[1, 3, MAX_FED_TOKENS + 1])
def engine(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    engine = start_engine(spans=1, alternatives=2, parked_slots=4, guesses=request.param)
    yield engine
    engine.close()


def check_same(calls: Sequence[Call], expected: Sequence[Call]) -> None:
    assert action_tokens(calls) == action_tokens(expected)
    for call, other in zip(calls, expected):
        assert call.finish_reason == other.finish_reason
        for name in ("sampler_logp", "entropy", "alternative_logp"):
            np.testing.assert_allclose(getattr(call, name), getattr(other, name), atol=2e-5)


def test_calls_are_those_without_guesses(engine: LocalEngine, plain_engine: LocalEngine):
    expected = [Conversation(plain_engine, seed, sampling_for).play(4) for seed in SEEDS]
    alone = [Conversation(engine, seed, sampling_for).play(4) for seed in SEEDS]
    for seed in SEEDS:
        check_same(alone[seed], expected[seed])
    crowd = [Conversation(engine, seed, sampling_for) for seed in SEEDS[: engine.num_slots]]
    play_concurrently(crowd, 4)
    for conversation, calls in zip(crowd, alone):
        assert call_contents(conversation.calls) == call_contents(calls)


def test_a_text_that_repeats_takes_fewer_programs(engine: LocalEngine, plain_engine: LocalEngine):
    prompt = np.tile(environment_tokens(1, 0), 4)
    for greedy in (True, False):
        sampling = Sampling(budget=36, temperature=0.0 if greedy else 0.3)
        programs, calls = [], []
        for each in (engine, plain_engine):
            before = each.counts["decodes"]
            calls.append(each.submit(prompt, sampling, (3,)).result(60))
            programs.append(each.counts["decodes"] - before)
        check_same(calls[:1], calls[1:])
        assert programs[0] <= 0.8 * programs[1]


@pytest.mark.parametrize("prompt", [POSITIONS - 9, POSITIONS - 2, POSITIONS - 1])
def test_a_context_is_filled_to_its_last_position(
    engine: LocalEngine, plain_engine: LocalEngine, prompt: int
):
    ids = np.resize(np.arange(3, dtype=np.int32), prompt)  # whatever follows has stood before
    sampling = Sampling(budget=POSITIONS, temperature=0.0)
    calls = [x.submit(ids, sampling, (0,)).result(60) for x in (engine, plain_engine)]
    check_same(calls[:1], calls[1:])
    assert calls[0].length == POSITIONS and calls[0].finish_reason == "context"


def test_what_follows_a_stop_string_is_dropped(engine: LocalEngine, plain_engine: LocalEngine):
    sampling = Sampling(budget=30, temperature=1.0, stop_strings=("a", "cd", "ee"))
    for seed in SEEDS:
        check_same(
            Conversation(engine, seed, sampling).play(2),
            Conversation(plain_engine, seed, sampling).play(2),
        )


@pytest.mark.parametrize("mesh", [{"data": 2}, {"data": 2, "tensor": 2}])
def test_an_engine_over_several_devices_samples_what_one_device_does(
    plain_engine: LocalEngine, mesh: dict[str, int]
):
    engine = start_engine(spans=1, alternatives=2, guesses=3, mesh=MeshConfig(**mesh))
    crowd = [Conversation(engine, seed, sampling_for) for seed in SEEDS]
    play_concurrently(crowd, 3)
    for conversation in crowd:
        expected = Conversation(plain_engine, conversation.seed, sampling_for).play(3)
        check_same(conversation.calls, expected)
    engine.close()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.integers(1, 5))
def test_what_is_looked_up_followed_the_last_two_tokens(text: list[int], guesses: int):
    length = len(text) - 1
    places = [i for i in range(1, length) if text[i - 1 : i + 1] == text[length - 1 :]]
    expected = text[places[-1] + 1 :][:guesses] if places else []
    history = np.pad(np.array(text), (0, 24 - len(text)), constant_values=VOCAB_SIZE)
    tokens, count = look_up(jnp.asarray(history[None]), jnp.array([length]), guesses)
    assert tokens[0, : int(count[0])].tolist() == expected
