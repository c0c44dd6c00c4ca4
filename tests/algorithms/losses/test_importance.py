"""Sums over sequences, and corrections of the sampler-learner mismatch: weights and masks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from agentrl_jax.algorithms.losses.importance import (
    CorrectionChain,
    IcePop,
    ImportanceCorrection,
    RatioRejection,
    TokenVeto,
    TruncatedIS,
    geometric_mean_level,
    no_correction,
    sequence_level,
    token_level,
)
from agentrl_jax.algorithms.losses.segment_ops import segment_mean, segment_sum

EVERY: list[ImportanceCorrection] = [
    no_correction,
    *(
        kind(level=level)
        for kind in (TruncatedIS, IcePop, RatioRejection)
        for level in (token_level, sequence_level, geometric_mean_level)
    ),
    TokenVeto(),
    CorrectionChain((TruncatedIS(), TokenVeto())),
]


def packed(seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Two packed rows of eight tokens: log-probs of learner and sampler, mask, ids."""
    rng = np.random.default_rng(seed)
    logp, sampler = (jnp.asarray(rng.normal(-1, 1, (2, 8)), jnp.float32) for _ in range(2))
    mask = jnp.asarray([[1, 1, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0, 1, 1]], bool)
    ids = jnp.asarray([[0, 0, 0, 1, 1, 2, 7, 7], [3, 3, 3, 3, 0, 0, 5, 5]], jnp.int32)
    return logp, sampler, mask, ids


def members(mask: Array, ids: Array) -> dict[tuple[int, int], list[int]]:
    """The columns of each sequence's action tokens, by row and id."""
    out: dict[tuple[int, int], list[int]] = {}
    for b, t in zip(*np.nonzero(np.asarray(mask))):
        out.setdefault((int(b), int(ids[b, t])), []).append(int(t))
    return out


def test_segment_sums_and_means_match_loops():
    values, _, mask, ids = packed()
    sums, means = segment_sum(ids, values), segment_mean(ids, values, mask)
    for b in range(2):
        for t in range(8):
            in_segment = [float(values[b, s]) for s in range(8) if ids[b, s] == ids[b, t]]
            masked_in = [
                float(values[b, s]) for s in range(8) if ids[b, s] == ids[b, t] and mask[b, s]
            ]
            assert float(sums[b, t]) == pytest.approx(sum(in_segment), abs=1e-5)
            assert float(means[b, t]) == pytest.approx(
                np.mean(masked_in) if masked_in else 0.0, abs=1e-5
            )
    slope = jax.grad(lambda v: segment_sum(ids, v)[0, 3])(values)
    assert np.argwhere(np.asarray(slope)).tolist() == [[0, 3], [0, 4]] and float(slope.sum()) == 2.0


@pytest.mark.parametrize("correction", EVERY)
def test_without_a_mismatch_nothing_is_corrected(correction: ImportanceCorrection):
    logp, _, mask, ids = packed()
    weight, keep = correction(logp, logp, mask, ids)
    assert (weight == 1).all() and keep.all() and weight.shape == keep.shape == (2, 8)


@pytest.mark.parametrize("correction", EVERY)
@pytest.mark.parametrize("gap", [1e30, -1e30, 300.0])
def test_nothing_overflows_and_masked_tokens_have_no_effect(
    correction: ImportanceCorrection, gap: float
):
    logp, _, mask, ids = packed()
    wild = (
        logp.at[0, 0].set(gap).at[0, 2].set(jnp.nan).at[1, 0].set(jnp.inf)
    )  # on action tokens, and twice elsewhere
    weight, keep = correction(wild, logp, mask, ids)
    assert jnp.isfinite(weight).all()
    assert (jnp.where(mask, 1.0, weight) == 1).all() and (mask | keep).all()
    untouched = correction(logp, logp, mask, ids)
    other_rows = weight[1].tolist(), keep[1].tolist()
    assert other_rows == (untouched[0][1].tolist(), untouched[1][1].tolist())


@pytest.mark.parametrize("correction", EVERY)
def test_importance_weights_have_no_gradient(correction: ImportanceCorrection):
    logp, sampler, mask, ids = packed()
    slope = jax.grad(lambda x: jnp.sum(correction(x, sampler, mask, ids)[0]))(logp)
    assert (slope == 0).all()


LEVELS = {
    token_level: lambda gaps, t: gaps[t],
    sequence_level: lambda gaps, t: sum(gaps.values()),
    geometric_mean_level: lambda gaps, t: np.mean(list(gaps.values())),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(3))
def test_ratios_are_those_of_loops_at_every_level(level: Callable, seed: int):
    logp, sampler, mask, ids = packed(seed)
    clipped, _ = TruncatedIS(0.5, 2.0, level)(logp, sampler, mask, ids)
    popped, all_kept = IcePop(0.5, 2.0, level)(logp, sampler, mask, ids)
    weight, keep = RatioRejection(0.5, 2.0, level)(logp, sampler, mask, ids)
    assert all_kept.all() and (weight == 1).all()
    for (b, _), columns in members(mask, ids).items():
        gaps = {t: float(logp[b, t]) - float(sampler[b, t]) for t in columns}
        for t in columns:
            rho = float(np.exp(LEVELS[level](gaps, t)))
            assert float(clipped[b, t]) == pytest.approx(min(max(rho, 0.5), 2.0), rel=1e-5)
            assert float(popped[b, t]) == pytest.approx(rho if 0.5 <= rho <= 2 else 0.0, rel=1e-5)
            assert bool(keep[b, t]) == (0.5 <= rho <= 2)


def test_the_table_of_dart_and_slime():
    half = jnp.full((1, 2), 0.5, jnp.float32)
    yes, ids = jnp.ones((1, 2), bool), jnp.zeros((1, 2), jnp.int32)
    weight, _ = TruncatedIS(high=1.0)(
        half * jnp.asarray([[1.0, -1.0]]), jnp.zeros((1, 2)), yes, ids
    )
    assert weight.tolist()[0] == pytest.approx([1.0, np.exp(-0.5)], abs=1e-6)
    _, keep = TokenVeto()(
        jnp.asarray([[0.0, -9.3, 5.0, 5.0]]),
        jnp.zeros((1, 4)),
        jnp.ones((1, 4), bool),
        jnp.asarray([[0, 0, 1, 1]]),
    )
    assert keep.tolist() == [[False, False, True, True]]  # exp(-9.3) < 1e-4 < exp(-9.2)
    _, keep = TokenVeto()(jnp.asarray([[0.0, -9.2]]), jnp.zeros((1, 2)), yes, ids)
    assert keep.all()


def test_corrections_can_be_chained():
    logp, sampler, mask, ids = packed(1)
    weight, keep = CorrectionChain(
        (TruncatedIS(0.0, 2.0), RatioRejection(0.2, 3.0), IcePop(0.5, 5.0))
    )(logp, sampler, mask, ids)
    rho = jnp.where(mask, jnp.exp(logp - sampler), 1.0)
    expected = jnp.clip(rho, 0, 2) * jnp.where((rho >= 0.5) & (rho <= 5), rho, 0.0)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    assert keep.tolist() == ((rho >= 0.2) & (rho <= 3)).tolist()


def test_log_ratios_are_clipped_at_twenty_for_tokens_and_for_sequences():
    yes, ids = jnp.ones((1, 4), bool), jnp.asarray([[0, 0, 1, 1]])
    gaps, zeros = jnp.asarray([[30.0, -3.0, -30.0, 3.0]]), jnp.zeros((1, 4))
    for level, expected in (
        (token_level, [20.0, -3.0, -20.0, 3.0]),
        (sequence_level, [17.0, 17.0, -17.0, -17.0]),
        (geometric_mean_level, [8.5, 8.5, -8.5, -8.5]),
    ):
        weight, _ = TruncatedIS(0.0, 1e9, level)(gaps, zeros, yes, ids)
        np.testing.assert_allclose(np.log(weight), [expected], rtol=1e-5)
    tens = jnp.asarray([[15.0, 15.0, -15.0, -15.0]])
    weight, _ = TruncatedIS(0.0, 1e9, sequence_level)(tens, zeros, yes, ids)
    np.testing.assert_allclose(np.log(weight), [[20.0, 20.0, -20.0, -20.0]], rtol=1e-5)


def test_a_ratio_at_a_limit_is_inside():
    zeros, yes = jnp.zeros((1, 2)), jnp.ones((1, 2), bool)
    ids = jnp.zeros((1, 2), jnp.int32)
    for low, high in ((1.0, 5.0), (0.5, 1.0)):
        assert (IcePop(low, high)(zeros, zeros, yes, ids)[0] == 1).all()
        assert RatioRejection(low, high)(zeros, zeros, yes, ids)[1].all()
    assert TokenVeto(1.0)(zeros, zeros, yes, ids)[1].all()
