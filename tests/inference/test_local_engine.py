"""The local engine: tokens, log-probs, limits of calls, KV caches, updates of weights, errors."""

import dataclasses
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import (
    OTHER_PARAMS,
    PARAMS,
    POLICY,
    POSITIONS,
    VOCAB_SIZE,
    Conversation,
    action_tokens,
    call_contents,
    check_sampler_logp,
    decode_text,
    environment_tokens,
    play_concurrently,
    prompt_tokens_computed,
    sampling_for,
    start_engine,
)  # fmt: skip
from support.fixtures import (
    device_mesh,
    make_trajectory,
    make_turn,
    record_compilations,
    unpacked_logp,
)
from support.untimed import call_time

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.inference import device_state
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.programs import Programs
from agentrl_jax.inference.sampling import (
    MAX_FED_TOKENS,
    MAX_STOP_IDS,
    RowSamplingParams,
    filter_logp,
    sample,
)
from agentrl_jax.keys import key_data
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.packing import pack
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.trajectories import Sampling


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = start_engine(spans=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def other_engine() -> Iterator[LocalEngine]:
    """Other sizes in every respect."""
    sizes = {"rows": 9, "prefill_chunk": 16, "prefill_tokens": 32}
    engine = start_engine(**sizes, min_decode_steps=8, max_decode_steps=8, spans=2)
    yield engine
    engine.close()


EMPTY_CHUNK = DecodeChunk(
    tokens=np.zeros((4, 0), np.int32),
    logp=np.zeros((4, 0), np.float32),
    entropy=np.zeros((4, 0), np.float32),
    alternatives=np.zeros((4, 0, 0), np.int32),
    alternative_logp=np.zeros((4, 0, 0), np.float32),
    num_fed=np.zeros(4, np.int32),
    num_written=np.zeros(4, np.int32),
)


@pytest.fixture
def stub_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    """An engine whose programs do nothing, so that nothing is compiled and no call ever ends."""
    programs = Programs(
        lambda _, cache, *__: (cache, jnp.zeros(4, jnp.int32)),
        lambda _, cache, *__: (cache, EMPTY_CHUNK),
        lambda *caches: caches[:2],
    )  # type: ignore
    monkeypatch.setattr(device_state, "compile_programs", lambda *_: programs)
    engine = LocalEngine(POLICY, EngineConfig(rows=4, positions=8, batching_delay=0.0), PARAMS)
    yield engine
    engine.close()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_the_sampler_and_the_learner_agree_over_many_turns(engine: LocalEngine, temperature: float):
    rows = []
    for seed in range(4):
        calls = Conversation(engine, seed, Sampling(budget=7, temperature=temperature)).play(5)
        rows += sequences_of(make_trajectory(*(make_turn([call]) for call in calls)))
    assert len(rows) == 4
    layout = pack(rows, POSITIONS, 1)
    logp, entropy = jax.jit(lambda p, b: token_logp(POLICY, p, b))(
        PARAMS, layout.to_batch(np.zeros((layout.num_bins, POSITIONS), np.float32))
    )
    for seed, (row, b, first) in enumerate(zip(rows, layout.bin_index, layout.bin_offset)):
        span = slice(first, first + len(row))
        np.testing.assert_allclose(
            row.sampler_logp[row.action_mask], np.asarray(logp)[b, span][row.action_mask], atol=1e-5
        )
        check_sampler_logp(row)
        entropies = np.concatenate(
            [
                c.entropy
                for c in Conversation(engine, seed, Sampling(7, temperature)).play(5)
                if c.entropy is not None
            ]
        )
        np.testing.assert_allclose(
            entropies, np.asarray(entropy)[b, span][row.action_mask], atol=1e-5
        )


def test_greedy_takes_the_most_likely_token_of_a_full_forward_pass(engine: LocalEngine):
    calls = Conversation(engine, 7, Sampling(budget=6, temperature=0.0)).play(4)
    ids = calls[-1].ids[None]
    inputs = PolicyInputs(
        tokens=ids,
        positions=np.arange(ids.shape[1], dtype=np.int32)[None],
        segment_ids=np.ones_like(ids),
    )
    best = np.asarray(
        jnp.argmax(POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden), axis=-1)
    )[0]
    for call in calls:
        before = len(call.prompt) - 1
        assert call.action.tolist() == best[before : before + len(call.action)].tolist()
        assert not call.sampler_logp.any() and call.entropy is not None and not call.entropy.any()


def test_a_rerun_is_the_same_to_the_bit(engine: LocalEngine):
    first, again = (call_contents(Conversation(engine, 11, sampling_for).play(5)) for _ in range(2))
    assert first == again


def test_other_rows_do_not_change_a_call(engine: LocalEngine):
    alone = [call_contents(Conversation(engine, seed, sampling_for).play(5)) for seed in range(8)]
    crowd = [Conversation(engine, seed, sampling_for) for seed in range(8)]
    play_concurrently(crowd[:4], 5)
    play_concurrently(crowd[4:], 5)
    assert [action_tokens(c.calls) for c in crowd] == [[x[1] for x in calls] for calls in alone]
    assert [call_contents(c.calls) for c in crowd] == alone


def test_filters_of_other_rows_do_not_change_a_call(engine: LocalEngine):
    alone = call_contents(Conversation(engine, 5, Sampling(budget=9)).play(4))
    plain, filtered = (
        Conversation(engine, 5, Sampling(budget=9)),
        Conversation(engine, 6, Sampling(budget=9, top_k=3, top_p=0.8)),
    )
    play_concurrently([plain, filtered], 4)
    assert call_contents(plain.calls) == alone


def test_the_row_does_not_matter(engine: LocalEngine):
    alone = call_contents(Conversation(engine, 12, sampling_for).play(4))
    for num_blocked in range(1, 4):
        blockers = [Conversation(engine, 50 + i, Sampling(budget=1)) for i in range(num_blocked)]
        for blocker in blockers:
            blocker.play_turn()  # keeps the first free row
        assert call_contents(Conversation(engine, 12, sampling_for).play(4)) == alone
        for blocker in blockers:
            engine.release(blocker.calls[-1])


@pytest.mark.slow
def test_decode_steps_chunks_rows_and_spans_do_not_matter(
    engine: LocalEngine, other_engine: LocalEngine
):
    smallest = start_engine(rows=1, prefill_chunk=1, min_decode_steps=1, max_decode_steps=1)
    for seed in range(20, 28):
        expected, *other_runs = (
            Conversation(e, seed, sampling_for).play(5) for e in (engine, other_engine, smallest)
        )
        for calls in other_runs:
            # Programs of other shapes sum in another order: the same tokens, log-probs as near as
            # the learner's.
            assert action_tokens(calls) == action_tokens(expected) and [
                c.finish_reason for c in calls
            ] == [c.finish_reason for c in expected]
            for a, b in zip(calls, expected):
                np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)
    smallest.close()


def test_members_of_a_group_differ(engine: LocalEngine):
    prompt = environment_tokens(0, 0)
    futures = [
        engine.submit(prompt, Sampling(budget=8), (0, 0, 0, member, 0, 0)) for member in range(8)
    ]
    written = {tuple(future.result(timeout=60).action.tolist()) for future in futures}
    assert len(written) == 8


def test_every_part_of_a_key_changes_the_random_numbers():
    keys = [
        (1, 2, 3, 4, 5, 6),
        *(tuple(int(i == j) + x for j, x in enumerate((1, 2, 3, 4, 5, 6))) for i in range(6)),
    ]
    assert len({key_data(key).tobytes() for key in keys}) == 7
    assert key_data((1, 23)).tobytes() != key_data((12, 3)).tobytes()


def filtered_by_loop(
    logits: np.ndarray, top_k: int, top_p: float, min_p: float
) -> np.ndarray | None:
    """Probabilities after the filters, or None where a threshold is too close to call."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    order, is_kept, mass = np.argsort(-p, kind="stable"), np.zeros(len(p), bool), 0.0
    for rank, token in enumerate(order):
        if min(abs(mass - top_p), abs(p[token] - min_p * p.max())) < 1e-6 and rank:
            return None
        is_kept[token] = (
            (top_k == 0 or rank < top_k) and mass < top_p and p[token] >= min_p * p.max()
        )
        mass += p[token]
    return np.where(is_kept, p, 0) / p[is_kept].sum()


filters = st.tuples(
    st.sampled_from([0, 0, 1, 2, 3, 5, 11, 12, 50]), st.floats(0.01, 1.0), st.floats(0.0, 1.0)
)


@given(
    sampling_params=st.lists(filters, min_size=8, max_size=8),
    seed=st.integers(0, 9999),
    scale=st.sampled_from([0.1, 1.0, 4.0]),
)
@settings(max_examples=60, deadline=None)
def test_filters_are_those_of_a_loop_over_tokens(sampling_params: list, seed: int, scale: float):
    logits = scale * np.random.default_rng(seed).normal(size=(8, 12))
    # every combination of filters that are off
    sampling_params = [
        (k if i & 1 else 0, p if i & 2 else 1.0, m if i & 4 else 0.0)
        for i, (k, p, m) in enumerate(sampling_params)
    ]
    k, p, m = (
        np.asarray(column, dtype)
        for column, dtype in zip(zip(*sampling_params), (np.int32, np.float32, np.float32))
    )
    logp = np.asarray(filtered_jit(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)), k, p, m))
    for row, (top_k, top_p, min_p) in enumerate(sampling_params):
        expected = filtered_by_loop(logits[row], top_k, top_p, min_p)
        if expected is not None:
            np.testing.assert_allclose(np.exp(logp[row]), expected, atol=1e-6)


filtered_jit = jax.jit(filter_logp)


def test_ties_are_kept_and_at_least_one_token_stays():
    logp = jnp.log(jnp.array([[0.3, 0.3, 0.3, 0.1]]))
    top_1, half = jnp.array([1]), jnp.array([0.5])
    nothing = jnp.array([0]), jnp.array([1.0]), jnp.array([0.0])
    assert np.isfinite(filter_logp(logp, top_1, nothing[1], nothing[2])).tolist() == [
        [True, True, True, False]
    ]
    assert np.isfinite(filter_logp(logp, nothing[0], half, nothing[2])).tolist() == [
        [True, True, True, False]
    ]
    sharp = jnp.log(jnp.array([[0.4, 0.3, 0.2, 0.1]]))
    for k, p, m in ((1, 1.0, 0.0), (0, 1e-6, 0.0), (0, 1.0, 1.0), (1, 1e-6, 1.0)):
        assert np.exp(
            filter_logp(sharp, jnp.array([k]), jnp.array([p]), jnp.array([m]))
        ).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def row_params(
    keys: np.ndarray, written: np.ndarray, temperature: float, **fields: Any
) -> RowSamplingParams:
    n = len(keys)
    zeros, unit = np.zeros(n, np.int32), np.ones(n, np.float32)
    columns = {
        "top_k": zeros,
        "top_p": unit,
        "min_p": 0 * unit,
        **{k: np.full(n, v, np.asarray(v).dtype) for k, v in fields.items()},
    }
    return RowSamplingParams(
        last_token=zeros,
        length=zeros,
        remaining=zeros + 1,
        written=written,
        key=keys,
        temperature=temperature * unit,
        pending=zeros,
        pending_tokens=np.zeros((n, MAX_FED_TOKENS), np.int32),
        stop_ids=np.full((n, MAX_STOP_IDS), -1, np.int32),
        rope_delta=zeros,
        **columns,
    )


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.6, 0), (1.0, 4)])
@pytest.mark.parametrize("vary", ["key", "position"])
def test_sampled_frequencies_are_the_probabilities(vary: str, temperature: float, top_k: int):
    n, logits = 20_000, np.random.default_rng(0).normal(size=8)
    indices = np.arange(n, dtype=np.int32)
    keys = np.stack([key_data((0, i if vary == "key" else 0)) for i in range(n)])
    written = np.zeros(n, np.int32) if vary == "key" else indices
    sampling_params = row_params(keys, written, temperature, top_k=np.int32(top_k))
    new = jax.jit(sample)(jnp.tile(jnp.asarray(logits, jnp.float32), (n, 1)), sampling_params)
    token, logp, entropy = map(np.asarray, (new.token, new.logp, new.entropy))
    p = np.exp(logits / temperature)
    p = np.where(p >= np.sort(p)[-top_k], p, 0) if top_k else p
    p /= p.sum()
    counts = np.bincount(token, minlength=8)
    assert not counts[p == 0].any()
    assert scipy.stats.chisquare(counts[p > 0], n * p[p > 0]).pvalue > 0.01
    np.testing.assert_allclose(logp, np.log(p[token]), atol=1e-5)
    np.testing.assert_allclose(entropy, scipy.stats.entropy(p), atol=1e-5)


def test_a_stop_id_ends_a_call_and_is_part_of_it(engine: LocalEngine):
    for seed in range(8):
        free = Conversation(engine, seed, Sampling(budget=20)).play(1)[0]
        stops = (int(free.action[9]), int(free.action[12]))
        first = next(i for i, token in enumerate(free.action) if token in stops)
        call = Conversation(engine, seed, Sampling(budget=20, stop_ids=stops)).play(1)[0]
        assert (
            call.finish_reason == "stop"
            and call.action.tolist() == free.action[: first + 1].tolist()
        )
        assert call.sampler_logp.tolist() == free.sampler_logp[: first + 1].tolist()


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 17])
def test_a_budget_is_exact(engine: LocalEngine, budget: int):
    call = Conversation(engine, 1, Sampling(budget=budget)).play(1)[0]
    assert (
        call.finish_reason == "budget"
        and len(call.action) == len(call.sampler_logp) == len(call.version) == budget
    )


@pytest.mark.parametrize("prompt", [60, 62, 63, 64, 65, 100])
def test_a_context_is_filled_to_its_last_position(engine: LocalEngine, prompt: int):
    ids = np.random.default_rng(prompt).integers(0, VOCAB_SIZE, prompt, np.int32)
    call = engine.submit(ids, Sampling(budget=50), (prompt,)).result(timeout=60)
    engine.release(call)
    assert call.finish_reason == "context" and len(call.action) == max(0, POSITIONS - prompt)
    if len(call.action):
        (row,) = sequences_of(make_trajectory(make_turn([call])))
        np.testing.assert_allclose(
            call.sampler_logp,
            unpacked_logp(POLICY, PARAMS, row, POSITIONS)[row.action_mask],
            atol=1e-5,
        )


def test_the_times_of_calls_are_ordered_and_a_row_runs_one_call_at_a_time(engine: LocalEngine):
    before = time.time() - 0.01
    futures = [
        engine.submit(np.arange(9, dtype=np.int32) % 5, Sampling(budget=6), (0, i))
        for i in range(10)
    ]
    calls = [future.result(timeout=30) for future in futures]
    times = [call_time(call) for call in calls]
    for call in calls:
        engine.release(call)
    assert all(
        before < t.submitted <= t.admitted <= t.prefilled <= t.finished < time.time() + 0.01
        for t in times
    )
    assert {t.slot for t in times} == set(range(4)) and len(set(times)) == 10
    assert any(t.admitted > min(other.finished for other in times) for t in times)  # had to wait
    for slot in range(4):
        in_slot = sorted((t.admitted, t.finished) for t in times if t.slot == slot)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(in_slot))
    forced = Sampling(budget=2, forced=(1, 2))  # nothing is left to sample
    call = engine.submit(np.arange(3, dtype=np.int32), forced, (0,)).result(timeout=30)
    engine.release(call)
    t = call_time(call)
    assert t.submitted <= t.admitted == t.prefilled <= t.finished


@dataclasses.dataclass
class LateArray:
    """An array that takes a while to be there."""

    seconds: float

    def block_until_ready(self) -> None:
        time.sleep(self.seconds)


def test_prefill_and_decoding_are_timed_apart(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    programs, device_get = engine._device_state._programs, jax.device_get

    def late_prefill(*arguments: Any) -> Any:
        return programs.prefill(*arguments)[0], LateArray(0.3)

    def late_device_get(chunk: Any) -> Any:
        time.sleep(0.1)
        return device_get(chunk)

    late = Programs(late_prefill, programs.decode, programs.copy_slots)
    monkeypatch.setattr(engine._device_state, "_programs", late)
    monkeypatch.setattr(engine._device_state, "_last_prefill", None)  # restored after the test
    monkeypatch.setattr(jax, "device_get", late_device_get)
    prompt = np.arange(MAX_FED_TOKENS + 9, dtype=np.int32) % 7
    call = engine.submit(prompt, Sampling(budget=1), (1,)).result(timeout=30)
    engine.release(call)
    t = call_time(call)
    assert t.prefilled - t.admitted >= 0.3 and 0.1 <= t.finished - t.prefilled < 0.3


def test_what_follows_a_stop_string_is_dropped_from_action_and_cache(engine: LocalEngine):
    for seed in range(6):
        free = Conversation(engine, seed, Sampling(budget=18)).play(1)[0]
        stop = decode_text(free.action[4:6].tolist())
        end = decode_text(free.action.tolist()).index(stop) + 2
        calls = Conversation(
            engine, seed, Sampling(budget=18, stop_strings=("never there", stop))
        ).play(3)
        assert (
            calls[0].finish_reason == "stop"
            and calls[0].action.tolist() == free.action[:end].tolist()
        )
        assert len(calls[0].sampler_logp) == len(calls[0].version) == end
        # The next turns do not attend to what was dropped.
        (row,) = sequences_of(make_trajectory(*(make_turn([call]) for call in calls)))
        check_sampler_logp(row)


def test_each_token_is_prefilled_once(engine: LocalEngine):
    before = engine.counts
    calls = Conversation(engine, 3, Sampling(budget=4)).play(6)
    # The last token of a prompt is fed by the decode program, without being counted; so is each
    # token that was sampled.
    num_environment_tokens = sum(len(environment_tokens(3, turn)) for turn in range(6))
    assert prompt_tokens_computed(engine, before) == num_environment_tokens - 1
    assert engine.counts["sampled_tokens"] - before["sampled_tokens"] == sum(
        len(call.action) for call in calls
    )


def test_a_prefill_program_takes_as_many_rows_as_have_its_tokens():
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, VOCAB_SIZE, 14, np.int32) for _ in range(4)]

    def sample(e: LocalEngine, chosen: Sequence[int]) -> list[Any]:
        with e._between_steps():
            futures = [e.submit(prompts[i], Sampling(budget=4), (i,)) for i in chosen]
        calls = [future.result() for future in futures]
        for call in calls:
            e.release(call)
        return call_contents(calls)

    for prefill_tokens, rows, programs in ((0, (4, 4), 4), (8, (2, 1), 8)):
        e = start_engine(spans=1, prefill_tokens=prefill_tokens)
        assert e._device_state.prefill_rows == rows
        together = sample(e, range(4))
        # 13 of 14 tokens are prefilled in chunks of four.
        assert e.counts["prefills"] == programs and e.counts["prefill_tokens"] == 4 * 13
        assert [sample(e, [i])[0] for i in reversed(range(4))][::-1] == together
        e.close()


def test_without_a_parent_turns_are_prefilled_from_the_start(engine: LocalEngine):
    is_kept, before = (
        call_contents(Conversation(engine, 3, Sampling(budget=4)).play(6)),
        engine.counts,
    )
    calls = Conversation(engine, 3, Sampling(budget=4), passes_parent=False).play(6)
    assert prompt_tokens_computed(engine, before) == sum(len(call.prompt) - 1 for call in calls)
    assert action_tokens(calls) == [x[1] for x in is_kept]
    for a, (_, _, logp, *_) in zip(calls, is_kept):
        np.testing.assert_allclose(a.sampler_logp, logp, atol=1e-5)


def test_more_conversations_than_rows_sample_the_same(engine: LocalEngine):
    alone = [Conversation(engine, seed, sampling_for).play(4) for seed in range(9)]
    before = engine.counts["evictions"]
    crowd = [Conversation(engine, seed, sampling_for) for seed in range(9)]
    for _ in range(4):
        for conversation in crowd:  # each waits for the eight others between its turns
            conversation.play_turn()
    assert engine.counts["evictions"] > before
    for conversation, calls in zip(crowd, alone):
        engine.release(conversation.calls[-1])
        assert action_tokens(conversation.calls) == action_tokens(calls)
        for a, b in zip(conversation.calls, calls):
            np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)


@pytest.mark.parametrize("players", [3, 9])  # fewer than rows, and more
def test_tokens_that_are_settled_while_the_next_program_runs_are_the_same(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, players: int
):
    alone = [Conversation(engine, seed, sampling_for).play(4) for seed in range(9)]
    set_sampler_state, unsettled = engine._model_runner._set_sampler_state, []

    def set_and_record() -> None:
        unsettled.append(engine._model_runner._unsettled is not None)
        set_sampler_state()

    monkeypatch.setattr(engine._model_runner, "_set_sampler_state", set_and_record)
    monkeypatch.setattr(engine._scheduler, "runs_at_once", lambda ready: ready > 0)
    with ThreadPoolExecutor(players) as threads:
        playing = [
            threads.submit(Conversation(engine, seed, sampling_for).play, 4) for seed in range(9)
        ]
        for recompute in itertools.cycle([False, True]):
            engine.publish(PARAMS, 0, recompute)
            other = engine.submit(environment_tokens(9, 0), Sampling(budget=40), (9,))
            time.sleep(0.01)
            other.cancel()
            if all(future.done() for future in playing):
                break
    assert any(unsettled)
    for future, expected in zip(playing, alone):
        assert action_tokens(future.result()) == action_tokens(expected)
        for a, b in zip(future.result(), expected):
            np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)


def test_a_parent_that_is_no_prefix_is_ignored(engine: LocalEngine):
    parent = Conversation(engine, 30, Sampling(budget=5))
    parent.play_turn()
    other = np.concatenate([environment_tokens(31, 0), environment_tokens(31, 1)])
    call = engine.submit(other, Sampling(budget=5), (31,), parent.calls[0]).result(timeout=60)
    plain = engine.submit(other, Sampling(budget=5), (31,)).result(timeout=60)
    assert call_contents([call]) == call_contents([plain]) and call.parent is None
    parent.play_turn()  # its cache is still that of its own tokens
    alone = Conversation(engine, 30, Sampling(budget=5)).play(2)
    assert action_tokens(parent.calls) == action_tokens(alone)
    for finished in (call, plain, parent.calls[-1]):
        engine.release(finished)


def test_two_children_of_one_call_sample_what_they_do_alone(engine: LocalEngine):
    parent = Conversation(engine, 32, Sampling(budget=5))
    parent.play_turn()
    ids = np.concatenate([parent.calls[0].ids, environment_tokens(32, 1)])
    futures = [
        engine.submit(ids, Sampling(budget=5), (32, child), parent.calls[0]) for child in range(2)
    ]
    branches = [future.result(timeout=60) for future in futures]
    assert all(call.parent is parent.calls[0] for call in branches)
    plain = [
        engine.submit(ids, Sampling(budget=5), (32, child)).result(timeout=60) for child in range(2)
    ]
    assert action_tokens(branches) == action_tokens(plain)
    for call in (*branches, *plain):
        engine.release(call)


def test_published_weights_are_a_copy_and_tag_what_they_sample(other_engine: LocalEngine):
    engine, old = (
        other_engine,
        call_contents(Conversation(other_engine, 0, Sampling(budget=8)).play(3)),
    )
    params = jax.tree.map(jnp.copy, OTHER_PARAMS)
    engine.publish(params, 5)
    for x in jax.tree.leaves(params):
        x.delete()  # as the learner's next donation does
    calls = Conversation(engine, 0, Sampling(budget=8)).play(3)
    assert all((call.version == 5).all() for call in calls) and call_contents(calls) != old
    (row,) = sequences_of(make_trajectory(*(make_turn([call]) for call in calls)))
    check_sampler_logp(row, OTHER_PARAMS)
    engine.publish(PARAMS, 0)
    assert call_contents(Conversation(engine, 0, Sampling(budget=8)).play(3)) == old


def test_a_call_in_flight_continues_under_new_weights_and_tags_its_tokens(
    other_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    decode, decodes = other_engine._device_state.decode, []

    def publishing(*arguments: Any) -> Any:
        decodes.append(1)
        out = decode(*arguments)
        if len(decodes) == 2:
            other_engine.publish(OTHER_PARAMS, 9)
        return out

    monkeypatch.setattr(other_engine._device_state, "decode", publishing)
    call = Conversation(other_engine, 0, Sampling(budget=20)).play(1)[0]
    first = 2 * other_engine.config.min_decode_steps - (
        len(call.prompt) - 1
    )  # the same programs fed the prompt
    assert call.version.tolist() == [0] * first + [9] * (20 - first)
    other_engine.publish(PARAMS, 0)


def test_another_thread_publishes_between_steps(
    other_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    decode, has_stepped = other_engine._device_state.decode, threading.Event()

    def signalling(*arguments: Any) -> Any:
        out = decode(*arguments)
        has_stepped.set()
        return out

    def publish() -> None:
        for version in range(1, 7):
            has_stepped.clear()
            assert has_stepped.wait(60)  # at least one step under each version
            other_engine.publish((PARAMS, OTHER_PARAMS)[version % 2], version)

    monkeypatch.setattr(other_engine._device_state, "decode", signalling)
    publisher = threading.Thread(target=publish)
    publisher.start()
    versions = []
    while publisher.is_alive() or versions[-1][0] < 6:
        assert len(versions) < 2_000
        futures = [
            other_engine.submit(environment_tokens(row, 0), Sampling(budget=40), (row,))
            for row in range(3)
        ]
        versions += [future.result(timeout=60).version for future in futures]
    publisher.join()
    assert all((np.diff(each) >= 0).all() for each in versions)
    assert any(each[0] < each[-1] for each in versions)
    other_engine.publish(PARAMS, 0)


def test_a_publication_that_fails_stops_the_engine(
    stub_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    def fail(*arguments: Any) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(stub_engine._device_state, "put_weights", fail)
    with pytest.raises(MemoryError):
        stub_engine.publish(PARAMS, 1)  # a part of the old weights may be gone
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        stub_engine.submit(environment_tokens(0, 0), Sampling(budget=1), (0,))


def test_nothing_is_compiled_after_the_first_publication(other_engine: LocalEngine):
    engine = other_engine
    engine.publish(PARAMS, 0)
    with record_compilations() as compiled:
        for first in range(100, 124, 8):
            crowd = [Conversation(engine, seed, sampling_for) for seed in range(first, first + 8)]
            play_concurrently(crowd, 6)
            engine.publish(PARAMS, 0)
        engine.submit(
            environment_tokens(0, 0), Sampling(budget=50, stop_strings=("zz",)), (0,)
        ).result(timeout=60)
    assert compiled == []
    assert {len(c.ids) > POSITIONS // 2 for conversation in crowd for c in conversation.calls} == {
        True,
        False,
    }  # both attention lengths were used


@pytest.mark.parametrize("sizes", [{}, {"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_later_weights_of_any_mesh_are_published_without_a_compilation(
    engine: LocalEngine, sizes: dict[str, int]
):
    mesh = device_mesh(**sizes)
    shardings = weight_shardings(mesh, POLICY.axes(), PARAMS)
    before = call_contents(Conversation(engine, 0, Sampling(budget=30)).play(2))
    params = jax.device_put(PARAMS, shardings)
    engine.publish(params, 0)
    with record_compilations() as compiled:
        engine.publish(params, 0)
        assert call_contents(Conversation(engine, 0, Sampling(budget=30)).play(2)) == before
    assert compiled == []


def test_calls_that_arrive_together_start_together(
    stub_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    batch_sizes = []
    monkeypatch.setattr(
        stub_engine._model_runner,
        "step",
        lambda *_: (
            batch_sizes.append(sum(1 for _ in stub_engine._slot_table.active)) or time.sleep(0.01)
        ),
    )
    monkeypatch.setattr(
        stub_engine._scheduler, "last_step_seconds", 16.0
    )  # a second's wait for the next request
    stub_engine._scheduler.batching_delay = 1.0
    for i in range(4):
        stub_engine.submit(environment_tokens(0, 0), Sampling(), (i,))
        time.sleep(0.02)
    deadline = time.monotonic() + 60
    while not batch_sizes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert batch_sizes[0] == 4


def test_a_closed_engine_refuses_requests_and_drops_queued_ones(
    stub_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stub_engine, "_admit", lambda evict: None)  # nothing ever starts
    waiting = stub_engine.submit(environment_tokens(0, 0), Sampling(), (0,))
    stub_engine.close()
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        waiting.result(timeout=60)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        stub_engine.submit(environment_tokens(0, 0), Sampling(), (0,))
    stub_engine.close()


def test_an_error_of_the_engine_is_raised_by_all_futures(
    stub_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> Any:
        raise MemoryError("no room on the device")

    monkeypatch.setattr(stub_engine._device_state, "decode", fails)
    with stub_engine._condition:  # so that all are queued before the first starts
        futures = [
            stub_engine.submit(environment_tokens(seed, 0), Sampling(), (seed,))
            for seed in range(7)
        ]  # more than there are rows
    for future in futures:
        with pytest.raises(RuntimeError, match="the engine has stopped") as error:
            future.result(timeout=60)
        assert isinstance(error.value.__cause__, MemoryError)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        stub_engine.submit(environment_tokens(0, 0), Sampling(), (0,))


def test_cancelled_calls_do_not_stop_the_engine(engine: LocalEngine):
    futures = [
        engine.submit(environment_tokens(seed, 0), Sampling(budget=20), (seed,))
        for seed in range(12)
    ]
    for future in futures[::2]:
        future.cancel()
    for future in futures[1::2]:
        assert len(future.result(timeout=60).action) == 20
    assert Conversation(engine, 0, Sampling(budget=5)).play(2)


def test_an_invalid_request_is_refused(stub_engine: LocalEngine):
    with pytest.raises(ValueError, match="at least one token"):
        stub_engine.submit(np.zeros(0, np.int32), Sampling(), (0,))
    with pytest.raises(ValueError, match="at most 4 stop ids, not 5"):
        stub_engine.submit(environment_tokens(0, 0), Sampling(stop_ids=(1, 2, 3, 4, 5)), (0,))
    with pytest.raises(ValueError, match="decoder of ids"):
        stub_engine.submit(environment_tokens(0, 0), Sampling(stop_strings=("a",)), (0,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0},
        {"prefill_chunk": 0},
        {"min_decode_steps": 0},
        {"spans": 0},
        {"positions": 3, "spans": 3},
        {"guesses": -1},
    ],
)
def test_an_invalid_engine_config_is_refused(wrong: dict[str, int]):
    with pytest.raises(
        UserError, match="an engine needs rows, prefill_chunk, min_decode_steps, spans >= 1"
    ):
        start_engine(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0},
        {"temperature": -1.0},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
    ],
)
def test_invalid_sampling_parameters_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="sampling needs"):
        Sampling(**wrong)
