"""Sampling of tokens: uniform and uncorrelated random numbers, and frequencies of tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from agentrl_jax.hashed_bits import random_bits
from agentrl_jax.inference.decode_program import _advance
from agentrl_jax.inference.sampling import (
    MAX_FED_TOKENS,
    MAX_STOP_IDS,
    RowSamplingParams,
    SamplerState,
    exponential,
    sample,
)
from agentrl_jax.keys import key_data

ROWS, SIZE = 64, 4096


def keys(count: int) -> np.ndarray:
    return np.stack([key_data((0, 0, i, 0, 0, 0)) for i in range(count)])


def bits(key: np.ndarray, counter: np.ndarray, size: int = SIZE) -> np.ndarray:
    return np.asarray(random_bits(key, counter, size))


BASE = bits(keys(ROWS), np.zeros(ROWS, np.int32))


def test_bits_are_uniform():
    counts, _ = np.histogram(BASE, bins=256, range=(0, 2**32))
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    for bit in range(32):  # each bit is set half of the time: five standard deviations
        fraction = np.mean((BASE >> np.uint32(bit)) & np.uint32(1))
        assert abs(fraction - 0.5) < 5 * 0.5 / np.sqrt(BASE.size)
    assert len(np.unique(BASE)) > BASE.size - 2 * BASE.size**2 / 2**32 - 20


@pytest.mark.parametrize(
    "change", ["number", "number far away", "first word", "second word", "column"]
)
def test_bits_of_adjacent_counters_keys_and_columns_are_uncorrelated(change: str):
    key, counter = keys(ROWS), np.zeros(ROWS, np.int32)
    if change.startswith("number"):
        counter = counter + (1 if change == "number" else 1 << 20)
    elif change.endswith("word"):
        key[:, int(change == "second word")] ^= np.uint32(1)
    other = np.roll(BASE, 1, axis=1) if change == "column" else bits(key, counter)
    differing = np.unpackbits((BASE ^ other).view(np.uint8)).mean()
    assert abs(differing - 0.5) < 5 * 0.5 / np.sqrt(32 * BASE.size)
    a, b = (x.astype(np.float64).ravel() for x in (BASE, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(BASE.size)


def test_bits_depend_only_on_key_counter_and_column():
    some = bits(keys(ROWS)[5:7], np.zeros(2, np.int32), 100)
    assert np.array_equal(some, BASE[5:7, :100])


def test_exponential_numbers_are_exponentially_distributed():
    x = np.asarray(exponential(jnp.asarray(BASE))).ravel()
    assert scipy.stats.kstest(x, "expon").pvalue > 1e-4
    small = np.asarray(
        exponential(jnp.asarray([0, 1, 2**10, 2**20, 2**24, 2**32 - 1], jnp.uint32)), np.float64
    )
    exact = -np.log1p(-(np.array([0, 1, 2**10, 2**20, 2**24, 2**32 - 1]) + 0.5) / 2**32)
    np.testing.assert_allclose(small[:-1], exact[:-1], rtol=2e-6)
    assert np.isfinite(small[-1]) and small[-1] > 16


def sample_many(
    logits: np.ndarray, draws: int, **fields: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, log-probs and entropies of many samples from the same logits."""
    zeros = np.zeros(draws, np.int32)
    params = RowSamplingParams(
        last_token=zeros,
        length=zeros,
        remaining=zeros,
        written=np.arange(draws, dtype=np.int32) % 97,
        pending=zeros,
        pending_tokens=np.zeros((draws, 8), np.int32),
        key=keys(draws),
        temperature=np.full(draws, fields.get("temperature", 1.0), np.float32),
        top_k=np.full(draws, int(fields.get("top_k", 0)), np.int32),
        top_p=np.full(draws, fields.get("top_p", 1.0), np.float32),
        min_p=np.full(draws, fields.get("min_p", 0.0), np.float32),
        stop_ids=np.full((draws, MAX_STOP_IDS), -1, np.int32),
        rope_delta=zeros,
    )
    new = jax.jit(sample)(
        jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (draws, len(logits))), params
    )
    return np.asarray(new.token), np.asarray(new.logp), np.asarray(new.entropy)


def test_sampled_frequencies_are_the_probabilities():
    logits = np.append(np.random.default_rng(0).normal(size=30) * 2, [-7.0, -40.0])
    for temperature in (1.0, 0.6):
        tokens, logp, entropy = sample_many(logits, 40_000, temperature=temperature)
        expected = scipy.special.log_softmax(logits / temperature)
        np.testing.assert_allclose(logp, expected[tokens], atol=1e-5)
        np.testing.assert_allclose(entropy, -np.sum(np.exp(expected) * expected), atol=1e-5)
        is_frequent = np.exp(expected) * len(tokens) > 5
        counts = np.bincount(tokens, minlength=len(logits))
        observed, expected_share = (
            np.append(counts[is_frequent], counts[~is_frequent].sum()),
            np.append(np.exp(expected[is_frequent]), np.exp(expected[~is_frequent]).sum()),
        )
        assert scipy.stats.chisquare(observed, expected_share * len(tokens)).pvalue > 1e-4
        assert counts[-1] == 0


@pytest.mark.parametrize(
    ("filters", "num_kept"), [({"top_k": 3}, 3), ({"top_p": 0.6}, 2), ({"min_p": 0.3}, 3)]
)
def test_filters_leave_the_rest_in_proportion(filters: dict, num_kept: int):
    probabilities = np.array([0.05, 0.4, 0.3, 0.05, 0.2])
    tokens, logp, _ = sample_many(np.log(probabilities), 20_000, **filters)
    best = np.argsort(-probabilities)[:num_kept]
    left = probabilities[best] / probabilities[best].sum()
    assert set(tokens) == set(best)
    counts = np.array([(tokens == token).sum() for token in best])
    assert scipy.stats.chisquare(counts, left * len(tokens)).pvalue > 1e-4
    fraction = dict(zip(best, left))
    np.testing.assert_allclose(logp, [np.log(fraction[token]) for token in tokens], atol=1e-5)


def test_greedy_takes_the_first_of_the_largest():
    tokens, logp, entropy = sample_many(np.array([0.0, 2.0, 2.0]), 100, temperature=0.0)
    assert set(tokens) == {1} and not logp.any() and not entropy.any()


def test_rows_are_advanced_on_the_host_as_on_the_device():
    rows, steps, random = 64, 11, np.random.default_rng(0)
    state = SamplerState(rows)
    for row in range(0, rows, 2):
        tokens = random.integers(0, 99, random.integers(1, MAX_FED_TOKENS + 2)).astype(np.int32)
        length, remaining = random.integers(1, 50, 2).tolist()
        key = np.array([row, 1], np.uint32)
        state.set_row(row, tokens, length, remaining, 3, 0, key, (100,), (1.0, 1.0, 0.0))
    device = SamplerState.unpack(jnp.asarray(state.ints), jnp.asarray(state.floats))
    sampled = np.zeros((rows, steps), np.int32)
    num_fed, num_written = np.zeros((2, rows), np.int32)
    for step in range(steps):
        live, pending = np.asarray(device.remaining) > 0, np.asarray(device.pending)
        fed, wrote = ((live & x).astype(np.int32) for x in (pending > 0, pending == 0))
        sampled[:, step] = random.integers(0, 99, rows)
        device = _advance(device, *map(jnp.asarray, (sampled[:, step], fed, wrote)))
        num_fed += fed
        num_written += wrote
    state.advance(sampled, num_fed, num_written)
    host = SamplerState.unpack(jnp.asarray(state.ints), jnp.asarray(state.floats))
    jax.tree.map(np.testing.assert_array_equal, host, device)
    live = np.asarray(device.remaining) > 0
    after = device.length + 1 + device.pending + jnp.minimum(device.remaining, 7)
    assert state.longest_row(7) == int(np.asarray(after)[live].max())
