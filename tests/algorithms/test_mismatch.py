"""Sums over sequences, and what the gap between sampler and learner does to weights and masks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from agentrl_jax.algorithms.losses import kl_k1, kl_k2, kl_k3
from agentrl_jax.algorithms.mismatch import (
    Clipped,
    Correction,
    DivergenceRejection,
    IcePop,
    RatioRejection,
    Together,
    Veto,
    geometric,
    normalized,
    of_sequence,
    of_token,
    total,
    uncorrected,
    weight_sums,
)
from agentrl_jax.algorithms.sequences import max_over, mean_over, sum_over

EVERY: list[Correction] = [
    uncorrected,
    *(kind(level=level) for kind in (Clipped, IcePop, RatioRejection) for level in (of_token, of_sequence, geometric)),
    *(DivergenceRejection(0.1, kl, over, lowest=-0.1) for kl in (kl_k1, kl_k2, kl_k3) for over in (total, mean_over, max_over)),
    Veto(),
    Together((Clipped(), Veto())),
]


def packed(seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Two packed rows of eight tokens: log-probs of learner and sampler, mask, ids."""
    rng = np.random.default_rng(seed)
    logp, sampler = (jnp.asarray(rng.normal(-1, 1, (2, 8)), jnp.float32) for _ in range(2))
    mask = jnp.asarray([[1, 1, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0, 1, 1]], bool)
    ids = jnp.asarray([[0, 0, 0, 1, 1, 2, 7, 7], [3, 3, 3, 3, 0, 0, 5, 5]], jnp.int32)
    return logp, sampler, mask, ids


def members(mask: Array, ids: Array) -> dict[tuple[int, int], list[int]]:
    """Columns of each sequence's masked-in tokens, by row and id."""
    out: dict[tuple[int, int], list[int]] = {}
    for b, t in zip(*np.nonzero(np.asarray(mask))):
        out.setdefault((int(b), int(ids[b, t])), []).append(int(t))
    return out


def test_sums_means_and_maxima_are_those_of_loops():
    values, _, mask, ids = packed()
    sums, means, most = sum_over(ids, values), mean_over(ids, values, mask), max_over(ids, values, mask)
    for b in range(2):
        for t in range(8):
            everyone = [float(values[b, s]) for s in range(8) if ids[b, s] == ids[b, t]]
            seen = [float(values[b, s]) for s in range(8) if ids[b, s] == ids[b, t] and mask[b, s]]
            assert float(sums[b, t]) == pytest.approx(sum(everyone), abs=1e-5)
            assert float(means[b, t]) == pytest.approx(np.mean(seen) if seen else 0.0, abs=1e-5)
            assert float(most[b, t]) == max(seen, default=-np.inf)
    slope = jax.grad(lambda v: sum_over(ids, v)[0, 3])(values)
    assert np.argwhere(np.asarray(slope)).tolist() == [[0, 3], [0, 4]] and float(slope.sum()) == 2.0


@pytest.mark.parametrize("correction", EVERY)
def test_without_a_gap_nothing_is_corrected(correction: Correction):
    logp, _, mask, ids = packed()
    weight, keep = correction(logp, logp, mask, ids)
    assert (weight == 1).all() and keep.all() and weight.shape == keep.shape == (2, 8)


@pytest.mark.parametrize("correction", EVERY)
@pytest.mark.parametrize("gap", [1e30, -1e30, 300.0])
def test_nothing_overflows_and_what_is_masked_out_is_not_looked_at(correction: Correction, gap: float):
    logp, _, mask, ids = packed()
    wild = logp.at[0, 0].set(gap).at[0, 2].set(jnp.nan).at[1, 0].set(jnp.inf)  # masked in, and twice out
    weight, keep = correction(wild, logp, mask, ids)
    assert jnp.isfinite(weight).all()
    assert (jnp.where(mask, 1.0, weight) == 1).all() and (mask | keep).all()
    untouched = correction(logp, logp, mask, ids)
    other_rows = weight[1].tolist(), keep[1].tolist()
    assert other_rows == (untouched[0][1].tolist(), untouched[1][1].tolist())


@pytest.mark.parametrize("correction", EVERY)
def test_weights_are_data(correction: Correction):
    logp, sampler, mask, ids = packed()
    slope = jax.grad(lambda x: jnp.sum(correction(x, sampler, mask, ids)[0]))(logp)
    assert (slope == 0).all()


LEVELS = {
    of_token: lambda gaps, t: gaps[t],
    of_sequence: lambda gaps, t: sum(gaps.values()),
    geometric: lambda gaps, t: np.mean(list(gaps.values())),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(3))
def test_ratios_are_those_of_loops_at_every_level(level: Callable, seed: int):
    logp, sampler, mask, ids = packed(seed)
    clipped, _ = Clipped(0.5, 2.0, level)(logp, sampler, mask, ids)
    popped, all_kept = IcePop(0.5, 2.0, level)(logp, sampler, mask, ids)
    ones, kept = RatioRejection(0.5, 2.0, level)(logp, sampler, mask, ids)
    assert all_kept.all() and (ones == 1).all()
    for (b, _), columns in members(mask, ids).items():
        gaps = {t: float(logp[b, t]) - float(sampler[b, t]) for t in columns}
        for t in columns:
            rho = float(np.exp(LEVELS[level](gaps, t)))
            assert float(clipped[b, t]) == pytest.approx(min(max(rho, 0.5), 2.0), rel=1e-5)
            assert float(popped[b, t]) == pytest.approx(rho if 0.5 <= rho <= 2 else 0.0, rel=1e-5)
            assert bool(kept[b, t]) == (0.5 <= rho <= 2)


@pytest.mark.parametrize(("over", "of"), [(total, sum), (mean_over, np.mean), (max_over, max)])
@pytest.mark.parametrize(
    ("estimator", "divergence"),
    [(kl_k1, lambda d: -d), (kl_k2, lambda d: d * d / 2), (kl_k3, lambda d: np.exp(d) - 1 - d)],  # d = learner - sampler
)
def test_sequences_far_from_the_sampler_are_dropped_whole(over: Callable, of: Callable, estimator: Callable, divergence: Callable):
    logp, sampler, mask, ids = packed(5)
    outcomes = set()
    for limit in (-0.5, 0.3, 1.0, 3.0):
        weight, keep = DivergenceRejection(limit, estimator, over)(logp, sampler, mask, ids)
        assert (weight == 1).all() and (keep | mask).all()
        for (b, _), columns in members(mask, ids).items():
            found = of([divergence(float(logp[b, t]) - float(sampler[b, t])) for t in columns])
            assert keep[b, jnp.asarray(columns)].tolist() == [found <= limit] * len(columns)
            outcomes.add(found <= limit)
    assert outcomes == {True, False}
    low = DivergenceRejection(float("inf"), estimator, over, lowest=0.3)(logp, sampler, mask, ids)[1]
    high = DivergenceRejection(0.3, estimator, over)(logp, sampler, mask, ids)[1]
    assert (jnp.where(mask, low != high, True)).all()


def test_the_table_of_dart_and_slime():
    half = jnp.full((1, 2), 0.5, jnp.float32)
    yes, ids = jnp.ones((1, 2), bool), jnp.zeros((1, 2), jnp.int32)
    weight, _ = Clipped(high=1.0)(half * jnp.asarray([[1.0, -1.0]]), jnp.zeros((1, 2)), yes, ids)
    assert weight.tolist()[0] == pytest.approx([1.0, np.exp(-0.5)], abs=1e-6)
    _, keep = Veto()(jnp.asarray([[0.0, -9.3, 5.0, 5.0]]), jnp.zeros((1, 4)), jnp.ones((1, 4), bool), jnp.asarray([[0, 0, 1, 1]]))
    assert keep.tolist() == [[False, False, True, True]]  # exp(-9.3) < 1e-4 < exp(-9.2)
    _, keep = Veto()(jnp.asarray([[0.0, -9.2]]), jnp.zeros((1, 2)), yes, ids)
    assert keep.all()


def test_corrections_work_together():
    logp, sampler, mask, ids = packed(1)
    weight, keep = Together((Clipped(0.0, 2.0), RatioRejection(0.2, 3.0), IcePop(0.5, 5.0)))(logp, sampler, mask, ids)
    rho = jnp.where(mask, jnp.exp(logp - sampler), 1.0)
    expected = jnp.clip(rho, 0, 2) * jnp.where((rho >= 0.5) & (rho <= 5), rho, 0.0)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    assert keep.tolist() == ((rho >= 0.2) & (rho <= 3)).tolist()


def test_a_normaliser_is_that_of_the_whole_batch_however_it_is_split():
    logp, sampler, mask, ids = packed(2)
    weight, keep = Together((Clipped(), RatioRejection()))(logp, sampler, mask, ids)
    left = mask & keep
    whole = weight_sums(weight, left)
    parts = [weight_sums(weight[b : b + 1], left[b : b + 1]) for b in range(2)]
    assert [float(a + b) for a, b in zip(*parts)] == pytest.approx([float(x) for x in whole], rel=1e-6)
    scaled = normalized(weight, left, whole[0] / whole[1])
    assert float(jnp.sum(jnp.where(left, scaled, 0.0)) / whole[1]) == pytest.approx(1.0, rel=1e-6)
    assert normalized(weight, left, jnp.float32(0)).tolist() == weight.tolist()
