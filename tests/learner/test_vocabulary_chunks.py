"""Chunks of logits: how many there are, that they change no sum, and that logits of any size are
finite.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import device_mesh

from agentrl_jax.learner import chunked_logp
from agentrl_jax.learner.packing import Batch, pack

TokenScores = tuple[jax.Array, ...]


def chunk_shapes(count: int, vocab_size: int, **mesh: int) -> list[tuple[int, ...]]:
    """The shapes of what one chunk is, of tokens with two numbers each."""
    shapes = []

    def score(x: jax.Array, y: jax.Array) -> jax.Array:
        shapes.append((*x.shape, *y.shape))
        return x.sum(-1) + y

    x, y = jnp.arange(2.0 * count).reshape(count, 2), jnp.arange(count) / 8
    with jax.set_mesh(device_mesh(**mesh)):
        result = jax.jit(chunked_logp._map_in_chunks(score, vocab_size))(x, y)
    np.testing.assert_allclose(result, np.asarray(x).sum(-1) + np.asarray(y))
    return list(dict.fromkeys(shapes))


@pytest.mark.parametrize(
    ("count", "tensor", "size"),
    [
        (3, 1, 3),  # 24 logits
        (4, 1, 2),  # 32 in 2 chunks
        (10, 1, 3),  # 80 in 4 chunks, of which the last one is filled up
        (10, 2, 5),  # each of two devices holds half of the vocabulary
        (6, 2, 6),
        (7, 2, 4),
    ],
)
def test_a_chunk_holds_as_many_logits_as_allowed(
    count: int, tensor: int, size: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 24)
    assert chunk_shapes(count, 8, tensor=tensor) == [(size, 2, size)]


def test_a_gpu_has_larger_chunks(monkeypatch: pytest.MonkeyPatch):
    assert (chunked_logp.MAX_CHUNK_LOGITS, chunked_logp.MAX_CHUNK_LOGITS_CUDA) == (2**25, 2**28)
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 8)
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS_CUDA", 32)
    assert chunk_shapes(6, 8) == [(1, 2, 1)]
    monkeypatch.setattr(chunked_logp, "platform", lambda: "cuda")
    assert chunk_shapes(6, 8) == [(3, 2, 3)]
    monkeypatch.setattr(chunked_logp, "platform", lambda: "tpu")
    assert chunk_shapes(6, 8) == [(1, 2, 1)]


def test_logits_that_fit_are_not_looped_over(monkeypatch: pytest.MonkeyPatch):
    def program() -> str:
        fn = chunked_logp._map_in_chunks(lambda x: x + 1, 4)
        return str(jax.make_jaxpr(fn)(jnp.ones(6)))

    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 24)
    assert "scan" not in program() and "remat" not in program()
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 23)
    assert "scan" in program() and "remat" in program()


def ramp_batch(rows: int, length: int, prefix: int = 0) -> Batch:
    shape = (rows, length)
    empty = pack((), length, rows).to_batch(np.zeros(shape, np.float32))
    rng = np.random.default_rng(0)
    values: dict[str, Any] = vars(empty) | {
        "tokens": rng.integers(0, 5, shape, np.int32),
        "temperature": rng.choice([0.5, 1.0, 2.0], shape).astype(np.float32),
        "prefix_length": prefix,
    }
    return Batch(**values)


@pytest.mark.parametrize("prefix", [0, 2])
def test_a_token_function_gets_the_state_before_the_token_and_its_temperature(prefix: int):
    batch = ramp_batch(3, 6, prefix)
    hidden = jnp.arange(3 * 6 * 2.0).reshape(3, 6, 2)

    def parts(params: Any, hidden: Any, token: Any, temperature: Any) -> TokenScores:
        return hidden[:, 0], token.astype(jnp.float32) + params["shift"], temperature

    params = {"shift": jnp.float32(100)}
    outputs = chunked_logp.map_over_vocabulary(parts, 3, 5, params, batch, hidden)
    before = np.pad(np.asarray(hidden)[:, prefix:-1, 0], ((0, 0), (prefix + 1, 0)))
    inside = np.arange(6) > prefix
    expected = (before, batch.tokens + 100.0, batch.temperature)
    for actual, values in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(actual, np.where(inside, values, 0))


def test_the_gradient_of_narrow_weights_is_summed_over_chunks_in_float32(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 8)  # one token
    batch, hidden = ramp_batch(1, 601), jnp.ones((1, 601, 2))

    def total(params: Any) -> jax.Array:
        def product(params: Any, hidden: Any, token: Any, temperature: Any) -> TokenScores:
            return ((hidden @ params["head"].astype(hidden.dtype))[:, 0],)

        (scores,) = chunked_logp.map_over_vocabulary(product, 1, 8, params, batch, hidden)
        return scores.sum()

    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        gradient = jax.jit(jax.grad(total))({"head": jnp.ones((2, 1), dtype)})["head"]
        assert gradient.dtype == dtype  # 256 + 1 is 256 in bfloat16
        assert np.asarray(gradient, np.float32).tolist() == [[600.0]] * 2


class Logits:
    """A policy whose hidden states are its logits."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def logits(self, params: Any, hidden: Any) -> Any:
        return hidden


@given(
    scale=st.sampled_from([0.1, 1.0, 30.0, 1000.0]),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_log_probs_and_entropies_of_logits_of_any_size(scale: float, temperature: float, seed: int):
    rng = np.random.default_rng(seed)
    logits = (scale * rng.normal(size=(4, 5))).astype(np.float32)
    target = rng.integers(0, 5, 4, np.int32)
    temperatures = np.full(4, temperature, np.float32)
    policy: Any = Logits(5)
    # Without the wrapper that checks the type of the policy.
    score: Any = chunked_logp._target_logp_and_entropy
    score = getattr(score, "__wrapped__", score)
    logp, entropy = score(
        policy, {}, jnp.asarray(logits), jnp.asarray(target), jnp.asarray(temperatures)
    )
    log_probs = scipy.special.log_softmax(logits.astype(np.float64) / temperature, axis=-1)
    expected = log_probs[np.arange(4), target]
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4)
    entropies = scipy.special.entr(np.exp(log_probs)).sum(-1)
    np.testing.assert_allclose(entropy, entropies, rtol=1e-3, atol=1e-4)
