"""Packing moves tokens and changes nothing else: not a token, not a log-prob, not a gradient."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import VOCABULARY, grown, minute_policy
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from agentrl_jax import learner
from agentrl_jax.batch import Batch, Layout, pack, pack_branches
from agentrl_jax.errors import UserError
from agentrl_jax.learner import token_logp
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.policy import Cache, Inputs, Output
from agentrl_jax.rows import Row, rows_of

POLICY = minute_policy()
PARAMS = POLICY.init(jax.random.key(0))


def row_of(length: int, seed: int) -> Row:
    """A random row that ends in an action."""
    written = max(1, length // 2)
    return rows_of(grown([(max(1, length - written), written, False, 0.0)], np.random.default_rng(seed)))[0]


def spans(layout: Layout) -> list[tuple[int, int, int]]:
    return [(int(b), int(start), int(start) + len(row)) for b, start, row in zip(layout.bin_of, layout.offset_of, layout.rows)]


@given(lengths=st.lists(st.integers(2, 12), max_size=20), length=st.integers(12, 30), multiple=st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_every_token_has_one_place(lengths: list[int], length: int, multiple: int):
    rows = [row_of(n, seed) for seed, n in enumerate(lengths)]
    layout = pack(rows, length, multiple)
    assert layout.bins % multiple == 0 and layout.bins >= multiple and layout.length == length
    taken = np.zeros((layout.bins, length), int)
    for b, start, stop in spans(layout):
        assert stop <= length
        taken[b, start:stop] += 1
    assert taken.sum() == sum(lengths) and taken.max(initial=0) <= 1
    # First fit: what opened a bin fitted into none of those before (bins with a single free place are passed over).
    filled = [n for n in taken.sum(axis=1).tolist() if n]
    assert all(a + b >= length for a, b in itertools.combinations(filled, 2))


@given(lengths=st.lists(st.integers(2, 12), max_size=12), multiple=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_a_batch_holds_every_row_as_it_was_and_nothing_else(lengths: list[int], multiple: int):
    rows = [row_of(n, seed) for seed, n in enumerate(lengths)]
    layout = pack(rows, 16, multiple)
    weight = np.random.default_rng(0).random((layout.bins, 16)).astype(np.float32)
    batch = layout.batch(weight)
    padding = np.ones((layout.bins, 16), bool)
    for row, (b, start, stop) in zip(rows, spans(layout)):
        place = b, slice(start, stop)
        padding[place] = False
        for name in ("tokens", "action_mask", "sampler_logp", "version", "temperature"):
            assert getattr(batch, name)[place].tolist() == getattr(row, name).tolist()
        assert batch.turns[place].tolist() == row.turn.tolist()
        assert batch.positions[place].tolist() == list(range(len(row)))
        assert len(set(batch.segment_ids[place].tolist())) == 1
    for segments in np.asarray(batch.segment_ids):
        assert set(segments.tolist()) - {0} == set(range(1, segments.max() + 1))
    for name, empty in (
        ("segment_ids", 0),
        ("action_mask", False),
        ("sampler_logp", 0),
        ("version", -1),
        ("temperature", 1),
        ("turns", -1),
    ):
        assert (getattr(batch, name)[padding] == empty).all()
    assert batch.weight is weight


@given(lengths=st.lists(st.integers(2, 12), min_size=1, max_size=12), seed=st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_what_is_scattered_is_found_again(lengths: list[int], seed: int):
    rng = np.random.default_rng(seed)
    layout = pack([row_of(n, i) for i, n in enumerate(lengths)], 14, 1)
    token_row = np.repeat(np.arange(len(lengths)), lengths)
    token_position = np.concatenate([np.arange(n) for n in lengths])
    some = rng.random(len(token_row)) < 0.5
    at = token_row[some], token_position[some]
    values = rng.normal(size=int(some.sum())).astype(np.float32)
    packed = layout.scatter(values, *at)
    assert packed[layout.place(*at)].tolist() == values.tolist()
    assert np.count_nonzero(packed) == np.count_nonzero(values)


def test_a_row_longer_than_a_bin_is_refused():
    with pytest.raises(UserError, match="has 9 tokens but bins hold 8: raise bin_length"):
        pack([row_of(4, 0), row_of(9, 1)], 8, 1)
    assert pack([row_of(8, 0)], 8, 1).bins == 1


def test_no_rows_make_empty_bins():
    batch = pack([], 8, 3).batch(np.zeros((3, 8), np.float32))
    assert batch.tokens.shape == (3, 8) and not np.asarray(batch.segment_ids).any()


logp_of = jax.jit(lambda params, batch: token_logp(POLICY, params, batch))


def alone(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies of a row without packing, padding or chunks, in float64 after the logits."""
    tokens = jnp.asarray(row.tokens)[None]
    inputs = Inputs(tokens=tokens, positions=jnp.arange(len(row))[None], segment_ids=jnp.ones_like(tokens))
    logits = np.float64(POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden[0])) / np.vstack([row.temperature[1:, None], [[1.0]]])
    logp = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
    chosen = logp[np.arange(len(row) - 1), row.tokens[1:]]
    return np.append(0.0, chosen), np.append(0.0, -(np.exp(logp) * logp).sum(-1)[:-1])


ROWS = [row_of(n, seed) for seed, n in enumerate((9, 9, 5, 5, 5, 14, 5, 5))]


@pytest.fixture(scope="module")
def by_row() -> list[tuple[np.ndarray, np.ndarray]]:
    return [alone(row) for row in ROWS]


@pytest.mark.parametrize(("length", "multiple"), [(14, 1), (20, 1), (64, 1), (64, 4)])
def test_packed_log_probs_are_those_of_each_row_alone(by_row: list, length: int, multiple: int):
    layout = pack(ROWS, length, multiple)
    logp, entropy = map(np.asarray, logp_of(PARAMS, layout.batch(np.zeros((layout.bins, length), np.float32))))
    for (b, start, stop), (expected_logp, expected_entropy) in zip(spans(layout), by_row):
        # A row's first token follows nothing of its own; it is never trained.
        np.testing.assert_allclose(logp[b, start + 1 : stop], expected_logp[1:], atol=1e-5)
        np.testing.assert_allclose(entropy[b, start + 1 : stop], expected_entropy[1:], atol=1e-5)
    assert not logp[:, 0].any() and not entropy[:, 0].any()


def families(shapes: list[tuple[int, list[int]]]) -> list[Row]:
    """Rows of so many own tokens after a prompt of so many, the same for each list."""
    made, rng = [], np.random.default_rng(0)
    for prompt, own in shapes:
        start = rng.integers(0, VOCABULARY, prompt, np.int32)
        for length in own:
            row = rows_of(grown([(prompt, length, False, 0.0)], rng))[0]
            made.append(dataclasses.replace(row, tokens=np.concatenate([start, row.tokens[prompt:]])))
    return made


@given(
    shapes=st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 6), max_size=5)), max_size=4),
    stem=st.integers(1, 10), branches=st.integers(1, 4), multiple=st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_branch_goes_on_where_its_stem_ends(shapes: list[tuple[int, list[int]]], stem: int, branches: int, multiple: int):
    rows = families(shapes)
    layout = pack_branches(rows, stem, 14, branches, multiple)
    batch = layout.batch(np.zeros((layout.bins, layout.length), np.float32))
    assert layout.bins % multiple == 0 and layout.length == stem + 14 * branches
    assert layout.bins <= multiple * max(1, -(-sum(-(-len(own) // branches) for _, own in shapes) // multiple))
    taken = np.zeros((layout.bins, layout.length), bool)
    for row, b, offset, shared in zip(rows, layout.bin_of, layout.offset_of, layout.shared_of):
        written = np.flatnonzero(row.action_mask)
        assert shared == min(stem, written[0] - 1)
        seen, own = slice(stem - shared, stem), slice(offset + shared, offset + len(row))
        assert (offset + shared - stem) % 14 == 0 and not taken[b, own].any()
        taken[b, own] = taken[b, seen] = True
        assert [*batch.tokens[b, seen], *batch.tokens[b, own]] == row.tokens.tolist()
        assert [*batch.positions[b, seen], *batch.positions[b, own]] == list(range(len(row)))
        for name in ("action_mask", "sampler_logp", "version", "temperature"):
            assert getattr(batch, name)[b, own].tolist() == getattr(row, name)[shared:].tolist()
    assert ((np.asarray(batch.segment_ids) > 0) == taken).all() and not np.asarray(batch.action_mask)[:, :stem].any()


def test_a_branch_too_short_for_a_rows_own_tokens_is_refused():
    rows = families([(5, [4, 6])])
    assert pack_branches(rows, 4, 7, 2, 1).bins == 1
    with pytest.raises(UserError, match="has 7 tokens of its own but a branch holds 6: raise bin_length"):
        pack_branches(rows, 4, 6, 2, 1)


@pytest.mark.parametrize(("stem", "branches"), [(3, 1), (8, 2), (12, 5)])
def test_log_probs_in_branches_are_those_of_each_row_alone(stem: int, branches: int):
    rows = families([(9, [3, 1, 4]), (1, [5]), (6, [2, 2]), (12, [4])])
    layout = pack_branches(rows, stem, 14, branches, 1)
    logp, entropy = map(np.asarray, logp_of(PARAMS, layout.batch(np.zeros((layout.bins, layout.length), np.float32))))
    for i, row in enumerate(rows):
        written = np.flatnonzero(row.action_mask)
        at = layout.place(np.full(len(written), i), written)
        expected_logp, expected_entropy = alone(row)
        np.testing.assert_allclose(logp[at], expected_logp[written], atol=1e-5)
        np.testing.assert_allclose(entropy[at], expected_entropy[written], atol=1e-5)


def changed(batch: Batch, where: np.ndarray) -> Batch:
    """Other tokens, log-probs and temperatures at these places."""
    other = jax.tree.map(np.copy, batch)
    other.tokens[where] = (np.asarray(batch.tokens)[where] + 7) % VOCABULARY
    other.sampler_logp[where], other.temperature[where] = -9.0, 3.0
    return other


def test_what_stands_in_the_padding_changes_nothing():
    layout = pack(ROWS, 40, 3)
    batch = layout.batch(np.zeros((3, 40), np.float32))
    real = np.asarray(batch.segment_ids) > 0
    assert not real.all()
    before, after = (np.asarray(logp_of(PARAMS, x)[0]) for x in (batch, changed(batch, ~real)))
    assert before[real].tolist() == after[real].tolist()


def test_a_rows_neighbours_in_its_bin_change_nothing():
    layout = pack(ROWS, 64, 1)
    batch = layout.batch(np.zeros((1, 64), np.float32))
    (b, start, stop), own = spans(layout)[1], np.zeros((1, 64), bool)
    own[b, start:stop] = True
    assert start > 0 and batch.segment_ids[b, stop] > 0  # there are some on both sides
    before, after = (np.asarray(logp_of(PARAMS, x)[0]) for x in (batch, changed(batch, ~own)))
    assert before[b, start + 1 : stop].tolist() == after[b, start + 1 : stop].tolist()


def test_a_later_token_changes_no_earlier_log_prob():
    batch = pack([ROWS[5]], 14, 1).batch(np.zeros((1, 14), np.float32))
    late = np.zeros((1, 14), bool)
    late[0, 9] = True
    before, after = (np.asarray(logp_of(PARAMS, x)[0])[0] for x in (batch, changed(batch, late)))
    assert before[:9].tolist() == after[:9].tolist() and before[9:].tolist() != after[9:].tolist()


class Lookup(Decoder):
    """A policy whose hidden states are its embeddings: what is left to differentiate are the logits."""

    def apply(self, params: Any, inputs: Inputs, cache: Cache | None = None, key: Array | None = None) -> Output:
        return Output(hidden=params["embedding"][inputs.tokens])


@pytest.mark.parametrize("at_once", [1, 7, 40, 1000])
def test_chunks_of_logits_change_neither_value_nor_gradient(monkeypatch: pytest.MonkeyPatch, at_once: int):
    policy = Lookup(POLICY.config, VOCABULARY)
    layout = pack(ROWS, 30, 1)
    batch = layout.batch(np.zeros((layout.bins, 30), np.float32))
    tokens = layout.bins * 29
    tilt = jax.random.normal(jax.random.key(1), (2, layout.bins, 30)) / tokens

    def objective(params: Any) -> tuple[Array, tuple[Array, Array]]:
        logp, entropy = token_logp(policy, params, batch)
        return jnp.sum(tilt[0] * logp + tilt[1] * entropy), (logp, entropy)

    def value_and_gradient(floats: int) -> Any:
        monkeypatch.setattr(learner, "LOGITS_AT_ONCE", floats)
        return jax.jit(jax.value_and_grad(lambda params: objective(params), has_aux=True))({"embedding": PARAMS["embedding"]})

    plain, chunked = value_and_gradient(tokens * VOCABULARY), value_and_gradient(min(at_once, tokens) * VOCABULARY)
    assert np.abs(plain[1]["embedding"]).max() > 0.05
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, chunked)


def test_no_more_logits_exist_than_were_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learner, "LOGITS_AT_ONCE", 7 * VOCABULARY)
    batch = pack(ROWS, 30, 1).batch(np.zeros((2, 30), np.float32))
    shapes = jax.make_jaxpr(lambda params: token_logp(POLICY, params, batch))(PARAMS)
    assert f"7,{VOCABULARY}]" in str(shapes) and f"58,{VOCABULARY}]" not in str(shapes)
