"""Regularisers, the critic's loss, and which tokens move the entropy."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.covariance import ClipCov, KLCov, covariance
from agentrl_jax.algorithms.regularisers import (
    UsualEntropy,
    distance_to_band,
    entropy_bonus,
    outside_band,
    positive_likelihood,
    sequence_entropy,
    smoothed_entropy,
    value_loss,
    weighted_gap,
)
from agentrl_jax.algorithms.schedules import PhaseWeight
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence

ENTROPY = jnp.asarray([0.5, 1.0, 1.5, 3.0])
USUAL = jnp.ones(4)


def test_the_band_as_released_is_a_constant():
    penalty = outside_band(ENTROPY, USUAL, low=0.8, high=1.6, height=0.1)
    assert penalty.tolist() == pytest.approx([0.1, 0, 0, 0.1], abs=1e-7)
    assert outside_band(ENTROPY, jnp.full(4, jnp.nan)).tolist() == [1.0] * 4
    assert outside_band(jnp.asarray([0.0]), jnp.ones(1), low=0.0).tolist() == pytest.approx([0.1])  # the ends are outside

    def loss(entropy: jax.Array, phase: float, band: float) -> jax.Array:
        return jnp.sum(smoothed_entropy(entropy, outside_band(entropy, USUAL, low=band, height=0.1), phase, coefficient=0.001))

    w = PhaseWeight()(75)
    plain = jnp.sum(entropy_bonus(ENTROPY, coefficient=0.001))
    assert float(loss(ENTROPY, w, 0.8) - plain) == pytest.approx(0.001 * w * 0.1 * 3, rel=1e-3)  # .5, 1.5 and 3 are outside .8 to 1.2
    assert jax.grad(loss)(ENTROPY, w, 0.8).tolist() == pytest.approx([-0.001] * 4)
    assert float(loss(ENTROPY, 0.0, 0.8)) == pytest.approx(float(plain))


def test_the_distance_to_the_band_has_a_gradient_outside_it_only():
    def penalty(entropy: jax.Array) -> jax.Array:
        return jnp.sum(distance_to_band(entropy, USUAL, low=0.8, high=1.6, height=2.0))

    assert float(penalty(ENTROPY)) == pytest.approx(2 * (0.3 + 1.4))
    assert jax.grad(penalty)(ENTROPY).tolist() == [-2.0, 0.0, 0.0, 2.0]
    unknown = jax.value_and_grad(lambda x: jnp.sum(distance_to_band(x, jnp.full(4, jnp.nan))))(ENTROPY)
    assert float(unknown[0]) == 0.0 and unknown[1].tolist() == [0.0] * 4
    wild = jax.grad(lambda x: jnp.sum(distance_to_band(x, USUAL)))(jnp.asarray([0.0, 1e30, 1e-30, 1.0]))
    assert np.isfinite(wild).all()


def test_the_entropy_of_a_sequence_is_the_mean_over_its_tokens():
    mask, ids = jnp.asarray([[True, True, False, True]]), jnp.asarray([[0, 0, 0, 1]])
    assert sequence_entropy(ENTROPY[None], mask, ids)[0].tolist() == pytest.approx([0.75, 0.75, 0.75, 3.0])


@given(shapes=batch_shapes, more=batch_shapes)
@settings(max_examples=40, deadline=None)
def test_usual_entropy_is_a_plain_mean_by_place(shapes: list, more: list):
    usual, seen = UsualEntropy(), dict[int, list[float]]()
    for i, each in enumerate((shapes, more)):
        evidence = evidence_of(grown_groups(each), "token_entropy", seed=i)
        assert evidence.token_entropy is not None
        usual.add(evidence, evidence.token_entropy)
        r = 0
        for trajectory in evidence.trajectories:
            for place in range(len(trajectory.turns)):
                seen.setdefault(place, []).append(float(evidence.token_entropy[evidence.token_turn == r].mean()))
                r += 1
    again = UsualEntropy()
    again.load(json.loads(json.dumps(usual.state())))
    longest = evidence_of(grown_groups([[[(1, 2, False, 0.0)] * 5]]))
    expected = [float(np.mean(seen[place])) if place in seen else np.nan for place in range(5) for _ in range(2)]
    assert again(longest) == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert np.isnan(UsualEntropy()(longest)).all()


def test_value_loss_clips_as_ppo_does():
    value, target = jnp.asarray([1.0, 1.0, 0.5, 5.0]), jnp.asarray([2.0, 0.0, 0.5, 0.0])
    old = jnp.asarray([0.0, 0.0, 0.5, 0.0])
    held = [0.2, 0.2, 0.5, 0.2]
    expected = [0.5 * max((v - t) ** 2, (h - t) ** 2) for v, t, h in zip(value.tolist(), target.tolist(), held)]
    assert value_loss(value, old, target, clip=0.2).tolist() == pytest.approx(expected, rel=1e-6)
    plain = value_loss(value, old, target, clip=float("inf"))
    assert plain.tolist() == pytest.approx([0.5, 0.5, 0, 12.5])
    slope = jax.grad(lambda v: jnp.sum(value_loss(v, old, target, clip=0.2)))(value)
    # where the held value is further from the target its slope, 0, counts
    assert slope.tolist() == pytest.approx([0.0, 1.0, 0.0, 5.0])
    assert jax.grad(lambda v: jnp.sum(value_loss(v, v, target)))(value).tolist() == pytest.approx((value - target).tolist())


def test_the_likelihood_of_what_went_well():
    logp, good = jnp.asarray([-1.0, -2.0]), jnp.asarray([True, False])
    value, slope = jax.value_and_grad(lambda x: jnp.sum(positive_likelihood(x, good)))(logp)
    assert float(value) == pytest.approx(0.1) and slope.tolist() == pytest.approx([-0.1, 0.0])


def test_a_gap_costs_what_its_token_says():
    logp, old, coefficient = jnp.asarray([-1.0, -2.0, -1.0]), jnp.asarray([-1.5, -1.0, -3.0]), jnp.asarray([1.0, 2.0, 0.0])
    value, slope = jax.value_and_grad(lambda x: jnp.sum(weighted_gap(x, old, coefficient)))(logp)
    assert float(value) == 2.5 and slope.tolist() == [1.0, -2.0, 0.0]


def scored(shapes: list, seed: int) -> tuple[Evidence, np.ndarray]:
    evidence = evidence_of(grown_groups(shapes), "token_logp", seed=seed)
    return evidence, np.random.default_rng(seed + 1).normal(size=len(evidence.token_row))


@given(shapes=batch_shapes, seed=st.integers(0, 99), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_clip_cov_drops_some_of_those_in_the_band_and_kl_cov_marks_the_top(shapes: list, seed: int, share: float):
    evidence, advantage = scored(shapes, seed)
    logp, n = evidence.token_logp, len(advantage)
    assert logp is not None
    cov = [(a - advantage.mean()) * (x - logp.mean()) for a, x in zip(advantage, logp)]
    assert covariance(evidence, advantage) == pytest.approx(cov, abs=1e-12)
    kept = ClipCov(share, 0.1, 1.0)(evidence, advantage, np.random.default_rng(seed))
    inside = [0.1 < c < 1.0 for c in cov]
    assert all(i for k, i in zip(kept, inside) if not k)
    assert (~kept).sum() == (0 if share == 0 else min(sum(inside), max(1, int(share * n))))
    marked = KLCov(share, 0.7)(evidence, advantage)
    count = 0 if share == 0 else min(n, max(1, int(share * n)))
    assert (marked > 0).sum() == count and set(marked.tolist()) <= {0.0, 0.7}
    if 0 < count < n:
        assert min(c for c, m in zip(cov, marked) if m) >= max(c for c, m in zip(cov, marked) if not m) - 1e-12


def test_covariances_need_the_learners_log_probs():
    evidence, advantage = scored([[[(1, 3, False, 0.0)]]], 0)
    with pytest.raises(UserError, match="log-prob under the learner is not known"):
        covariance(dataclasses.replace(evidence, token_logp=None), advantage)
    draws = [ClipCov(0.4, -9.0, 9.0)(evidence, advantage, np.random.default_rng(s)).tolist() for s in range(20)]
    assert all(sum(d) == 2 for d in draws) and len({tuple(d) for d in draws}) == 3  # of three tokens any one is dropped
