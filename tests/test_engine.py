"""The local engine: what it samples, says of it, keeps and forgets, whatever else it is doing."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from conversations import (
    OTHERS,
    PARAMS,
    POLICY,
    POSITIONS,
    VOCABULARY,
    Conversation,
    check_row,
    recorded,
    said,
    settings_of,
    start,
    taken_in,
    text,
    together,
    tokens,
)  # fmt: skip
from hand_made import counted_compilations, logp_alone, make_trajectory, make_turn, mesh_of
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax import resident
from agentrl_jax.batch import pack
from agentrl_jax.decoding import Burst, Programs
from agentrl_jax.errors import UserError
from agentrl_jax.keys import key_data
from agentrl_jax.learner import token_logp
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.policy import Inputs
from agentrl_jax.rows import rows_of
from agentrl_jax.sampling import FEED, STOPS, Knobs, filtered, sample
from agentrl_jax.sharding import weight_shardings
from agentrl_jax.trajectories import Sampling


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = start(spans=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def another() -> Iterator[LocalEngine]:
    """Another shape in every respect."""
    engine = start(rows=9, chunk=16, burst=8, longest=8, spans=2)
    yield engine
    engine.close()


NOTHING = Burst(
    tokens=np.zeros((4, 0), np.int32), logp=np.zeros((4, 0), np.float32), entropy=np.zeros((4, 0), np.float32),
    alternatives=np.zeros((4, 0, 0), np.int32), alternative_logp=np.zeros((4, 0, 0), np.float32),
    fed=np.zeros(4, np.int32), written=np.zeros(4, np.int32),
)  # fmt: skip


@pytest.fixture
def hollow(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    """An engine whose programs do nothing, so that nothing is compiled and no call ever ends."""
    programs = Programs(lambda _, cache, *__: cache, lambda _, cache, *__: (cache, NOTHING), lambda *caches: caches[:2])  # type: ignore
    monkeypatch.setattr(resident, "compile_programs", lambda *_: programs)
    engine = LocalEngine(POLICY, EngineConfig(rows=4, positions=8, patience=0.0), PARAMS)
    yield engine
    engine.close()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_the_sampler_and_the_learner_agree_over_many_turns(engine: LocalEngine, temperature: float):
    rows = []
    for seed in range(4):
        calls = Conversation(engine, seed, Sampling(budget=7, temperature=temperature)).play(5)
        rows += rows_of(make_trajectory(*(make_turn([call]) for call in calls)))
    assert len(rows) == 4
    layout = pack(rows, POSITIONS, 1)
    logp, entropy = jax.jit(lambda p, b: token_logp(POLICY, p, b))(PARAMS, layout.batch(np.zeros((layout.bins, POSITIONS), np.float32)))
    for seed, (row, b, first) in enumerate(zip(rows, layout.bin_of, layout.offset_of)):
        span = slice(first, first + len(row))
        np.testing.assert_allclose(row.sampler_logp[row.action_mask], np.asarray(logp)[b, span][row.action_mask], atol=1e-5)
        check_row(row)
        said_of = np.concatenate([c.entropy for c in Conversation(engine, seed, Sampling(7, temperature)).play(5) if c.entropy is not None])
        np.testing.assert_allclose(said_of, np.asarray(entropy)[b, span][row.action_mask], atol=1e-5)


def test_greedy_takes_the_most_likely_token_of_a_full_forward_pass(engine: LocalEngine):
    calls = Conversation(engine, 7, Sampling(budget=6, temperature=0.0)).play(4)
    ids = calls[-1].ids[None]
    inputs = Inputs(tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None], segment_ids=np.ones_like(ids))
    best = np.asarray(jnp.argmax(POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden), axis=-1))[0]
    for call in calls:
        before = len(call.prompt) - 1
        assert call.action.tolist() == best[before : before + len(call.action)].tolist()
        assert not call.sampler_logp.any() and call.entropy is not None and not call.entropy.any()


def test_a_rerun_is_the_same_to_the_bit(engine: LocalEngine):
    first, again = (recorded(Conversation(engine, 11, settings_of).play(5)) for _ in range(2))
    assert first == again


def test_neighbours_do_not_matter(engine: LocalEngine):
    alone = [recorded(Conversation(engine, seed, settings_of).play(5)) for seed in range(8)]
    crowd = [Conversation(engine, seed, settings_of) for seed in range(8)]
    together(crowd[:4], 5)
    together(crowd[4:], 5)
    assert [tokens(c.calls) for c in crowd] == [[x[1] for x in calls] for calls in alone]
    assert [recorded(c.calls) for c in crowd] == alone


def test_a_neighbours_filters_do_not_matter(engine: LocalEngine):
    alone = recorded(Conversation(engine, 5, Sampling(budget=9)).play(4))
    plain, filtered_one = Conversation(engine, 5, Sampling(budget=9)), Conversation(engine, 6, Sampling(budget=9, top_k=3, top_p=0.8))
    together([plain, filtered_one], 4)
    assert recorded(plain.calls) == alone


def test_the_row_does_not_matter(engine: LocalEngine):
    alone = recorded(Conversation(engine, 12, settings_of).play(4))
    for held in range(1, 4):
        blockers = [Conversation(engine, 50 + i, Sampling(budget=1)) for i in range(held)]
        for blocker in blockers:
            blocker.turn()  # takes the first free row and keeps it
        assert recorded(Conversation(engine, 12, settings_of).play(4)) == alone
        for blocker in blockers:
            engine.release(blocker.calls[-1])


@pytest.mark.slow
def test_bursts_chunks_rows_and_spans_do_not_matter(engine: LocalEngine, another: LocalEngine):
    smallest = start(rows=1, chunk=1, burst=1, longest=1)
    for seed in range(20, 28):
        expected, *others = (Conversation(e, seed, settings_of).play(5) for e in (engine, another, smallest))
        for calls in others:
            # Programs of other shapes sum in another order: the same tokens, log-probs as near as the learner's.
            assert tokens(calls) == tokens(expected) and [c.finish_reason for c in calls] == [c.finish_reason for c in expected]
            for a, b in zip(calls, expected):
                np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)
    smallest.close()


def test_members_of_a_group_differ(engine: LocalEngine):
    prompt = said(0, 0)
    futures = [engine.submit(prompt, Sampling(budget=8), (0, 0, 0, member, 0, 0)) for member in range(8)]
    written = {tuple(future.result(timeout=60).action.tolist()) for future in futures}
    assert len(written) == 8


def test_every_part_of_a_key_makes_other_tokens():
    keys = [(1, 2, 3, 4, 5, 6), *(tuple(int(i == j) + x for j, x in enumerate((1, 2, 3, 4, 5, 6))) for i in range(6))]
    assert len({key_data(key).tobytes() for key in keys}) == 7
    assert key_data((1, 23)).tobytes() != key_data((12, 3)).tobytes()


def filtered_by_loop(logits: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray | None:
    """Probabilities after the filters, or None where a threshold is too close to call."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    order, kept, mass = np.argsort(-p, kind="stable"), np.zeros(len(p), bool), 0.0
    for rank, token in enumerate(order):
        if min(abs(mass - top_p), abs(p[token] - min_p * p.max())) < 1e-6 and rank:
            return None
        kept[token] = (top_k == 0 or rank < top_k) and mass < top_p and p[token] >= min_p * p.max()
        mass += p[token]
    return np.where(kept, p, 0) / p[kept].sum()


filters = st.tuples(st.sampled_from([0, 0, 1, 2, 3, 5, 11, 12, 50]), st.floats(0.01, 1.0), st.floats(0.0, 1.0))


@given(knobs=st.lists(filters, min_size=8, max_size=8), seed=st.integers(0, 9999), scale=st.sampled_from([0.1, 1.0, 4.0]))
@settings(max_examples=60, deadline=None)
def test_filters_are_those_of_a_loop_over_tokens(knobs: list, seed: int, scale: float):
    logits = scale * np.random.default_rng(seed).normal(size=(8, 12))
    # every combination of filters being off
    knobs = [(k if i & 1 else 0, p if i & 2 else 1.0, m if i & 4 else 0.0) for i, (k, p, m) in enumerate(knobs)]
    k, p, m = (np.asarray(column, dtype) for column, dtype in zip(zip(*knobs), (np.int32, np.float32, np.float32)))
    logp = np.asarray(filtered_jit(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)), k, p, m))
    for row, (top_k, top_p, min_p) in enumerate(knobs):
        expected = filtered_by_loop(logits[row], top_k, top_p, min_p)
        if expected is not None:
            np.testing.assert_allclose(np.exp(logp[row]), expected, atol=1e-6)


filtered_jit = jax.jit(filtered)


def test_ties_are_kept_and_one_token_always_stays():
    logp = jnp.log(jnp.array([[0.3, 0.3, 0.3, 0.1]]))
    one, half = jnp.array([1]), jnp.array([0.5])
    nothing = jnp.array([0]), jnp.array([1.0]), jnp.array([0.0])
    assert np.isfinite(filtered(logp, one, nothing[1], nothing[2])).tolist() == [[True, True, True, False]]
    assert np.isfinite(filtered(logp, nothing[0], half, nothing[2])).tolist() == [[True, True, True, False]]
    sharp = jnp.log(jnp.array([[0.4, 0.3, 0.2, 0.1]]))
    for k, p, m in ((1, 1.0, 0.0), (0, 1e-6, 0.0), (0, 1.0, 1.0), (1, 1e-6, 1.0)):
        assert np.exp(filtered(sharp, jnp.array([k]), jnp.array([p]), jnp.array([m]))).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def knobs_of(keys: np.ndarray, written: np.ndarray, temperature: float, **fields: Any) -> Knobs:
    n = len(keys)
    zeros, ones = np.zeros(n, np.int32), np.ones(n, np.float32)
    columns = {"top_k": zeros, "top_p": ones, "min_p": 0 * ones, **{k: np.full(n, v, np.asarray(v).dtype) for k, v in fields.items()}}
    return Knobs(
        last=zeros, length=zeros, left=zeros + 1, written=written, key=keys, temperature=temperature * ones, waiting=zeros,
        feed=np.zeros((n, FEED), np.int32),
        stops=np.full((n, STOPS), -1, np.int32), **columns,
    )  # fmt: skip


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.6, 0), (1.0, 4)])
@pytest.mark.parametrize("vary", ["key", "position"])
def test_sampled_frequencies_are_the_probabilities(vary: str, temperature: float, top_k: int):
    n, logits = 20_000, np.random.default_rng(0).normal(size=8)
    many = np.arange(n, dtype=np.int32)
    keys = np.stack([key_data((0, i if vary == "key" else 0)) for i in range(n)])
    written = np.zeros(n, np.int32) if vary == "key" else many
    knobs = knobs_of(keys, written, temperature, top_k=np.int32(top_k))
    new = jax.jit(sample)(jnp.tile(jnp.asarray(logits, jnp.float32), (n, 1)), knobs)
    token, logp, entropy = map(np.asarray, (new.token, new.logp, new.entropy))
    p = np.exp(logits / temperature)
    p = np.where(p >= np.sort(p)[-top_k], p, 0) if top_k else p
    p /= p.sum()
    counts = np.bincount(token, minlength=8)
    assert not counts[p == 0].any()
    assert scipy.stats.chisquare(counts[p > 0], n * p[p > 0]).pvalue > 0.01
    np.testing.assert_allclose(logp, np.log(p[token]), atol=1e-5)
    np.testing.assert_allclose(entropy, scipy.stats.entropy(p), atol=1e-5)


def test_a_stop_id_ends_a_call_and_belongs_to_it(engine: LocalEngine):
    for seed in range(8):
        free = Conversation(engine, seed, Sampling(budget=20)).play(1)[0]
        stops = (int(free.action[9]), int(free.action[12]))
        first = next(i for i, token in enumerate(free.action) if token in stops)
        call = Conversation(engine, seed, Sampling(budget=20, stop_ids=stops)).play(1)[0]
        assert call.finish_reason == "stop" and call.action.tolist() == free.action[: first + 1].tolist()
        assert call.sampler_logp.tolist() == free.sampler_logp[: first + 1].tolist()


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 17])
def test_a_budget_is_kept_to_the_token(engine: LocalEngine, budget: int):
    call = Conversation(engine, 1, Sampling(budget=budget)).play(1)[0]
    assert call.finish_reason == "budget" and len(call.action) == len(call.sampler_logp) == len(call.version) == budget


@pytest.mark.parametrize("prompt", [60, 62, 63, 64, 65, 100])
def test_a_context_is_filled_to_its_last_position(engine: LocalEngine, prompt: int):
    ids = np.random.default_rng(prompt).integers(0, VOCABULARY, prompt, np.int32)
    call = engine.submit(ids, Sampling(budget=50), (prompt,)).result(timeout=60)
    engine.release(call)
    assert call.finish_reason == "context" and len(call.action) == max(0, POSITIONS - prompt)
    if len(call.action):
        (row,) = rows_of(make_trajectory(make_turn([call])))
        np.testing.assert_allclose(call.sampler_logp, logp_alone(POLICY, PARAMS, row, POSITIONS)[row.action_mask], atol=1e-5)


def test_what_follows_a_stop_string_is_dropped_from_record_and_cache(engine: LocalEngine):
    for seed in range(6):
        free = Conversation(engine, seed, Sampling(budget=18)).play(1)[0]
        stop = text(free.action[4:6].tolist())
        end = text(free.action.tolist()).index(stop) + 2
        calls = Conversation(engine, seed, Sampling(budget=18, stop_strings=("never there", stop))).play(3)
        assert calls[0].finish_reason == "stop" and calls[0].action.tolist() == free.action[:end].tolist()
        assert len(calls[0].sampler_logp) == len(calls[0].version) == end
        # The next turns see nothing of what was dropped.
        (row,) = rows_of(make_trajectory(*(make_turn([call]) for call in calls)))
        check_row(row)


def test_each_token_is_prefilled_once(engine: LocalEngine):
    before = engine.counts
    calls = Conversation(engine, 3, Sampling(budget=4)).play(6)
    # The last token of a prompt is fed by the decode program, without being counted; so is each token that was sampled.
    spoken_by_the_world = sum(len(said(3, turn)) for turn in range(6))
    assert taken_in(engine, before) == spoken_by_the_world - 1
    assert engine.counts["sampled_tokens"] - before["sampled_tokens"] == sum(len(call.action) for call in calls)


def test_without_their_cache_turns_are_prefilled_anew(engine: LocalEngine):
    kept, before = recorded(Conversation(engine, 3, Sampling(budget=4)).play(6)), engine.counts
    calls = Conversation(engine, 3, Sampling(budget=4), hint=False).play(6)
    assert taken_in(engine, before) == sum(len(call.prompt) - 1 for call in calls)
    assert tokens(calls) == [x[1] for x in kept]
    for a, (_, _, logp, *_) in zip(calls, kept):
        np.testing.assert_allclose(a.sampler_logp, logp, atol=1e-5)


def test_more_conversations_than_rows_still_say_the_same(engine: LocalEngine):
    alone = [Conversation(engine, seed, settings_of).play(4) for seed in range(9)]
    before = engine.counts["evictions"]
    crowd = [Conversation(engine, seed, settings_of) for seed in range(9)]
    for _ in range(4):
        for conversation in crowd:  # each waits for the eight others between its turns
            conversation.turn()
    assert engine.counts["evictions"] > before
    for conversation, calls in zip(crowd, alone):
        engine.release(conversation.calls[-1])
        assert tokens(conversation.calls) == tokens(calls)
        for a, b in zip(conversation.calls, calls):
            np.testing.assert_allclose(a.sampler_logp, b.sampler_logp, atol=1e-5)


def test_a_parent_that_is_none_is_seen_through(engine: LocalEngine):
    parent = Conversation(engine, 30, Sampling(budget=5))
    parent.turn()
    other = np.concatenate([said(31, 0), said(31, 1)])
    call = engine.submit(other, Sampling(budget=5), (31,), parent.calls[0]).result(timeout=60)
    plain = engine.submit(other, Sampling(budget=5), (31,)).result(timeout=60)
    assert recorded([call]) == recorded([plain]) and call.parent is None
    engine.release(call)
    engine.release(plain)


def test_two_children_of_one_call_are_what_they_are_alone(engine: LocalEngine):
    parent = Conversation(engine, 32, Sampling(budget=5))
    parent.turn()
    ids = np.concatenate([parent.calls[0].ids, said(32, 1)])
    futures = [engine.submit(ids, Sampling(budget=5), (32, child), parent.calls[0]) for child in range(2)]
    branches = [future.result(timeout=60) for future in futures]
    assert all(call.parent is parent.calls[0] for call in branches)
    plain = [engine.submit(ids, Sampling(budget=5), (32, child)).result(timeout=60) for child in range(2)]
    assert tokens(branches) == tokens(plain)
    for call in (*branches, *plain):
        engine.release(call)


def test_published_weights_are_a_copy_and_tag_what_they_sample(another: LocalEngine):
    engine, old = another, recorded(Conversation(another, 0, Sampling(budget=8)).play(3))
    params = jax.tree.map(jnp.copy, OTHERS)
    engine.publish(params, 5)
    for x in jax.tree.leaves(params):
        x.delete()  # as the learner's next donation does
    calls = Conversation(engine, 0, Sampling(budget=8)).play(3)
    assert all((call.version == 5).all() for call in calls) and recorded(calls) != old
    (row,) = rows_of(make_trajectory(*(make_turn([call]) for call in calls)))
    check_row(row, OTHERS)
    engine.publish(PARAMS, 0)
    assert recorded(Conversation(engine, 0, Sampling(budget=8)).play(3)) == old


def test_a_call_in_flight_goes_on_under_new_weights_and_says_so(another: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    decode, bursts = another._resident.decode, []

    def publishing(*arguments: Any) -> Any:
        bursts.append(1)
        out = decode(*arguments)
        if len(bursts) == 2:
            another.publish(OTHERS, 9)
        return out

    monkeypatch.setattr(another._resident, "decode", publishing)
    call = Conversation(another, 0, Sampling(budget=20)).play(1)[0]
    first = 2 * another.config.burst - (len(call.prompt) - 1)  # the prompt was fed by the same programs
    assert call.version.tolist() == [0] * first + [9] * (20 - first)
    another.publish(PARAMS, 0)


def test_nothing_is_compiled_after_the_warm_up(another: LocalEngine):
    engine = another
    with counted_compilations() as compiled:
        for first in range(100, 124, 8):
            crowd = [Conversation(engine, seed, settings_of) for seed in range(first, first + 8)]
            together(crowd, 6)
            engine.publish(PARAMS, 0)
        engine.submit(said(0, 0), Sampling(budget=50, stop_strings=("zz",)), (0,)).result(timeout=60)
    assert compiled == []
    assert {len(c.ids) > POSITIONS // 2 for conversation in crowd for c in conversation.calls} == {True, False}  # both spans were read


@pytest.mark.parametrize("sizes", [{}, {"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_weights_of_any_mesh_are_published_without_a_compilation(engine: LocalEngine, sizes: dict[str, int]):
    mesh = mesh_of(**sizes)
    shardings = weight_shardings(mesh, POLICY.axes(), PARAMS)
    before = recorded(Conversation(engine, 0, Sampling(budget=30)).play(2))
    params = jax.device_put(PARAMS, shardings)
    with counted_compilations() as compiled:
        engine.publish(params, 0)
        assert recorded(Conversation(engine, 0, Sampling(budget=30)).play(2)) == before
    assert compiled == []


def test_calls_that_come_together_begin_together(hollow: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    begun = []
    monkeypatch.setattr(hollow, "_run", lambda *_: begun.append(sum(1 for _ in hollow._places.working)) or time.sleep(0.01))
    monkeypatch.setattr(hollow, "_last_run", 16.0)  # a second's wait for the next
    hollow.config.patience = 1.0
    for i in range(4):
        hollow.submit(said(0, 0), Sampling(), (i,))
        time.sleep(0.02)
    deadline = time.monotonic() + 60
    while not begun and time.monotonic() < deadline:
        time.sleep(0.01)
    assert begun[0] == 4


def test_a_closed_engine_takes_nothing_more_and_drops_what_waits(hollow: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hollow, "_admit", lambda evict: None)  # nothing is ever begun
    waiting = hollow.submit(said(0, 0), Sampling(), (0,))
    hollow.close()
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        waiting.result(timeout=60)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        hollow.submit(said(0, 0), Sampling(), (0,))
    hollow.close()


def test_an_error_of_the_engine_reaches_everybody_who_waits(hollow: LocalEngine, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: Any) -> Any:
        raise MemoryError("no room on the device")

    monkeypatch.setattr(hollow._resident, "decode", fails)
    with hollow._news:  # so that all are asked for before the first is begun
        futures = [hollow.submit(said(seed, 0), Sampling(), (seed,)) for seed in range(7)]  # more than there are rows
    for future in futures:
        with pytest.raises(RuntimeError, match="the engine has stopped") as caught:
            future.result(timeout=60)
        assert isinstance(caught.value.__cause__, MemoryError)
    with pytest.raises(RuntimeError, match="the engine has stopped"):
        hollow.submit(said(0, 0), Sampling(), (0,))


def test_somebody_who_gave_up_waiting_does_not_stop_the_engine(engine: LocalEngine):
    futures = [engine.submit(said(seed, 0), Sampling(budget=20), (seed,)) for seed in range(12)]
    for future in futures[::2]:
        future.cancel()
    for future in futures[1::2]:
        assert len(future.result(timeout=60).action) == 20
    assert Conversation(engine, 0, Sampling(budget=5)).play(2)


def test_a_request_that_makes_no_sense_is_refused(hollow: LocalEngine):
    with pytest.raises(ValueError, match="at least one token"):
        hollow.submit(np.zeros(0, np.int32), Sampling(), (0,))
    with pytest.raises(ValueError, match="at most 4 stop ids, not 5"):
        hollow.submit(said(0, 0), Sampling(stop_ids=(1, 2, 3, 4, 5)), (0,))
    with pytest.raises(ValueError, match="decoder of ids"):
        hollow.submit(said(0, 0), Sampling(stop_strings=("a",)), (0,))


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"chunk": 0}, {"burst": 0}, {"spans": 0}, {"positions": 3, "spans": 3}])
def test_an_engine_that_makes_no_sense_is_refused(wrong: dict[str, int]):
    with pytest.raises(UserError, match="an engine needs rows, chunk, burst, spans >= 1"):
        start(**wrong)


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": -0.1}])
def test_sampling_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="sampling needs"):
        Sampling(**wrong)
