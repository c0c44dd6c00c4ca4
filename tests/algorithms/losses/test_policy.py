"""Losses against tables worked by hand, gradients of equivalent losses, and exact divergences."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from agentrl_jax.algorithms.losses.cispo import CISPO
from agentrl_jax.algorithms.losses.gspo import GSPO
from agentrl_jax.algorithms.losses.kl import kl_k1, kl_k2, kl_k3
from agentrl_jax.algorithms.losses.policy import (
    REINFORCE,
    SurrogateLoss,
    negative_log_likelihood,
    weighted_likelihood,
)
from agentrl_jax.algorithms.losses.ppo import PPO, GradientPreservingPPO, StepPPO, clipped_surrogate


def ppo_loss(logp: Array, proximal_logp: Array, advantage: Array, **clip: float) -> Array:
    widths: dict[str, float | None] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}
    return clipped_surrogate(logp, proximal_logp, advantage, **{**widths, **clip})


def surrogate(ratio: float, advantage: float, **clip: float) -> tuple[float, float]:
    """The loss at a ratio, and its derivative in logp."""

    def loss(logp: Array) -> Array:
        return ppo_loss(logp, jnp.float32(-1.0), jnp.float32(advantage), **clip)

    value, slope = jax.value_and_grad(loss)(jnp.float32(-1.0 + np.log(ratio)))
    return float(value), float(slope)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        # inside the clip range: -A r, with the same derivative in logp
        (1.0, 1.0, -1.0, -1.0),
        (1.0, -1.0, 1.0, 1.0),
        (1.1, 2.0, -2.2, -2.2),
        (0.9, -2.0, 1.8, 1.8),
        # no incentive above 1.2 for a positive advantage, nor below 0.8 for a negative one
        (1.5, 1.0, -1.2, 0.0),
        (0.5, -1.0, 0.8, 0.0),
        # a ratio that moved against its advantage always has a gradient
        (0.5, 1.0, -0.5, -0.5),
        (1.5, -1.0, 1.5, 1.5),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_the_clipped_surrogate_matches_the_table(
    ratio: float, advantage: float, value: float, slope: float
):
    assert surrogate(ratio, advantage) == pytest.approx((value, slope), abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [
        (1.5, 1.0, -1.28),
        (1.25, 1.0, -1.25),
        (0.5, -1.0, 0.9),
        (0.95, -1.0, 0.95),
        (0.5, 1.0, -0.5),
        (1.5, -1.0, 1.5),
    ],
)
def test_the_two_clip_widths_differ(ratio: float, advantage: float, value: float):
    assert surrogate(ratio, advantage, clip_low=0.1, clip_high=0.28)[0] == pytest.approx(
        value, abs=1e-6
    )
    logp, proximal, weight = map(jnp.float32, (np.log(ratio), 0, advantage))
    slot = PPO(0.1, 0.28)(logp, proximal, weight, jnp.ones(()), jnp.zeros(()))
    assert float(slot) == pytest.approx(value, abs=1e-6)


def test_at_ratio_one_the_gradient_is_that_of_reinforce():
    logits = jax.random.normal(jax.random.key(0), (5, 7))
    token, advantage = jnp.arange(5), jnp.array([2.0, -1.0, 0.0, 0.5, -3.0])

    def logp(logits: Array) -> Array:
        return jax.nn.log_softmax(logits)[jnp.arange(5), token]

    clipped = jax.grad(
        lambda x: jnp.sum(ppo_loss(logp(x), jax.lax.stop_gradient(logp(x)), advantage))
    )(logits)
    reinforce = jax.grad(lambda x: jnp.sum(-advantage * logp(x)))(logits)
    np.testing.assert_allclose(clipped, reinforce, atol=1e-7)


def test_no_gradient_reaches_the_proximal_policy():
    slope = jax.grad(lambda proximal: ppo_loss(jnp.float32(-1.0), proximal, jnp.float32(2.0)))(
        jnp.float32(-1.1)
    )
    assert float(slope) == 0.0


@pytest.mark.parametrize("gap", [100.0, -100.0, 1e4])
@pytest.mark.parametrize("advantage", [3.0, -3.0])
def test_an_extreme_ratio_cannot_overflow(gap: float, advantage: float):
    value, slope = jax.value_and_grad(ppo_loss)(
        jnp.float32(gap), jnp.float32(0), jnp.float32(advantage)
    )
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
def test_the_kl_estimators_are_their_formulas(
    logp: float, ref_logp: float, k1: float, k2: float, k3: float
):
    a, b = jnp.float32(logp), jnp.float32(ref_logp)
    assert [float(kl(a, b)) for kl in (kl_k1, kl_k2, kl_k3)] == pytest.approx(
        [k1, k2, k3], abs=1e-6
    )


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
def test_the_expectation_of_k1_and_k3_is_the_exact_kl(
    kl: Callable[[Array, Array], Array], seed: int
):
    logp, ref_logp = two_categoricals(seed)
    p, q = np.exp(np.float64(logp)), np.exp(np.float64(ref_logp))
    assert float(jnp.sum(jnp.exp(logp) * kl(logp, ref_logp))) == pytest.approx(
        float(np.sum(p * np.log(p / q))), abs=1e-6
    )


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


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b, c: ppo_loss(a, b, c),
        lambda a, b, c: kl_k3(a, b),
        lambda a, b, c: kl_k2(a, b),
    ],
)
def test_a_batched_loss_is_the_loss_of_each_token(loss: Callable[[Array, Array, Array], Array]):
    a, b, c = jax.random.normal(jax.random.key(1), (3, 4, 5))
    batch_loss = loss(a, b, c)
    flat = loss(a.reshape(-1), b.reshape(-1), c.reshape(-1))
    each = [float(loss(a[i, j], b[i, j], c[i, j])) for i in range(4) for j in range(5)]
    assert batch_loss.shape == (4, 5) and batch_loss.reshape(-1).tolist() == flat.tolist() == each


def slopes(loss: Callable[[Array], Array], logp: Array) -> np.ndarray:
    return np.asarray(jax.grad(lambda x: jnp.sum(loss(x)))(logp))


YES, ONE_SEQUENCE = jnp.ones((1, 4), bool), jnp.zeros((1, 4), jnp.int32)
TRUE, ZERO = jnp.asarray(True), jnp.asarray(0)  # for losses of one token at a time
SURROGATES: list[SurrogateLoss] = [
    REINFORCE(),
    PPO(),
    PPO(0.1, 0.28, 10.0),
    GradientPreservingPPO(),
    CISPO(0.2, 0.28),
    GSPO(),
    StepPPO(),
    StepPPO(dual_clip=3.0),
]
PER_TOKEN = [REINFORCE(), PPO(0.1, 0.28, 3.0), GradientPreservingPPO(0.1, 0.28), CISPO(0.2, 0.28)]


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (2.0, -1.0, 2.0, 2.0),
        (4.0, -1.0, 3.0, 0.0),
        (4.0, 1.0, -1.2, 0.0),
        (0.5, -1.0, 0.8, 0.0),
        (4.0, -2.0, 6.0, 0.0),
    ],
)
def test_the_dual_clip_bounds_the_loss_at_a_negative_advantage(
    ratio: float, advantage: float, value: float, slope: float
):
    assert surrogate(ratio, advantage, dual_clip=3.0) == pytest.approx((value, slope), abs=1e-5)


@pytest.mark.parametrize(
    "loss",
    [REINFORCE(), PPO(), PPO(0.1, 0.28, 3.0), GradientPreservingPPO(), CISPO(0.2, 0.28), GSPO()],
)
def test_at_ratio_one_every_loss_has_the_gradient_of_reinforce(loss: SurrogateLoss):
    logp = jnp.asarray([[-1.0, -2.0, -0.5, -3.0]])
    advantage = jnp.asarray([[2.0, -1.0, 0.0, 0.5]])
    result = slopes(lambda x: loss(x, logp, advantage, YES, ONE_SEQUENCE), logp)
    np.testing.assert_allclose(result, -advantage, atol=1e-6)


def test_a_step_of_one_token_is_ppo_and_at_ratio_one_its_tokens_share_the_gradient():
    logp, proximal = (
        jnp.asarray([[-1.0, -2.0, -0.5, -3.0]]),
        jnp.asarray([[-1.3, -1.9, -0.5, -2.0]]),
    )
    advantage, each = jnp.asarray([[2.0, -1.0, 0.7, 0.5]]), jnp.arange(4, dtype=jnp.int32)[None]
    np.testing.assert_allclose(
        StepPPO()(logp, proximal, advantage, YES, each),
        PPO()(logp, proximal, advantage, YES, each),
        rtol=1e-6,
    )
    same, sevenths = jnp.full((1, 4), 0.7), jnp.full((1, 4), 0.25)
    shared = slopes(lambda x: sevenths * StepPPO()(x, logp, same, YES, ONE_SEQUENCE), logp)
    np.testing.assert_allclose(shared, -same, atol=1e-6)


def test_a_steps_ratio_is_the_product_of_its_tokens_ratios():
    rng = np.random.default_rng(0)
    logp, proximal = (jnp.asarray(rng.normal(-1, 0.2, (2, 9)), jnp.float32) for _ in range(2))
    mask = jnp.asarray([[1] * 7 + [0, 1], [0, 1, 1, 1, 1, 1, 1, 1, 0]], bool)
    ids = jnp.asarray([[0] * 7 + [1, 1], [4] * 9], jnp.int32)
    advantage = jnp.asarray([[1.5] * 7 + [-2.0] * 2, [0.3] * 9])
    result = StepPPO()(logp, proximal, advantage, mask, ids)
    for b, columns in ((0, range(7)), (0, [8]), (1, range(1, 8))):
        ratio = np.exp(sum(float(logp[b, t]) - float(proximal[b, t]) for t in columns))
        a = float(advantage[b, columns[0]])
        expected = max(-a * ratio, -a * min(max(ratio, 0.8), 1.2))
        assert result[b, jnp.asarray(columns)].tolist() == pytest.approx(
            [expected] * len(columns), rel=1e-5
        )


def test_gspos_ratio_is_the_geometric_mean_over_its_sequence():
    logp = jnp.asarray([[-1.0, -2.0, -0.5, -3.0]])
    proximal = jnp.asarray([[-1.2, -1.9, -0.5, -2.9]])
    mask, ids = jnp.asarray([[True, True, False, True]]), jnp.asarray([[0, 0, 0, 1]], jnp.int32)
    wide = GSPO(0.5, 0.5)
    s = np.exp([0.05, 0.05, 0.0, -0.1])  # means of (.2, -.1) and (-.1)
    result = wide(logp, proximal, jnp.full((1, 4), 2.0), mask, ids)
    assert result[0].tolist() == pytest.approx((-2 * s * [1, 1, 0, 1]).tolist(), rel=1e-5)
    # each token has the gradient of its own log-prob, scaled by the sequence's ratio
    result = slopes(lambda x: wide(x, proximal, jnp.full((1, 4), 2.0), mask, ids), logp)
    assert result[0].tolist() == pytest.approx((-2 * s * [1, 1, 0, 1]).tolist(), rel=1e-5)
    # above 1.0004 a sequence of positive advantage has no gradient, nor below .9997 one of negative
    # advantage
    assert slopes(lambda x: GSPO()(x, proximal, jnp.ones((1, 4)), mask, ids), logp)[
        0
    ].tolist() == pytest.approx([0, 0, 0, -s[3]], rel=1e-5)
    assert slopes(lambda x: GSPO()(x, proximal, -jnp.ones((1, 4)), mask, ids), logp)[
        0
    ].tolist() == pytest.approx([s[0], s[1], 0, 0], rel=1e-5)


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.5, 3.0, 30.0, -0.5, -30.0])
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_a_preserved_gradient_changes_no_value(gap: float, advantage: float):
    logp, a = jnp.float32(-1.0), jnp.float32(advantage)
    plain, preserving = PPO(0.2, 0.28, 3.0), GradientPreservingPPO(0.2, 0.28, 3.0)
    both = [
        jax.value_and_grad(lambda x, f=f: f(x, logp, a, TRUE, ZERO))(logp + gap)
        for f in (plain, preserving)
    ]
    assert float(both[0][0]) == pytest.approx(float(both[1][0]), rel=1e-6)
    if advantage > 0 and gap > 0.3:
        assert (float(both[0][1]), float(both[1][1])) == pytest.approx(
            (0.0, -1.28 * advantage), rel=1e-6
        )
    else:
        assert float(both[0][1]) == float(both[1][1])


@pytest.mark.parametrize(
    ("ratio", "weight"), [(1.0, 1.0), (1.1, 1.1), (2.0, 1.28), (0.5, 0.8), (0.9, 0.9)]
)
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_cispo_leaves_every_token_a_gradient(ratio: float, weight: float, advantage: float):
    proximal = jnp.float32(-1.0)
    logp = proximal + np.float32(np.log(ratio))
    value, slope = jax.value_and_grad(
        lambda x: CISPO(0.2, 0.28)(x, proximal, jnp.float32(advantage), TRUE, ZERO)
    )(logp)
    assert float(slope) == pytest.approx(-weight * advantage, rel=1e-5)
    assert float(value) == pytest.approx(-weight * advantage * float(logp), rel=1e-5)


def test_weighted_imitation_has_minus_the_weight_as_its_gradient():
    logp, weight = jnp.asarray([-1.0, -2.0, -3.0]), jnp.asarray([1.0, 0.0, -0.5])
    assert slopes(lambda x: weighted_likelihood(x, weight), logp).tolist() == [-1.0, 0.0, 0.5]
    assert weighted_likelihood(logp, jnp.ones(3)).tolist() == negative_log_likelihood(logp).tolist()


@pytest.mark.parametrize("loss", SURROGATES)
@pytest.mark.parametrize("gap", [1e4, -1e4])
@pytest.mark.parametrize("advantage", [3.0, -3.0])
def test_no_loss_overflows_and_masked_tokens_have_no_effect(
    loss: SurrogateLoss, gap: float, advantage: float
):
    proximal = jnp.full((1, 4), -1.0)
    logp = proximal.at[0, 1].set(gap)
    value, slope = jax.value_and_grad(
        lambda x: jnp.sum(loss(x, proximal, jnp.full((1, 4), advantage), YES, ONE_SEQUENCE))
    )(logp)
    assert np.isfinite(value) and np.isfinite(slope).all()
    mask = YES.at[0, 1].set(False)

    def weighed(x: Array) -> Array:
        return jnp.sum(
            jnp.where(mask, loss(x, proximal, jnp.full((1, 4), advantage), mask, ONE_SEQUENCE), 0.0)
        )

    out, in_place = slopes(weighed, logp), slopes(weighed, proximal)
    assert out[0, 1] == 0.0 and out.tolist() == in_place.tolist()


@pytest.mark.parametrize("loss", PER_TOKEN)
def test_a_token_loss_is_the_same_for_scalars_rows_and_batches(loss: SurrogateLoss):
    a, b, c = jax.random.normal(jax.random.key(1), (3, 2, 3))
    batch_loss = loss(a, b, c, TRUE, ZERO)
    each = [float(loss(a[i, j], b[i, j], c[i, j], TRUE, ZERO)) for i in range(2) for j in range(3)]
    assert batch_loss.reshape(-1).tolist() == pytest.approx(each, rel=1e-6)


@pytest.mark.parametrize(("gap", "log_ratio"), [(25.0, 20.0), (-25.0, -20.0), (19.5, 19.5)])
def test_a_log_ratio_is_clipped_at_twenty(gap: float, log_ratio: float):
    logp, proximal = jnp.full((1, 4), gap / 4), jnp.zeros((1, 4))
    minus, expected = jnp.full((1, 4), -1.0), np.exp(log_ratio)  # unclipped at a negative advantage
    for loss, x in (
        (PPO(clip_low=1.0), 4 * logp),
        (GradientPreservingPPO(clip_low=1.0, dual_clip=None), 4 * logp),
        (GSPO(clip_low=1.0), 4 * logp),  # the mean over the sequence
        (StepPPO(clip_low=1.0), logp),  # the sum over the step
    ):
        result = loss(x, proximal, minus, YES, ONE_SEQUENCE)
        np.testing.assert_allclose(result, jnp.full((1, 4), expected), rtol=1e-5)
    weight = CISPO(1.0, 1e9)(4 * logp, proximal, minus, YES, ONE_SEQUENCE) / (4 * logp)
    np.testing.assert_allclose(weight, jnp.full((1, 4), expected), rtol=1e-5)
    assert float(kl_k3(jnp.float32(gap), jnp.float32(0))) == pytest.approx(
        np.exp(-log_ratio) + log_ratio - 1, rel=1e-5
    )


@pytest.mark.parametrize("loss", SURROGATES)
def test_a_loss_has_a_gradient_in_the_current_log_probs_alone(loss: SurrogateLoss):
    rng = np.random.default_rng(0)
    logp, proximal = (jnp.asarray(rng.normal(-1, 0.05, (1, 4)), jnp.float32) for _ in range(2))
    advantage = jnp.asarray([[2.0, -1.0, 3.0, 0.5]])
    sign = jax.grad(lambda x, p: jnp.sum(loss(x, p, advantage, YES, ONE_SEQUENCE)), argnums=(0, 1))(
        logp, proximal
    )
    assert jnp.abs(sign[0]).max() > 0 and not sign[1].any()


def test_the_tokens_of_a_step_or_a_sequence_that_are_masked_have_no_loss():
    logp, proximal = jnp.asarray([[-1.0, -2.0, -0.5, -3.0]]), jnp.full((1, 4), -1.5)
    mask = jnp.asarray([[True, False, True, False]])
    for loss in (GSPO(), StepPPO(), StepPPO(dual_clip=3.0)):
        result = loss(logp, proximal, jnp.full((1, 4), 2.0), mask, ONE_SEQUENCE)
        assert (np.asarray(result) != 0).tolist() == np.asarray(mask).tolist()


def test_a_steps_loss_is_bounded_by_the_dual_clip():
    logp, proximal = jnp.full((1, 4), 0.5), jnp.zeros((1, 4))  # a ratio of exp(2) = 7.39
    minus = jnp.full((1, 4), -2.0)
    for dual_clip, expected in ((None, 2 * np.exp(2.0)), (3.0, 6.0)):
        loss = StepPPO(dual_clip=dual_clip)(logp, proximal, minus, YES, ONE_SEQUENCE)
        np.testing.assert_allclose(loss, jnp.full((1, 4), expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [
        (REINFORCE(), 0.2, 0.2),
        (PPO(), 0.2, 0.2),
        (PPO(0.1, 0.28), 0.1, 0.28),
        (GradientPreservingPPO(), 0.2, 0.2),
        (StepPPO(), 0.2, 0.2),
        (CISPO(0.3, 0.4), 0.3, 0.4),
        (GSPO(), 3e-4, 4e-4),
    ],
)
def test_the_metrics_of_clipping_count_at_the_widths_of_the_loss(
    loss: SurrogateLoss, low: float, high: float
):
    assert loss.clip_widths == (low, high)


def test_only_the_variant_that_keeps_gradients_has_a_dual_clip_by_default():
    assert GradientPreservingPPO().dual_clip == 3.0  # AEPO's
    assert PPO().dual_clip is None and StepPPO().dual_clip is None
