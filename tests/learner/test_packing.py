"""Packing moves tokens and changes nothing else: no token, no log-prob, no gradient."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from support.fixtures import VOCAB_SIZE, device_mesh, random_trajectory, tiny_policy

from agentrl_jax.errors import UserError
from agentrl_jax.learner import chunked_logp
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.packing import Batch, PackedLayout, pack, pack_branches, split_bins
from agentrl_jax.learner.sequences import TrainingSequence, sequences_of
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.policy import KVCache, PolicyInputs, PolicyOutput

POLICY = tiny_policy()
PARAMS = POLICY.init(jax.random.key(0))


def random_sequence(length: int, seed: int) -> TrainingSequence:
    """A random sequence that ends in an action."""
    action_tokens = max(1, length // 2)
    shape = [(max(1, length - action_tokens), action_tokens, False, 0.0)]
    return sequences_of(random_trajectory(shape, np.random.default_rng(seed)))[0]


def spans(layout: PackedLayout) -> list[tuple[int, int, int]]:
    return [
        (int(b), int(start), int(start) + len(row))
        for b, start, row in zip(layout.bin_index, layout.bin_offset, layout.sequences)
    ]


@given(
    lengths=st.lists(st.integers(2, 12), max_size=20),
    length=st.integers(12, 30),
    multiple=st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_every_token_has_its_own_column(lengths: list[int], length: int, multiple: int):
    rows = [random_sequence(n, seed) for seed, n in enumerate(lengths)]
    layout = pack(rows, length, multiple)
    assert (
        layout.num_bins % multiple == 0
        and layout.num_bins >= multiple
        and layout.bin_length == length
    )
    usage = np.zeros((layout.num_bins, length), int)
    for b, start, stop in spans(layout):
        assert stop <= length
        usage[b, start:stop] += 1
    assert usage.sum() == sum(lengths) and usage.max(initial=0) <= 1
    # First fit: what opened a bin fitted into no earlier one (bins with a single free column are
    # skipped).
    filled = [n for n in usage.sum(axis=1).tolist() if n]
    assert all(a + b >= length for a, b in itertools.combinations(filled, 2))


@given(
    lengths=st.lists(st.integers(1, 9), max_size=20),
    bin_length=st.integers(9, 12),
    multiple=st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_bins_are_filled_first_fit_decreasing(lengths: list[int], bin_length: int, multiple: int):
    layout = pack([random_tokens(n) for n in lengths], bin_length, multiple)
    bins: list[list[int]] = []  # the sequences of each
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):  # of equal ones the first
        free = [bin_length - sum(lengths[j] for j in members) for members in bins]
        fitting = [b for b, left in enumerate(free) if left >= max(2, lengths[i])]
        if not fitting:
            bins.append([])
        b = fitting[0] if fitting else len(bins) - 1
        assert layout.bin_index[i] == b
        assert layout.bin_offset[i] == sum(lengths[j] for j in bins[b])
        bins[b].append(i)
    num_bins = next(n for n in itertools.count(multiple, multiple) if n >= len(bins))
    assert (layout.num_bins, layout.bin_length) == (num_bins, bin_length)
    assert layout.shared_prefix_length.tolist() == [0] * len(lengths)
    assert (layout.prefix_length, layout.branch_length) == (0, 0)


def random_tokens(length: int) -> TrainingSequence:
    """A sequence of any length, all of it sampled."""
    return TrainingSequence(
        tokens=np.arange(length, dtype=np.int32),
        action_mask=np.ones(length, bool),
        sampler_logp=np.zeros(length, np.float32),
        version=np.zeros(length, np.int32),
        temperature=np.ones(length, np.float32),
        turn=np.zeros(length, np.int32),
    )


def test_the_longest_of_some_sequences_is_named():
    sequences = [random_tokens(n) for n in (5, 20, 3)]
    with pytest.raises(UserError, match="has 20 tokens but bins hold 19"):
        pack(sequences, 19, 1)
    assert pack(sequences, 20, 1).num_bins == 2
    with pytest.raises(UserError, match="has 4 tokens but bins hold 3"):
        pack([random_tokens(4)], 3, 1)
    pieces = split_bins(np.arange(7), 3)
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2], [3, 4, 5], [6]]


@given(
    branches=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=12),
    prefix_length=st.integers(1, 6),
    per_bin=st.integers(1, 3),
    multiple=st.integers(1, 3),
)
@settings(max_examples=100, deadline=None)
def test_branches_of_a_prompt_fill_its_bins_in_order(
    branches: list[tuple[int, int]], prefix_length: int, per_bin: int, multiple: int
):
    prompts = [[7] * 2, [8] * 5, [7] * 5, [7], []]
    sequences = []
    for prompt, num_sampled in branches:
        tokens = np.array([*prompts[prompt], *range(num_sampled)], np.int32)
        mask = np.arange(len(tokens)) >= len(prompts[prompt])
        sequences.append(
            dataclasses.replace(random_tokens(len(tokens)), tokens=tokens, action_mask=mask)
        )
    layout = pack_branches(sequences, prefix_length, 8, per_bin, multiple)
    bins: list[tuple[tuple[int, ...], list[int]]] = []  # shared tokens, and who shares them
    for i, (prompt, _) in enumerate(branches):
        # The last prompt token predicts the first action, so it is the branch's own.
        own_prompt = prompts[prompt]
        shared = tuple(own_prompt[: min(prefix_length, max(len(own_prompt) - 1, 0))])
        last = [b for b, (key, _) in enumerate(bins) if key == shared][-1:]
        if not last or len(bins[last[0]][1]) == per_bin:
            bins.append((shared, []))
            last = [len(bins) - 1]
        members = bins[last[0]][1]
        assert layout.bin_index[i] == last[0] and layout.shared_prefix_length[i] == len(shared)
        start = prefix_length + 8 * len(members)  # of its branch
        assert layout.bin_offset[i] + len(shared) == start
        members.append(i)
    assert layout.bin_length == prefix_length + 8 * per_bin
    assert (layout.prefix_length, layout.branch_length) == (prefix_length, 8)
    num_bins = next(n for n in itertools.count(multiple, multiple) if n >= len(bins))
    assert layout.num_bins == num_bins
    batch = layout.to_batch(np.zeros((num_bins, layout.bin_length), np.float32))
    for i, x in enumerate(sequences):
        shared = layout.shared_prefix_length[i]
        row = np.asarray(batch.tokens)[layout.bin_index[i]]
        start = layout.bin_offset[i] + shared
        assert row[start : start + len(x) - shared].tolist() == x.tokens[shared:].tolist()
        assert row[prefix_length - shared : prefix_length].tolist() == x.tokens[:shared].tolist()
    assert set(np.unique(batch.segment_ids)) <= {0, 1}


@given(lengths=st.lists(st.integers(2, 12), max_size=12), multiple=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_a_batch_holds_every_sequence_unchanged_and_nothing_else(lengths: list[int], multiple: int):
    rows = [random_sequence(n, seed) for seed, n in enumerate(lengths)]
    layout = pack(rows, 16, multiple)
    weight = np.random.default_rng(0).random((layout.num_bins, 16)).astype(np.float32)
    batch = layout.to_batch(weight)
    padding = np.ones((layout.num_bins, 16), bool)
    for row, (b, start, stop) in zip(rows, spans(layout)):
        target = b, slice(start, stop)
        padding[target] = False
        for name in ("tokens", "action_mask", "sampler_logp", "version", "temperature"):
            assert getattr(batch, name)[target].tolist() == getattr(row, name).tolist()
        assert batch.turns[target].tolist() == row.turn.tolist()
        assert batch.positions[target].tolist() == list(range(len(row)))
        assert len(set(batch.segment_ids[target].tolist())) == 1
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
def test_scattered_values_are_at_their_coordinates(lengths: list[int], seed: int):
    rng = np.random.default_rng(seed)
    layout = pack([random_sequence(n, i) for i, n in enumerate(lengths)], 14, 1)
    token_sequence = np.repeat(np.arange(len(lengths)), lengths)
    token_position = np.concatenate([np.arange(n) for n in lengths])
    is_selected = rng.random(len(token_sequence)) < 0.5
    coordinates = token_sequence[is_selected], token_position[is_selected]
    values = rng.normal(size=int(is_selected.sum())).astype(np.float32)
    packed = layout.scatter(values, *coordinates)
    assert packed[layout.packed_coordinates(*coordinates)].tolist() == values.tolist()
    assert np.count_nonzero(packed) == np.count_nonzero(values)


def test_a_sequence_longer_than_a_bin_is_refused():
    with pytest.raises(UserError, match="has 9 tokens but bins hold 8: raise bin_length"):
        pack([random_sequence(4, 0), random_sequence(9, 1)], 8, 1)
    assert pack([random_sequence(8, 0)], 8, 1).num_bins == 1


def test_a_sequence_as_long_as_what_is_left_of_a_bin_fills_it():
    lengths = (6, 5, 3, 2)
    layout = pack([random_sequence(n, seed) for seed, n in enumerate(lengths)], 8, 1)
    assert layout.num_bins == 2  # 6 + 2 and 5 + 3
    assert spans(layout) == [(0, 0, 6), (1, 0, 5), (1, 5, 8), (0, 6, 8)]


def test_the_longest_sequence_decides_whether_a_bin_holds_it():
    rows = [random_sequence(n, seed) for seed, n in enumerate((3, 8, 4))]
    assert pack(rows, 8, 1).num_bins == 2
    with pytest.raises(UserError, match="has 8 tokens but bins hold 7"):
        pack(rows, 7, 1)


def test_a_single_greedy_token_cannot_be_trained_on():
    row = random_sequence(6, 0)
    row.temperature[4] = 0.0
    with pytest.raises(UserError, match="greedy samples"):
        pack([random_sequence(5, 1), row], 16, 1).to_batch(np.zeros((1, 16), np.float32))


def test_without_branches_a_batch_has_no_prefix():
    batch = pack([random_sequence(5, 1)], 8, 1).to_batch(np.zeros((1, 8), np.float32))
    arrays = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)[:9]}
    for x in (batch, Batch(**arrays)):
        assert (x.prefix_length, x.branch_length) == (0, 0)
        assert (x.inputs.prefix_length, x.inputs.branch_length) == (0, 0)


def test_pieces_of_a_batch_hold_its_bins_in_order():
    packed = {"x": np.arange(10).reshape(5, 2), "y": np.arange(5)}
    pieces = split_bins(packed, 2)
    assert [piece["y"].tolist() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert [piece["x"][:, 0].tolist() for piece in pieces] == [[0, 2], [4, 6], [8]]


def test_no_sequences_make_empty_bins():
    batch = pack([], 8, 3).to_batch(np.zeros((3, 8), np.float32))
    assert batch.tokens.shape == (3, 8) and not np.asarray(batch.segment_ids).any()


def scores_of(hidden: Array, batch: Batch) -> tuple[Array, Array]:
    return chunked_logp._logp_from_hidden(POLICY, PARAMS, batch, hidden)


score_packed = jax.jit(lambda params, batch: token_logp(POLICY, params, batch))


def score_alone(row: TrainingSequence) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies without packing, padding or chunks, in float64 after the logits."""
    tokens = jnp.asarray(row.tokens)[None]
    inputs = PolicyInputs(
        tokens=tokens, positions=jnp.arange(len(row))[None], segment_ids=jnp.ones_like(tokens)
    )
    logits = np.float64(POLICY.logits(PARAMS, POLICY.apply(PARAMS, inputs).hidden[0])) / np.vstack(
        [row.temperature[1:, None], [[1.0]]]
    )
    logp = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    chosen = logp[np.arange(len(row) - 1), row.tokens[1:]]
    return np.append(0.0, chosen), np.append(0.0, -(np.exp(logp) * logp).sum(-1)[:-1])


ROWS = [random_sequence(n, seed) for seed, n in enumerate((9, 9, 5, 5, 5, 14, 5, 5))]


@pytest.fixture(scope="module")
def expected_scores() -> list[tuple[np.ndarray, np.ndarray]]:
    return [score_alone(row) for row in ROWS]


@pytest.mark.parametrize(("length", "multiple"), [(14, 1), (20, 1), (64, 1), (64, 4)])
def test_packed_log_probs_are_those_of_each_sequence_alone(
    expected_scores: list, length: int, multiple: int
):
    layout = pack(ROWS, length, multiple)
    logp, entropy = map(
        np.asarray,
        score_packed(PARAMS, layout.to_batch(np.zeros((layout.num_bins, length), np.float32))),
    )
    for (b, start, stop), (expected_logp, expected_entropy) in zip(spans(layout), expected_scores):
        # A sequence's first token has no context; it is never trained.
        np.testing.assert_allclose(logp[b, start + 1 : stop], expected_logp[1:], atol=1e-5)
        np.testing.assert_allclose(entropy[b, start + 1 : stop], expected_entropy[1:], atol=1e-5)
    assert not logp[:, 0].any() and not entropy[:, 0].any()


def sequences_sharing_prompts(shapes: list[tuple[int, list[int]]]) -> list[TrainingSequence]:
    """Sequences of (prompt length, action lengths); those of an entry share their prompt."""
    sequences, rng = [], np.random.default_rng(0)
    for prompt, branch in shapes:
        start = rng.integers(0, VOCAB_SIZE, prompt, np.int32)
        for length in branch:
            row = sequences_of(random_trajectory([(prompt, length, False, 0.0)], rng))[0]
            sequences.append(
                dataclasses.replace(row, tokens=np.concatenate([start, row.tokens[prompt:]]))
            )
    return sequences


@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.integers(1, 6), max_size=5)), max_size=4
    ),
    stem=st.integers(1, 10), branches=st.integers(1, 4), multiple=st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_branch_continues_its_prefix(
    shapes: list[tuple[int, list[int]]], stem: int, branches: int, multiple: int
):
    rows = sequences_sharing_prompts(shapes)
    layout = pack_branches(rows, stem, 14, branches, multiple)
    batch = layout.to_batch(np.zeros((layout.num_bins, layout.bin_length), np.float32))
    assert layout.num_bins % multiple == 0 and layout.bin_length == stem + 14 * branches
    assert layout.num_bins <= multiple * max(
        1, -(-sum(-(-len(branch) // branches) for _, branch in shapes) // multiple)
    )
    usage = np.zeros((layout.num_bins, layout.bin_length), bool)
    for row, b, offset, shared in zip(
        rows, layout.bin_index, layout.bin_offset, layout.shared_prefix_length
    ):
        action_positions = np.flatnonzero(row.action_mask)
        assert shared == min(stem, action_positions[0] - 1)
        prefix, branch = slice(stem - shared, stem), slice(offset + shared, offset + len(row))
        assert (offset + shared - stem) % 14 == 0 and not usage[b, branch].any()
        usage[b, branch] = usage[b, prefix] = True
        assert [*batch.tokens[b, prefix], *batch.tokens[b, branch]] == row.tokens.tolist()
        assert [*batch.positions[b, prefix], *batch.positions[b, branch]] == list(range(len(row)))
        for name in ("action_mask", "sampler_logp", "version", "temperature"):
            assert getattr(batch, name)[b, branch].tolist() == getattr(row, name)[shared:].tolist()
    assert ((np.asarray(batch.segment_ids) > 0) == usage).all() and not np.asarray(
        batch.action_mask
    )[:, :stem].any()


def test_a_branch_too_short_for_a_sequence_is_refused():
    rows = sequences_sharing_prompts([(5, [4, 6])])
    assert pack_branches(rows, 4, 7, 2, 1).num_bins == 1
    with pytest.raises(
        UserError, match="has 7 tokens of its own but a branch holds 6: raise bin_length"
    ):
        pack_branches(rows, 4, 6, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "branches"), [(3, 1), (8, 2), (12, 5)])
def test_log_probs_in_branches_are_those_of_each_sequence_alone(stem: int, branches: int):
    rows = sequences_sharing_prompts([(9, [3, 1, 4]), (1, [5]), (6, [2, 2]), (12, [4])])
    layout = pack_branches(rows, stem, 14, branches, 1)
    logp, entropy = map(
        np.asarray,
        score_packed(
            PARAMS, layout.to_batch(np.zeros((layout.num_bins, layout.bin_length), np.float32))
        ),
    )
    for i, row in enumerate(rows):
        action_positions = np.flatnonzero(row.action_mask)
        coordinates = layout.packed_coordinates(np.full(len(action_positions), i), action_positions)
        expected_logp, expected_entropy = score_alone(row)
        np.testing.assert_allclose(logp[coordinates], expected_logp[action_positions], atol=1e-5)
        np.testing.assert_allclose(
            entropy[coordinates], expected_entropy[action_positions], atol=1e-5
        )


def perturb(batch: Batch, where: np.ndarray) -> Batch:
    """The batch with other tokens, log-probs and temperatures at some positions."""
    other = jax.tree.map(np.copy, batch)
    other.tokens[where] = (np.asarray(batch.tokens)[where] + 7) % VOCAB_SIZE
    other.sampler_logp[where], other.temperature[where] = -9.0, 3.0
    return other


def test_the_content_of_padding_changes_nothing():
    layout = pack(ROWS, 40, 3)
    batch = layout.to_batch(np.zeros((3, 40), np.float32))
    is_token = np.asarray(batch.segment_ids) > 0
    assert not is_token.all()
    before, after = (
        np.asarray(score_packed(PARAMS, x)[0]) for x in (batch, perturb(batch, ~is_token))
    )
    assert before[is_token].tolist() == after[is_token].tolist()


def test_other_sequences_of_a_bin_change_nothing():
    layout = pack(ROWS, 64, 1)
    batch = layout.to_batch(np.zeros((1, 64), np.float32))
    b, start, stop = spans(layout)[1]
    is_own = np.zeros((1, 64), bool)
    is_own[b, start:stop] = True
    assert start > 0 and batch.segment_ids[b, stop] > 0  # there are some on both sides
    before, after = (
        np.asarray(score_packed(PARAMS, x)[0]) for x in (batch, perturb(batch, ~is_own))
    )
    assert before[b, start + 1 : stop].tolist() == after[b, start + 1 : stop].tolist()


def test_a_later_token_changes_no_earlier_log_prob():
    batch = pack([ROWS[5]], 14, 1).to_batch(np.zeros((1, 14), np.float32))
    is_changed = np.zeros((1, 14), bool)
    is_changed[0, 9] = True
    before, after = (
        np.asarray(score_packed(PARAMS, x)[0])[0] for x in (batch, perturb(batch, is_changed))
    )
    assert before[:9].tolist() == after[:9].tolist() and before[9:].tolist() != after[9:].tolist()


class Lookup(Decoder):
    """A policy whose hidden states are its embeddings: gradients are those of the logits."""

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        return PolicyOutput(hidden=params["embedding"][inputs.tokens])


@pytest.mark.parametrize("max_tokens", [1, 7, 40, 1000])
def test_chunks_of_logits_change_neither_value_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, max_tokens: int
):
    policy = Lookup(POLICY.config, VOCAB_SIZE)
    layout = pack(ROWS, 30, 1)
    batch = layout.to_batch(np.zeros((layout.num_bins, 30), np.float32))
    tokens = layout.num_bins * 29
    coefficients = jax.random.normal(jax.random.key(1), (2, layout.num_bins, 30)) / tokens

    def objective(params: Any) -> tuple[Array, tuple[Array, Array]]:
        logp, entropy = token_logp(policy, params, batch)
        return jnp.sum(coefficients[0] * logp + coefficients[1] * entropy), (logp, entropy)

    def value_and_gradient(floats: int) -> Any:
        monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", floats)
        return jax.jit(jax.value_and_grad(lambda params: objective(params), has_aux=True))(
            {"embedding": PARAMS["embedding"]}
        )

    plain, chunked = (
        value_and_gradient(tokens * VOCAB_SIZE),
        value_and_gradient(min(max_tokens, tokens) * VOCAB_SIZE),
    )
    assert np.abs(plain[1]["embedding"]).max() > 0.05
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, chunked)


def test_no_more_logits_exist_than_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 7 * VOCAB_SIZE)
    batch = pack(ROWS, 30, 1).to_batch(np.zeros((2, 30), np.float32))
    shapes = jax.make_jaxpr(lambda params: token_logp(POLICY, params, batch))(PARAMS)
    assert f"7,{VOCAB_SIZE}]" in str(shapes) and f"58,{VOCAB_SIZE}]" not in str(shapes)
    # Two chunks are a loop of half the tokens, and a single one is no loop.
    for tokens, rows, loops in ((57, 29, True), (58, 58, False)):
        monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", tokens * VOCAB_SIZE)
        program = str(
            jax.make_jaxpr(lambda hidden: scores_of(hidden, batch))(jnp.zeros((2, 30, 16)))
        )
        assert f"{rows},{VOCAB_SIZE}]" in program and ("scan" in program) == loops


def test_the_largest_chunk_of_logits_takes_128_mebibytes():
    assert 4 * chunked_logp.MAX_CHUNK_LOGITS == 128 * 2**20


def test_every_device_computes_the_log_probs_of_its_own_rows():
    layout = pack(ROWS, 14, 4)
    batch = layout.to_batch(np.zeros((layout.num_bins, 14), np.float32))
    hidden = jax.random.normal(jax.random.key(2), (layout.num_bins, 14, 16))
    alone = scores_of(hidden, batch)
    with jax.set_mesh(device_mesh(data=2, tensor=2)):
        together = jax.jit(scores_of)(hidden, batch)
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
