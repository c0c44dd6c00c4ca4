"""Policy losses with their gradients, and what regularizers prepare on the host, against formulas
in NumPy.
"""

import math
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import make_credit_inputs
from support.ragged_groups import ragged_batches, ragged_groups, token_table

from agentrl_jax.algorithms.losses.cispo import CISPO
from agentrl_jax.algorithms.losses.covariance import ClipCov, ClipCovAdvantages, KLCov, covariance
from agentrl_jax.algorithms.losses.entropy_band import (
    EntropyBand,
    EntropyBandData,
    EntropyHistory,
)
from agentrl_jax.algorithms.losses.gspo import GSPO
from agentrl_jax.algorithms.losses.importance import (
    IcePop,
    RatioRejection,
    TokenVeto,
    TruncatedIS,
)
from agentrl_jax.algorithms.losses.pairwise import DPOLoss, RegressionLoss
from agentrl_jax.algorithms.losses.policy import REINFORCE
from agentrl_jax.algorithms.losses.ppo import PPO, GradientPreservingPPO, StepPPO
from agentrl_jax.algorithms.losses.value import value_loss

ROWS, LENGTH = 2, 9
many = settings(max_examples=25, deadline=None)
Clip = tuple[float, float]


def clipped(ratio: float, advantage: float, clip: Clip, dual: float | None) -> tuple[float, float]:
    """The clipped surrogate of a ratio, and its derivative in the log of the ratio."""
    bounded = min(max(ratio, 1 - clip[0]), 1 + clip[1])
    loss, slope = -advantage * ratio, -advantage * ratio
    if -advantage * bounded > loss:
        loss, slope = -advantage * bounded, 0.0
    if dual is not None and advantage < 0 and loss > -advantage * dual:
        loss, slope = -advantage * dual, 0.0
    return loss, slope


def values(seed: int) -> dict[str, np.ndarray]:
    """Log-ratios, advantages, a mask and ids; the advantages of an id are equal."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 4, (ROWS, LENGTH)), axis=1)
    return {
        "gap": rng.choice([-2.5, -0.4, -0.05, 0.07, 0.3, 1.3], (ROWS, LENGTH)),
        "advantage": rng.choice([-1.5, 0.0, 2.0], (ROWS, 4))[np.arange(ROWS)[:, None], ids],
        "mask": rng.random((ROWS, LENGTH)) < 0.7,
        "ids": ids,
        "proximal": -1.0 - rng.random((ROWS, LENGTH)),
    }


def loss_and_gradient(loss_fn: Any, x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The masked losses [B, T], and the gradients of their sum in the log-probs."""
    f32 = {name: jnp.asarray(array, jnp.float32) for name, array in x.items()}
    mask, ids = jnp.asarray(x["mask"]), jnp.asarray(x["ids"], jnp.int32)

    def total(logp: Any) -> tuple[Any, Any]:
        loss = jnp.where(mask, loss_fn(logp, f32["proximal"], f32["advantage"], mask, ids), 0.0)
        return loss.sum(), loss

    logp = f32["proximal"] + f32["gap"]
    gradient, loss = jax.grad(total, has_aux=True)(logp)
    return np.asarray(loss), np.asarray(gradient)


def check(loss_fn: Any, x: dict[str, np.ndarray], expected: Callable[..., Any]) -> None:
    """Compare with `expected(row, column) -> (loss, gradient)` of each token in the mask."""
    loss, gradient = loss_and_gradient(loss_fn, x)
    for b, t in np.ndindex(ROWS, LENGTH):
        want = expected(b, t) if x["mask"][b, t] else (0.0, 0.0)
        assert (loss[b, t], gradient[b, t]) == pytest.approx(want, rel=2e-4, abs=2e-5)


def same_id(x: dict[str, np.ndarray], b: int, t: int) -> list[int]:
    """The columns in the mask that share an id with one."""
    return [s for s in range(LENGTH) if x["mask"][b, s] and x["ids"][b, s] == x["ids"][b, t]]


clips = st.tuples(st.sampled_from([0.1, 0.2, 0.9]), st.sampled_from([0.15, 0.28, 2.0]))
duals = st.sampled_from([None, 1.2, 3.0])


@given(clip=clips, dual=duals, seed=st.integers(0, 999))
@many
def test_losses_of_single_tokens(clip: Clip, dual: float | None, seed: int):
    x = values(seed)

    def ppo(b: int, t: int) -> tuple[float, float]:
        return clipped(math.exp(x["gap"][b, t]), x["advantage"][b, t], clip, dual)

    def preserving(b: int, t: int) -> tuple[float, float]:
        advantage = x["advantage"][b, t]
        if advantage > 0 and math.exp(x["gap"][b, t]) > 1 + clip[1]:
            return (-advantage * (1 + clip[1]),) * 2
        return ppo(b, t)

    def cispo(b: int, t: int) -> tuple[float, float]:
        weight = min(max(math.exp(x["gap"][b, t]), 1 - clip[0]), 1 + clip[1])
        slope = -weight * x["advantage"][b, t]
        return slope * (x["proximal"][b, t] + x["gap"][b, t]), slope

    def reinforce(b: int, t: int) -> tuple[float, float]:
        slope = -x["advantage"][b, t]
        return slope * (x["proximal"][b, t] + x["gap"][b, t]), slope

    check(PPO(*clip, dual), x, ppo)
    check(GradientPreservingPPO(*clip, dual), x, preserving)
    check(CISPO(*clip), x, cispo)
    check(REINFORCE(), x, reinforce)
    assert PPO(*clip).clip_widths == GSPO(*clip).clip_widths == CISPO(*clip).clip_widths == clip
    assert REINFORCE().clip_widths == (0.2, 0.2)


@given(clip=clips, dual=duals, seed=st.integers(0, 999))
@many
def test_losses_of_steps_and_of_sequences(clip: Clip, dual: float | None, seed: int):
    x = values(seed)

    def step(b: int, t: int) -> tuple[float, float]:
        columns = same_id(x, b, t)
        ratio = math.exp(min(max(sum(x["gap"][b, s] for s in columns), -20.0), 20.0))
        loss, slope = clipped(ratio, x["advantage"][b, t], clip, dual)
        return loss, slope * len(columns)  # each of the step's tokens has its loss

    def sequence(b: int, t: int) -> tuple[float, float]:
        mean = statistics.fmean(x["gap"][b, s] for s in same_id(x, b, t))
        return clipped(math.exp(mean), x["advantage"][b, t], clip, None)

    check(StepPPO(*clip, dual), x, step)
    check(GSPO(*clip), x, sequence)


@given(seed=st.integers(0, 999), low=st.sampled_from([0.0, 0.5]), high=st.sampled_from([1.0, 1.4]))
@many
def test_corrections_of_single_tokens(seed: int, low: float, high: float):
    x = values(seed)
    logp = jnp.asarray(x["proximal"] + x["gap"], jnp.float32)
    sampler = jnp.asarray(x["proximal"], jnp.float32)
    mask, ids = jnp.asarray(x["mask"]), jnp.asarray(x["ids"], jnp.int32)
    rho = np.exp(x["gap"])
    inside = (rho >= low) & (rho <= high)
    expected = {
        TruncatedIS: (np.clip(rho, low, high), np.ones_like(inside)),
        IcePop: (np.where(inside, rho, 0.0), np.ones_like(inside)),
        RatioRejection: (np.ones_like(rho), inside),
    }
    for correction, (weight, keep) in expected.items():
        actual = correction(low, high)(logp, sampler, mask, ids)
        np.testing.assert_allclose(actual[0], np.where(x["mask"], weight, 1.0), rtol=1e-4)
        assert np.array_equal(actual[1], ~x["mask"] | keep)
    weight, keep = TokenVeto(0.5)(logp, sampler, mask, ids)
    assert (weight == 1).all()
    for b, t in np.ndindex(ROWS, LENGTH):
        vetoed = any(rho[b, s] < 0.5 for s in same_id(x, b, t))
        assert bool(keep[b, t]) == (not x["mask"][b, t] or not vetoed)
    assert TokenVeto(1.0)(sampler, sampler, mask, ids)[1].all()  # a ratio of 1 is not below 1


@given(
    value=st.floats(-3, 3, width=16),
    old=st.floats(-3, 3, width=16),
    target=st.floats(-3, 3, width=16),
    clip=st.sampled_from([0.2, 1.0, math.inf]),
)
@many
def test_the_value_loss(value: float, old: float, target: float, clip: float):
    loss = value_loss(*(jnp.float32(x) for x in (value, old, target)), clip=clip)
    near = min(max(value, old - clip), old + clip)
    expected = 0.5 * max((value - target) ** 2, (near - target) ** 2)
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@given(
    d=st.floats(-3, 3, width=16),
    reward=st.sampled_from([-2.0, 0.0, 1.0]),
    scale=st.sampled_from([0.1, 2.0]),
)
@many
def test_pairwise_losses(d: float, reward: float, scale: float):
    pair = jnp.float32(d), jnp.float32(reward)
    regression = RegressionLoss(scale)(*pair)
    assert float(regression) == pytest.approx((d - scale * reward) ** 2, rel=1e-4, abs=1e-5)
    order = (reward > 0) - (reward < 0)
    preference = math.log1p(math.exp(-scale * order * d))
    assert float(DPOLoss(scale)(*pair)) == pytest.approx(preference, rel=1e-4, abs=1e-6)


@given(first=ragged_batches, second=ragged_batches, seed=st.integers(0, 99))
@many
def test_historical_entropies_are_means_of_turns_at_an_index(first: list, second: list, seed: int):
    history, means = EntropyHistory(), dict[int, list[float]]()
    assert history.state() == {"sum": [], "count": []}
    for shapes in (first, second, first):
        groups = ragged_groups(shapes, seed)
        inputs, table = make_credit_inputs(groups, "token_entropy", seed=seed), token_table(groups)
        entropy = inputs.token_entropy
        assert entropy is not None
        index = {r: i for turns in table.turns_of for i, r in enumerate(turns)}
        known = [
            statistics.fmean(means[index[int(r)]]) if index[int(r)] in means else math.nan
            for r in inputs.token_turn
        ]
        np.testing.assert_allclose(history(inputs), known, atol=1e-9)
        history.add(inputs, entropy)
        for r, tokens in enumerate(table.tokens_of):
            if tokens:
                means.setdefault(index[r], []).append(statistics.fmean(entropy[tokens]))
    again = EntropyHistory()
    again.load(history.state())
    np.testing.assert_array_equal(again(inputs), history(inputs))


@given(shapes=ragged_batches, half=st.integers(0, 5), seed=st.integers(0, 99))
@many
def test_the_band_applies_from_a_turn_on_with_its_weight(shapes: list, half: int, seed: int):
    groups = ragged_groups(shapes, seed)
    inputs, table = make_credit_inputs(groups, "token_entropy", seed=seed), token_table(groups)
    band = EntropyBand(smoothing=0.5, phase_weight=lambda step: 3.0 + step, second_half_of=half)
    n = len(table.places)
    data = band.token_data(inputs, np.zeros(n), np.ones(n), 2)
    index = {r: i for turns in table.turns_of for i, r in enumerate(turns)}
    assert data.active.tolist() == [1.0] * n and np.isnan(data.historical_entropy).all()
    assert data.phase_weight.tolist() == [
        2.5 if index[int(r)] >= half // 2 else 0.0 for r in inputs.token_turn
    ]
    without = EntropyBand(smoothing=0.5).token_data(inputs, np.zeros(n), np.ones(n), 2)
    assert without.phase_weight.tolist() == [0.5] * n


@pytest.mark.parametrize("constant", [False, True])
def test_the_penalty_of_the_band(constant: bool):
    band = EntropyBand(coefficient=0.5, low=0.5, high=2.0, height=0.3, constant_penalty=constant)
    entropy = np.array([0.2, 0.5, 0.8, 2.0, 2.5, 0.7])
    known = np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.nan])
    outside = [0.3, 0.3, 0.0, 0.3, 0.3, 1.0] if constant else [0.09, 0.0, 0.0, 0.0, 0.15, 0.0]
    data = EntropyBandData(
        active=np.ones(6, np.float32),
        historical_entropy=known.astype(np.float32),
        phase_weight=np.full(6, 2.0, np.float32),
    )
    x = jnp.asarray(entropy, jnp.float32)
    loss = band.loss(x, x, x, x, data)
    expected = [-0.5 * (h - 2.0 * p) for h, p in zip(entropy, outside)]
    assert np.asarray(loss) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@given(shapes=ragged_batches, fraction=st.sampled_from([0.0, 1e-3, 0.3, 0.5, 1.0]))
@many
def test_tokens_of_the_largest_covariance(shapes: list, fraction: float):
    inputs = make_credit_inputs(ragged_groups(shapes), "token_logp")
    logp = inputs.token_logp
    assert logp is not None
    n = len(logp)
    advantage = np.random.default_rng(0).normal(size=n)
    centers = [statistics.fmean(x) if n else 0.0 for x in (advantage, logp)]
    cov = [(a - centers[0]) * (p - centers[1]) for a, p in zip(advantage, logp)]
    assert covariance(inputs, advantage) == pytest.approx(cov, abs=1e-12)
    count = max(1, int(fraction * n)) if fraction else 0
    order = sorted(range(n), key=lambda i: -cov[i])[:count]
    coefficients = KLCov(fraction, 0.5).token_coefficients(inputs, advantage, np.ones(n), 0)
    assert coefficients.tolist() == [0.5 if i in order else 0.0 for i in range(n)]
    rng = np.random.default_rng(1)
    keep = ClipCov(fraction, -0.2, 0.4)(inputs, advantage, rng)
    inside = [i for i in range(n) if -0.2 < cov[i] < 0.4]
    left_out = np.flatnonzero(~keep).tolist()
    assert set(left_out) <= set(inside) and len(left_out) == min(count, len(inside))
    transform = ClipCovAdvantages(ClipCov(fraction, -0.2, 0.4))
    assert transform.state() == 0
    replaced = transform(inputs, advantage)
    keep = ClipCov(fraction, -0.2, 0.4)(inputs, advantage, np.random.default_rng([0, 1]))
    assert replaced.tolist() == np.where(keep, advantage, 0.0).tolist()


def test_a_penalty_does_not_move_the_proximal_policy():
    logp, proximal = jnp.float32(-1.0), jnp.float32(-1.5)
    gradient = jax.grad(lambda p: KLCov(0.1).penalty(logp, logp, p, logp))(proximal)
    assert float(gradient) == 0.0
    assert float(KLCov(0.1).penalty(logp, logp, proximal, logp)) == 0.5
