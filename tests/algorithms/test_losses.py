"""Losses against tables worked by hand, their own gradients and exact divergences."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from agentrl_jax.algorithms.grpo import Clipped
from agentrl_jax.algorithms.losses import clipped_surrogate, kl_k1, kl_k2, kl_k3, negative_log_likelihood


def surrogate(ratio: float, advantage: float, **clip: float) -> tuple[float, float]:
    """The loss at a ratio, and its slope in logp."""

    def loss(logp: Array) -> Array:
        return clipped_surrogate(logp, jnp.float32(-1.0), jnp.float32(advantage), **clip)

    value, slope = jax.value_and_grad(loss)(jnp.float32(-1.0 + np.log(ratio)))
    return float(value), float(slope)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        # inside the clip range: -A r, and its slope in logp is the same
        (1.0, 1.0, -1.0, -1.0),
        (1.0, -1.0, 1.0, 1.0),
        (1.1, 2.0, -2.2, -2.2),
        (0.9, -2.0, 1.8, 1.8),
        # good actions gain nothing above 1.2, bad ones nothing below 0.8
        (1.5, 1.0, -1.2, 0.0),
        (0.5, -1.0, 0.8, 0.0),
        # but what went the wrong way is always pulled back
        (0.5, 1.0, -0.5, -0.5),
        (1.5, -1.0, 1.5, 1.5),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_the_clipped_surrogate_is_the_table(ratio: float, advantage: float, value: float, slope: float):
    assert surrogate(ratio, advantage) == pytest.approx((value, slope), abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [(1.5, 1.0, -1.28), (1.25, 1.0, -1.25), (0.5, -1.0, 0.9), (0.95, -1.0, 0.95), (0.5, 1.0, -0.5), (1.5, -1.0, 1.5)],
)
def test_the_two_clip_widths_are_told_apart(ratio: float, advantage: float, value: float):
    assert surrogate(ratio, advantage, clip_low=0.1, clip_high=0.28)[0] == pytest.approx(value, abs=1e-6)
    slot = Clipped(0.1, 0.28)(jnp.log(jnp.float32(ratio)), jnp.float32(0), jnp.float32(advantage))
    assert float(slot) == pytest.approx(value, abs=1e-6)


def test_at_ratio_one_the_gradient_is_that_of_reinforce():
    logits = jax.random.normal(jax.random.key(0), (5, 7))
    token, advantage = jnp.arange(5), jnp.array([2.0, -1.0, 0.0, 0.5, -3.0])

    def logp(logits: Array) -> Array:
        return jax.nn.log_softmax(logits)[jnp.arange(5), token]

    clipped = jax.grad(lambda x: jnp.sum(clipped_surrogate(logp(x), jax.lax.stop_gradient(logp(x)), advantage)))(logits)
    reinforce = jax.grad(lambda x: jnp.sum(-advantage * logp(x)))(logits)
    np.testing.assert_allclose(clipped, reinforce, atol=1e-7)


def test_no_gradient_reaches_the_proximal_policy():
    slope = jax.grad(lambda proximal: clipped_surrogate(jnp.float32(-1.0), proximal, jnp.float32(2.0)))(jnp.float32(-1.1))
    assert float(slope) == 0.0


@pytest.mark.parametrize("gap", [100.0, -100.0, 1e4])
@pytest.mark.parametrize("advantage", [3.0, -3.0])
def test_one_odd_token_cannot_overflow(gap: float, advantage: float):
    value, slope = jax.value_and_grad(clipped_surrogate)(jnp.float32(gap), jnp.float32(0), jnp.float32(advantage))
    assert np.isfinite(value) and slope == 0.0
    assert np.isfinite(jax.grad(kl_k3)(jnp.float32(gap), jnp.float32(0)))


def test_the_likelihood_loss_is_minus_the_log_prob():
    assert negative_log_likelihood(jnp.array([-0.5, -2.0])).tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("logp", "ref_logp", "k1", "k2", "k3"),
    [
        (-1.0, -1.0, 0.0, 0.0, 0.0),
        (-1.0, -2.0, 1.0, 0.5, np.exp(-1.0)),
        (-2.0, -1.0, -1.0, 0.5, np.e - 2.0),
        (-0.5, -3.5, 3.0, 4.5, np.exp(-3.0) + 2.0),
    ],
)
def test_the_kl_estimators_are_their_formulas(logp: float, ref_logp: float, k1: float, k2: float, k3: float):
    a, b = jnp.float32(logp), jnp.float32(ref_logp)
    assert [float(kl(a, b)) for kl in (kl_k1, kl_k2, kl_k3)] == pytest.approx([k1, k2, k3], abs=1e-6)


def test_k3_is_never_negative():
    rng = np.random.default_rng(0)
    logp, ref_logp = (jnp.asarray(-rng.exponential(3.0, 20_000), jnp.float32) for _ in range(2))
    assert float(kl_k3(logp, ref_logp).min()) >= 0.0
    close = logp + jnp.asarray(rng.normal(0, 1e-3, 20_000), jnp.float32)
    assert float(kl_k3(logp, close).min()) >= -1e-7


def two_categoricals(seed: int) -> tuple[Array, Array]:
    """Log-probs of a policy and a reference over six tokens."""
    a, b = jax.random.normal(jax.random.key(seed), (2, 6))
    return jax.nn.log_softmax(a), jax.nn.log_softmax(b)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kl", [kl_k1, kl_k3])
def test_the_expectation_of_k1_and_k3_is_the_exact_kl(kl: Callable[[Array, Array], Array], seed: int):
    logp, ref_logp = two_categoricals(seed)
    p, q = np.exp(np.float64(logp)), np.exp(np.float64(ref_logp))
    assert float(jnp.sum(jnp.exp(logp) * kl(logp, ref_logp))) == pytest.approx(float(np.sum(p * np.log(p / q))), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_gradient_of_k2_is_that_of_the_exact_kl(seed: int):
    _, ref_logp = two_categoricals(seed)
    logits = jax.random.normal(jax.random.key(100 + seed), (6,))

    def exact(logits: Array) -> Array:
        logp = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(logp) * (logp - ref_logp))

    def sampled(logits: Array) -> Array:
        logp = jax.nn.log_softmax(logits)
        return jnp.sum(jax.lax.stop_gradient(jnp.exp(logp)) * kl_k2(logp, ref_logp))

    np.testing.assert_allclose(jax.grad(sampled)(logits), jax.grad(exact)(logits), atol=1e-6)


@pytest.mark.parametrize("loss", [lambda a, b, c: clipped_surrogate(a, b, c), lambda a, b, c: kl_k3(a, b), lambda a, b, c: kl_k2(a, b)])
def test_a_loss_of_rows_is_the_loss_of_each_token(loss: Callable[[Array, Array, Array], Array]):
    a, b, c = jax.random.normal(jax.random.key(1), (3, 4, 5))
    whole = loss(a, b, c)
    flat = loss(a.reshape(-1), b.reshape(-1), c.reshape(-1))
    each = [float(loss(a[i, j], b[i, j], c[i, j])) for i in range(4) for j in range(5)]
    assert whole.shape == (4, 5) and whole.reshape(-1).tolist() == flat.tolist() == each
