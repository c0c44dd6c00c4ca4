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
from support.fixtures import (
    batch_shapes,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
)

from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.losses.covariance import (
    ClipCov,
    ClipCovAdvantages,
    KLCov,
    covariance,
)
from agentrl_jax.algorithms.losses.entropy_band import (
    EntropyBand,
    EntropyHistory,
    constant_band_penalty,
    entropy_smoothing_loss,
    linear_band_penalty,
)
from agentrl_jax.algorithms.losses.kl import kl_k1
from agentrl_jax.algorithms.losses.regularizers import (
    KL,
    AttemptKL,
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
from agentrl_jax.trajectories import Group

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
    half, last = run.steps // 2, run.steps - 1
    weights = [band.phase_weight(step) for step in (0, half, last)]
    late = 0.8 * math.exp(-3 * (last - half) / half)
    assert weights == pytest.approx([1.0, 0.8271, late], abs=1e-4)
    inputs = make_credit_inputs(random_groups([[[(1, 2, False, 0.0)] * 8]]), "token_entropy")
    zeros = np.zeros(16)
    data = band.token_data(inputs, zeros, zeros, half)
    assert data.phase_weight == pytest.approx([100 * 0.8271] * 16, abs=0.01)
    late_turns = dataclasses.replace(band, second_half_of=8)
    data = late_turns.token_data(inputs, zeros, zeros, half)
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


def one_turn_of(advantage: list[float], logp: list[float]) -> tuple[CreditInputs, np.ndarray]:
    groups = random_groups([[[(1, len(logp), False, 0.0)]]])
    return make_credit_inputs(groups, token_logp=np.array(logp)), np.array(advantage)


def test_tokens_at_the_limits_of_the_covariance_band_are_trained():
    inputs, advantage = one_turn_of([1.0, -1.0, 0.0], [-1.0, -3.0, -2.0])
    assert covariance(inputs, advantage).tolist() == [1.0, 1.0, 0.0]
    rng = np.random.default_rng(0)
    assert ClipCov(1.0, 1.0, 2.0)(inputs, advantage, rng).all()
    assert ClipCov(1.0, 0.5, 1.0)(inputs, advantage, rng).all()
    assert ClipCov(1.0, 0.5, 2.0)(inputs, advantage, rng).tolist() == [False, False, True]
    assert KLCov(0.3).token_coefficients(inputs, advantage, np.ones(3), 0).tolist() == [1, 0, 0]


def test_every_batch_has_its_own_draw_which_a_resumed_run_repeats():
    inputs, advantage = one_turn_of([3.0, -2.0] * 10, [-1.0, -4.0] * 10)
    config = ClipCov(0.3, 0.0, 99.0)
    transform = ClipCovAdvantages(config)
    draws = [transform(inputs, advantage) for _ in range(3)]
    assert transform.state() == 3
    assert [np.count_nonzero(draw == 0) for draw in draws] == [6, 6, 6]
    assert len({tuple(draw) for draw in draws}) == 3
    assert all(set(draw[draw != 0]) == {3.0, -2.0} for draw in draws)
    resumed = ClipCovAdvantages(config, seed=0)
    resumed.load(2)
    assert resumed(inputs, advantage).tolist() == draws[2].tolist()
    other = ClipCovAdvantages(config, seed=1)
    assert other(inputs, advantage).tolist() != draws[0].tolist()


def test_the_band_is_relative_to_the_historical_entropy():
    entropy, history = jnp.asarray([1.5, 1.7, 2.4, 2.5]), jnp.full(4, 2.0)  # band 1.6 to 2.4
    linear = linear_band_penalty(entropy, history, low=0.8, high=1.2, height=3.0)
    assert linear.tolist() == pytest.approx([0.3, 0.0, 0.0, 0.3], abs=1e-5)
    constant = constant_band_penalty(
        jnp.asarray([1.5, 1.7, 2.25, 2.5]), history, low=0.8, high=1.125, height=3.0
    )
    assert constant.tolist() == [3.0, 0.0, 3.0, 3.0]  # 2.25 is the upper limit, and outside


def band_loss(band: EntropyBand, entropy: list[float], history: list[float]) -> jax.Array:
    """The loss of tokens with an entropy and a historical one, in the first turn."""
    inputs = make_credit_inputs(
        random_groups([[[(1, len(entropy), False, 0.0)]]]), token_entropy=np.array(entropy)
    )
    zeros = np.zeros(len(entropy))
    data = dataclasses.replace(
        band.token_data(inputs, zeros, zeros, 0), historical_entropy=np.array(history)
    )
    data = jax.tree.map(lambda x: np.asarray(x, np.float32), data)
    nothing = jnp.zeros(len(entropy))
    return band.loss(nothing, jnp.asarray(entropy), nothing, nothing, data)


def test_without_a_schedule_the_band_has_its_full_weight():
    # -1e-3 (H - .1 x distance to [.8, 1.2])
    loss = band_loss(EntropyBand(), [0.5, 1.0, 2.0], [1.0] * 3)
    assert loss.tolist() == pytest.approx([-0.47e-3, -1e-3, -1.92e-3], rel=1e-4)
    twice = band_loss(EntropyBand(smoothing=2.0), [0.5, 1.0, 2.0], [1.0] * 3)
    assert twice.tolist() == pytest.approx([-0.44e-3, -1e-3, -1.84e-3], rel=1e-4)
    constant = band_loss(EntropyBand(constant_penalty=True), [0.5, 1.0, 2.0], [1.0] * 3)
    assert constant.tolist() == pytest.approx([-0.4e-3, -1e-3, -1.9e-3], rel=1e-4)
    unknown = band_loss(EntropyBand(), [0.5], [math.nan])
    assert unknown.tolist() == pytest.approx([-0.5e-3], rel=1e-4)


@pytest.mark.parametrize(("turns", "active"), [(0, [1, 1, 1]), (2, [0, 1, 1]), (5, [0, 0, 1])])
def test_the_band_applies_in_the_second_half_of_an_episode(turns: int, active: list[int]):
    inputs = make_credit_inputs(random_groups([[[(1, 1, False, 0.0)] * 3]]), "token_entropy")
    data = EntropyBand(second_half_of=turns).token_data(inputs, np.zeros(3), np.zeros(3), 0)
    assert data.phase_weight.tolist() == active and data.active.tolist() == [1, 1, 1]


def test_historical_entropies_are_those_of_earlier_rollouts():
    band = EntropyBand()
    inputs = make_credit_inputs(
        random_groups([[[(1, 2, False, 0.0), (1, 1, False, 0.0)]]]),
        token_entropy=np.array([1.0, 2.0, 5.0]),
    )
    first = band.token_data(inputs, np.zeros(3), np.zeros(3), 0)
    assert np.isnan(first.historical_entropy).all()
    resumed = EntropyBand()
    resumed.load(json.loads(json.dumps(band.state())))
    for x in (band, resumed):
        second = x.token_data(inputs, np.zeros(3), np.zeros(3), 1)
        assert second.historical_entropy.tolist() == [1.5, 1.5, 5.0]


def test_turns_without_tokens_have_no_historical_entropy():
    silent = make_trajectory(make_turn([make_call([1], [])]), make_turn([make_call([1], [2])]))
    inputs = make_credit_inputs([Group("a", (silent,))], token_entropy=np.array([3.0]))
    history = EntropyHistory()
    history.add(inputs, np.array([3.0]))
    both = make_credit_inputs(random_groups([[[(1, 1, False, 0.0)] * 2]]))
    assert history(both).tolist() == pytest.approx([math.nan, 3.0], nan_ok=True)


def test_the_mean_over_positive_examples_leaves_out_masked_tokens():
    won, lost = (
        make_trajectory(make_turn([make_call([1], [2, 3, 4])], terminated=True)) for _ in range(2)
    )
    inputs = make_credit_inputs([Group("a", (won, lost))])
    loss = PositiveExampleLMLoss(0.3, is_positive=lambda t: t is inputs.trajectories[0])
    weight = np.array([0.2, 0.0, 0.5, 0.1, 0.1, 0.1])
    coefficient = loss.token_coefficients(inputs, np.zeros(6), weight, 0)
    # .3 x the mean over two tokens, after the multiplication by the weight
    assert weight * coefficient == pytest.approx([0.15, 0, 0.15, 0, 0, 0])
    assert not coefficient[[1, 3, 4, 5]].any()


def test_coefficients_of_the_regularizers_are_those_of_their_schedules():
    inputs = make_credit_inputs(random_groups([[[(1, 1, False, 0.0)] * 3]]))
    for regularizer, expected in (
        (KL(), [1e-3] * 3),
        (KL(lambda step: 0.5 * step), [1.0] * 3),
        (EntropyBonus(), [1e-3] * 3),
        (AttemptKL(lambda step: (0.1 * step, 0.3)), [0.2, 0.3, 0.3]),
    ):
        data = regularizer.token_data(inputs, np.zeros(3), np.ones(3), 2)
        assert np.asarray(data.coefficient).tolist() == pytest.approx(expected)
    assert PositiveExampleLMLoss().coefficient == 0.1  # VAPO's
    assert KL.needs_reference and AttemptKL.needs_reference and not EntropyBonus.needs_reference


def test_penalties_at_coefficient_one():
    logp, entropy = jnp.asarray([-1.0, -2.0]), jnp.asarray([0.7, 0.1])
    proximal, ref = jnp.asarray([-1.5, -2.0]), jnp.asarray([-2.0, -2.5])
    for regularizer, expected in (
        (KL(estimator=kl_k1), [1.0, 0.5]),
        (KL(), [np.exp(-1.0), np.exp(-0.5) - 0.5]),  # k3
        (AttemptKL(lambda step: (1.0,)), [np.exp(-1.0), np.exp(-0.5) - 0.5]),
        (EntropyBonus(), [-0.7, -0.1]),
        (PositiveExampleLMLoss(), [1.0, 2.0]),
        (KLCov(0.1), [0.5, 0.0]),
    ):
        penalty = regularizer.penalty(logp, entropy, proximal, ref)
        assert penalty.tolist() == pytest.approx(expected, rel=1e-5)
    slope = jax.grad(lambda p: jnp.sum(KLCov(0.1).penalty(logp, entropy, p, ref)))(proximal)
    assert not slope.any()
