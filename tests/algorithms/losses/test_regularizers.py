"""Regularizers, the value loss, and the tokens of largest covariance."""

import copy
import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import batch_shapes, make_credit_inputs, random_groups

from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.losses.covariance import ClipCov, KLCov, covariance
from agentrl_jax.algorithms.losses.entropy_band import (
    EntropyBand,
    EntropyHistory,
    constant_band_penalty,
    entropy_smoothing_loss,
    linear_band_penalty,
)
from agentrl_jax.algorithms.losses.regularizers import (
    EntropyBonus,
    PositiveExampleLMLoss,
    Regularizer,
    TokenCoefficient,
)
from agentrl_jax.algorithms.losses.value import value_loss
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.configs import chain_epo
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs

ENTROPY = jnp.asarray([0.5, 1.0, 1.5, 3.0])
HISTORY = jnp.ones(4)


def penalty_of_coefficients(
    regularizer: Regularizer, coefficient: list[float], **values: jax.Array
) -> jax.Array:
    """The sum of a regularizer's loss with given coefficients."""
    names = ("logp", "entropy", "proximal_logp", "ref_logp")
    arrays = {name: values.get(name, jnp.zeros(len(coefficient))) for name in names}
    data = TokenCoefficient(coefficient=jnp.asarray(coefficient))
    return jnp.sum(regularizer.loss(**arrays, data=data))


def test_the_released_band_penalty_is_a_constant():
    penalty = constant_band_penalty(ENTROPY, HISTORY, low=0.8, high=1.6, height=0.1)
    assert penalty.tolist() == pytest.approx([0.1, 0, 0, 0.1], abs=1e-7)
    unknown = constant_band_penalty(ENTROPY, jnp.full(4, jnp.nan), low=0.8, high=1.2, height=0.1)
    assert unknown.tolist() == [1.0] * 4
    at_the_end = constant_band_penalty(
        jnp.asarray([0.0]), jnp.ones(1), low=0.0, high=1.2, height=0.1
    )
    assert at_the_end.tolist() == pytest.approx([0.1])  # the endpoints are outside

    def loss(entropy: jax.Array, phase: float, band: float) -> jax.Array:
        return jnp.sum(
            entropy_smoothing_loss(
                entropy,
                constant_band_penalty(entropy, HISTORY, low=band, high=1.2, height=0.1),
                phase,
                coefficient=0.001,
            )
        )

    w = EPOPhaseWeight()(75)
    plain = penalty_of_coefficients(EntropyBonus(), [0.001] * 4, entropy=ENTROPY)
    assert float(loss(ENTROPY, w, 0.8) - plain) == pytest.approx(
        0.001 * w * 0.1 * 3, rel=1e-3
    )  # .5, 1.5 and 3 are outside .8 to 1.2
    assert jax.grad(loss)(ENTROPY, w, 0.8).tolist() == pytest.approx([-0.001] * 4)
    assert float(loss(ENTROPY, 0.0, 0.8)) == pytest.approx(float(plain))


def test_the_distance_to_the_band_has_a_gradient_outside_it_only():
    def penalty(entropy: jax.Array) -> jax.Array:
        return jnp.sum(linear_band_penalty(entropy, HISTORY, low=0.8, high=1.6, height=2.0))

    assert float(penalty(ENTROPY)) == pytest.approx(2 * (0.3 + 1.4))
    assert jax.grad(penalty)(ENTROPY).tolist() == [-2.0, 0.0, 0.0, 2.0]

    def default_penalty(entropy: jax.Array, history: jax.Array) -> jax.Array:
        return jnp.sum(linear_band_penalty(entropy, history, low=0.8, high=1.2, height=0.1))

    value, slope = jax.value_and_grad(default_penalty)(ENTROPY, jnp.full(4, jnp.nan))
    assert float(value) == 0.0 and slope.tolist() == [0.0] * 4
    extreme = jax.grad(default_penalty)(jnp.asarray([0.0, 1e30, 1e-30, 1.0]), HISTORY)
    assert np.isfinite(extreme).all()


@given(shapes=batch_shapes, more=batch_shapes)
@settings(max_examples=40, deadline=None)
def test_historical_entropy_is_a_plain_mean_by_turn_index(shapes: list, more: list):
    history, entropies = EntropyHistory(), dict[int, list[float]]()
    for i, each in enumerate((shapes, more)):
        inputs = make_credit_inputs(random_groups(each), "token_entropy", seed=i)
        assert inputs.token_entropy is not None
        history.add(inputs, inputs.token_entropy)
        r = 0
        for trajectory in inputs.trajectories:
            for index in range(len(trajectory.turns)):
                entropies.setdefault(index, []).append(
                    float(inputs.token_entropy[inputs.token_turn == r].mean())
                )
                r += 1
    again = EntropyHistory()
    again.load(json.loads(json.dumps(history.state())))
    longest = make_credit_inputs(random_groups([[[(1, 2, False, 0.0)] * 5]]))
    expected = [
        float(np.mean(entropies[index])) if index in entropies else np.nan
        for index in range(5)
        for _ in range(2)
    ]
    assert again(longest) == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert np.isnan(EntropyHistory()(longest)).all()


def test_the_phase_and_the_band_of_the_config_act_within_its_run():
    run = chain_epo.get_config().phases["rl"]
    assert isinstance(run.algorithm, PolicyGradientConfig)
    band = copy.deepcopy(run.algorithm.regularizers["entropy"])
    assert isinstance(band, EntropyBand) and band.phase_weight is not None
    weights = [band.phase_weight(step) for step in (0, run.steps // 2, run.steps - 1)]
    assert weights == pytest.approx([1.0, 0.8271, 0.8 * math.exp(-3 * 19 / 20)], abs=1e-4)
    inputs = make_credit_inputs(random_groups([[[(1, 2, False, 0.0)] * 8]]), "token_entropy")
    zeros = np.zeros(16)
    data = band.token_data(inputs, zeros, zeros, run.steps // 2)
    assert data.phase_weight[:8].tolist() == [0.0] * 8  # two tokens in each of the early turns
    assert data.phase_weight[8:] == pytest.approx([100 * 0.8271] * 8, abs=0.01)


def test_value_loss_clips_as_ppo_does():
    value, target = jnp.asarray([1.0, 1.0, 0.5, 5.0]), jnp.asarray([2.0, 0.0, 0.5, 0.0])
    old = jnp.asarray([0.0, 0.0, 0.5, 0.0])
    clipped = [0.2, 0.2, 0.5, 0.2]
    expected = [
        0.5 * max((v - t) ** 2, (h - t) ** 2)
        for v, t, h in zip(value.tolist(), target.tolist(), clipped)
    ]
    assert value_loss(value, old, target, clip=0.2).tolist() == pytest.approx(expected, rel=1e-6)
    plain = value_loss(value, old, target, clip=float("inf"))
    assert plain.tolist() == pytest.approx([0.5, 0.5, 0, 12.5])
    slope = jax.grad(lambda v: jnp.sum(value_loss(v, old, target, clip=0.2)))(value)
    # where the clipped value is further from the target, its derivative, 0, is used
    assert slope.tolist() == pytest.approx([0.0, 1.0, 0.0, 5.0])
    assert jax.grad(lambda v: jnp.sum(value_loss(v, v, target, clip=0.2)))(
        value
    ).tolist() == pytest.approx((value - target).tolist())


def test_positive_example_loss_is_the_likelihood_of_successful_trajectories():
    logp = jnp.asarray([-1.0, -2.0])
    value, slope = jax.value_and_grad(
        lambda x: penalty_of_coefficients(PositiveExampleLMLoss(), [0.1, 0.0], logp=x)
    )(logp)
    assert float(value) == pytest.approx(0.1) and slope.tolist() == pytest.approx([-0.1, 0.0])


def test_kl_cov_penalizes_the_log_ratio_by_each_tokens_coefficient():
    logp, proximal = jnp.asarray([-1.0, -2.0, -1.0]), jnp.asarray([-1.5, -1.0, -3.0])
    value, slope = jax.value_and_grad(
        lambda x: penalty_of_coefficients(
            KLCov(0.5), [1.0, 2.0, 0.0], logp=x, proximal_logp=proximal
        )
    )(logp)
    assert float(value) == 2.5 and slope.tolist() == [1.0, -2.0, 0.0]


def scored(shapes: list, seed: int) -> tuple[CreditInputs, np.ndarray]:
    inputs = make_credit_inputs(random_groups(shapes), "token_logp", seed=seed)
    return inputs, np.random.default_rng(seed + 1).normal(size=len(inputs.token_sequence))


@given(shapes=batch_shapes, seed=st.integers(0, 99), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_clip_cov_drops_some_tokens_of_the_band_and_kl_cov_selects_the_top(
    shapes: list, seed: int, share: float
):
    inputs, advantage = scored(shapes, seed)
    logp, n = inputs.token_logp, len(advantage)
    assert logp is not None
    cov = [(a - advantage.mean()) * (x - logp.mean()) for a, x in zip(advantage, logp)]
    assert covariance(inputs, advantage) == pytest.approx(cov, abs=1e-12)
    keep = ClipCov(share, 0.1, 1.0)(inputs, advantage, np.random.default_rng(seed))
    inside = [0.1 < c < 1.0 for c in cov]
    assert all(i for k, i in zip(keep, inside) if not k)
    assert (~keep).sum() == (0 if share == 0 else min(sum(inside), max(1, int(share * n))))
    weight = np.ones(n)
    marked = np.asarray(KLCov(share, 0.7).token_data(inputs, advantage, weight, step=0).coefficient)
    count = 0 if share == 0 else min(n, max(1, int(share * n)))
    assert (marked > 0).sum() == count and set(marked.tolist()) <= {0.0, 0.7}
    if 0 < count < n:
        assert (
            min(c for c, m in zip(cov, marked) if m)
            >= max(c for c, m in zip(cov, marked) if not m) - 1e-12
        )


def test_covariances_need_the_learners_log_probs():
    inputs, advantage = scored([[[(1, 3, False, 0.0)]]], 0)
    with pytest.raises(UserError, match="log-prob under the learner is not known"):
        covariance(dataclasses.replace(inputs, token_logp=None), advantage)
    draws = [
        ClipCov(0.4, -9.0, 9.0)(inputs, advantage, np.random.default_rng(s)).tolist()
        for s in range(20)
    ]
    assert (
        all(sum(d) == 2 for d in draws) and len({tuple(d) for d in draws}) == 3
    )  # any one of the three tokens is dropped
