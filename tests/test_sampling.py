"""How a token is drawn: random numbers that are uniform and do not go together, and tokens as often as their probabilities say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from agentrl_jax.keys import key_data
from agentrl_jax.sampling import STOPS, Knobs, exponential, random_bits, sample

ROWS, SIZE = 64, 4096


def keys(count: int) -> np.ndarray:
    return np.stack([key_data((0, 0, i, 0, 0, 0)) for i in range(count)])


def bits(key: np.ndarray, number: np.ndarray, size: int = SIZE) -> np.ndarray:
    return np.asarray(random_bits(key, number, size))


BASE = bits(keys(ROWS), np.zeros(ROWS, np.int32))


def test_bits_are_uniform():
    counts, _ = np.histogram(BASE, bins=256, range=(0, 2**32))
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    for bit in range(32):  # each bit is set half of the time: five standard deviations
        share = np.mean((BASE >> np.uint32(bit)) & np.uint32(1))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(BASE.size)
    assert len(np.unique(BASE)) > BASE.size - 2 * BASE.size**2 / 2**32 - 20


@pytest.mark.parametrize("change", ["number", "number far away", "first word", "second word", "column"])
def test_neighbours_have_nothing_in_common(change: str):
    key, number = keys(ROWS), np.zeros(ROWS, np.int32)
    if change.startswith("number"):
        number = number + (1 if change == "number" else 1 << 20)
    elif change.endswith("word"):
        key[:, int(change == "second word")] ^= np.uint32(1)
    other = np.roll(BASE, 1, axis=1) if change == "column" else bits(key, number)
    differing = np.unpackbits((BASE ^ other).view(np.uint8)).mean()
    assert abs(differing - 0.5) < 5 * 0.5 / np.sqrt(32 * BASE.size)
    a, b = (x.astype(np.float64).ravel() for x in (BASE, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(BASE.size)


def test_bits_follow_from_key_number_and_column_alone():
    some = bits(keys(ROWS)[5:7], np.zeros(2, np.int32), 100)
    assert np.array_equal(some, BASE[5:7, :100])


def test_exponential_numbers_are_distributed_so():
    x = np.asarray(exponential(jnp.asarray(BASE))).ravel()
    assert scipy.stats.kstest(x, "expon").pvalue > 1e-4
    small = np.asarray(exponential(jnp.asarray([0, 1, 2**10, 2**20, 2**24, 2**32 - 1], jnp.uint32)), np.float64)
    exact = -np.log1p(-(np.array([0, 1, 2**10, 2**20, 2**24, 2**32 - 1]) + 0.5) / 2**32)
    np.testing.assert_allclose(small[:-1], exact[:-1], rtol=2e-6)
    assert np.isfinite(small[-1]) and small[-1] > 16


def drawn(logits: np.ndarray, draws: int, **fields: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, log-probs and entropies of many draws from the same logits, of different rows and token numbers."""
    zeros = np.zeros(draws, np.int32)
    knobs = Knobs(
        last=zeros, length=zeros, left=zeros, written=np.arange(draws, dtype=np.int32) % 97, waiting=zeros,
        feed=np.zeros((draws, 8), np.int32), key=keys(draws), temperature=np.full(draws, fields.get("temperature", 1.0), np.float32),
        top_k=np.full(draws, int(fields.get("top_k", 0)), np.int32), top_p=np.full(draws, fields.get("top_p", 1.0), np.float32),
        min_p=np.full(draws, fields.get("min_p", 0.0), np.float32), stops=np.full((draws, STOPS), -1, np.int32),
    )  # fmt: skip
    new = jax.jit(sample)(jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (draws, len(logits))), knobs)
    return np.asarray(new.token), np.asarray(new.logp), np.asarray(new.entropy)


def test_tokens_come_as_often_as_they_are_likely():
    logits = np.append(np.random.default_rng(0).normal(size=30) * 2, [-7.0, -40.0])
    for temperature in (1.0, 0.6):
        tokens, logp, entropy = drawn(logits, 40_000, temperature=temperature)
        expected = scipy.special.log_softmax(logits / temperature)
        np.testing.assert_allclose(logp, expected[tokens], atol=1e-5)
        np.testing.assert_allclose(entropy, -np.sum(np.exp(expected) * expected), atol=1e-5)
        often = np.exp(expected) * len(tokens) > 5
        counts = np.bincount(tokens, minlength=len(logits))
        seen, due = np.append(counts[often], counts[~often].sum()), np.append(np.exp(expected[often]), np.exp(expected[~often]).sum())
        assert scipy.stats.chisquare(seen, due * len(tokens)).pvalue > 1e-4
        assert counts[-1] == 0


@pytest.mark.parametrize(("filters", "kept"), [({"top_k": 3}, 3), ({"top_p": 0.6}, 2), ({"min_p": 0.3}, 3)])
def test_filters_leave_the_rest_in_proportion(filters: dict, kept: int):
    shares = np.array([0.05, 0.4, 0.3, 0.05, 0.2])
    tokens, logp, _ = drawn(np.log(shares), 20_000, **filters)
    best = np.argsort(-shares)[:kept]
    left = shares[best] / shares[best].sum()
    assert set(tokens) == set(best)
    counts = np.array([(tokens == token).sum() for token in best])
    assert scipy.stats.chisquare(counts, left * len(tokens)).pvalue > 1e-4
    share = dict(zip(best, left))
    np.testing.assert_allclose(logp, [np.log(share[token]) for token in tokens], atol=1e-5)


def test_greedy_takes_the_first_of_the_largest():
    tokens, logp, entropy = drawn(np.array([0.0, 2.0, 2.0]), 100, temperature=0.0)
    assert set(tokens) == {1} and not logp.any() and not entropy.any()
