"""Without an option, losses and regularizers have the constants of the papers that are cited."""

from typing import Any

import pytest
from support.declared_defaults import declared_defaults

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.losses import (
    covariance,
    entropy_band,
    gspo,
    importance,
    kl,
    policy,
    ppo,
    regularizers,
)

TOKENS = {"level": importance.token_level}
DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (covariance.ClipCovAdvantages, {"seed": 0}),
    (covariance.KLCov, {"coefficient": 1.0}),
    (
        entropy_band.EntropyBand,
        {
            "coefficient": 1e-3,
            "smoothing": 1.0,
            "low": 0.8,
            "high": 1.2,
            "height": 0.1,
            "phase_weight": None,
            "constant_penalty": False,
            "second_half_of": 0,
        },
    ),
    (gspo.GSPO, {"clip_low": 3e-4, "clip_high": 4e-4}),
    (importance.TruncatedIS, {"low": 0.0, "high": 2.0} | TOKENS),
    (importance.IcePop, {"low": 0.5, "high": 5.0} | TOKENS),
    (importance.RatioRejection, {"low": 0.5, "high": 5.0} | TOKENS),
    (importance.TokenVeto, {"min_ratio": 1e-4}),
    (policy.ratio_surrogate, {"dual_clip": None}),
    (ppo.PPO, {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}),
    (ppo.GradientPreservingPPO, {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0}),
    (ppo.StepPPO, {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}),
    (regularizers.KL, {"coefficient": 1e-3, "estimator": kl.kl_k3}),
    (regularizers.AttemptKL, {"estimator": kl.kl_k3}),
    (regularizers.EntropyBonus, {"coefficient": 1e-3}),
    (regularizers.PositiveExampleLMLoss, {"coefficient": 0.1, "is_positive": succeeded}),
]


@pytest.mark.parametrize(
    ("declared", "defaults"), DEFAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_the_constants_of_losses_are_those_of_their_papers(declared: Any, defaults: dict[str, Any]):
    assert declared_defaults(declared) == defaults


def test_only_losses_that_compare_with_it_need_a_reference():
    needing = {c for c, _ in DEFAULTS if getattr(c, "needs_reference", False)}
    assert needing == {regularizers.KL, regularizers.AttemptKL}
    assert not regularizers.PositiveExampleLMLoss.needs_reference
