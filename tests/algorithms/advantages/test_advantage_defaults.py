"""Without an option, credit is computed with the constants of the papers that are cited."""

from typing import Any

import pytest
from support.declared_defaults import declared_defaults

from agentrl_jax.algorithms.advantages import (
    gae,
    group,
    grouping,
    returns,
    token_masks,
    token_weights,
    transforms,
    turn,
)

NO_BOOTSTRAP = {"bootstrap": gae.no_bootstrap}
DEFAULTS: list[tuple[Any, dict[str, Any]]] = [
    (gae.LengthAdaptiveLambda, {"alpha": 0.05}),
    (
        gae.GAE,
        {"gamma": 1.0, "lam": 1.0, "critic_lam": None, "whiten": True, "penalty": None}
        | NO_BOOTSTRAP,
    ),
    (gae.TurnGAE, {"gamma": 0.99, "lam": 0.95, "whiten": False} | NO_BOOTSTRAP),
    (
        gae.BiLevelGAE,
        {"gamma": 1.0, "lam": 1.0, "turn_gamma": 0.95, "whiten": True, "penalty": None}
        | NO_BOOTSTRAP,
    ),
    (
        group.GroupedBy,
        {
            "key": grouping.group_of_trajectory,
            "std": True,
            "eps": 1e-6,
            "leave_one_out": False,
            "keep_singletons": True,
        },
    ),
    (group.ReinforcePlusPlus, {"gamma": 1.0, "penalty": None}),
    (group.WeightedSum, {"first_weight": 1.0, "second_weight": 1.0}),
    (group.ExternalBaseline, {"std": 1.0}),
    (
        grouping.center,
        {"std": False, "eps": 1e-6, "leave_one_out": False, "keep_singletons": False},
    ),
    (grouping.whiten_values, {"key": None}),
    (returns.reward_to_go, {"gamma": 1.0, "stop": None}),
    (token_masks.TopEntropyTurns, {"fraction": 0.8, "key": grouping.group_of_turn}),
    (token_masks.OnlySources, {"names": ("sampled",)}),
    (token_weights.SequenceSum, {"constant": 1.0}),
    (token_weights.StepSum, {"constant": 1.0}),
    (transforms.WhitenBy, {"key": grouping.environment_of_token}),
    (transforms.subtract_distinct_mean, {"digits": 9}),
    (transforms.ScaleByEntropy, {"coefficient": 0.2}),
    (transforms.PrefixMean, {"token_key": transforms.shared_call_key}),
    (turn.RewardToGo, {"gamma": 1.0, "stop": None}),
    (turn.ScaleByMax, {"gamma": 0.99}),
    (
        turn.TurnGroupedBy,
        {"key": grouping.group_of_turn, "std": False, "eps": 1e-6, "keep_singletons": False},
    ),
    (turn.IGPO, {"gamma": 1.0, "joint_statistics": True, "std": True, "eps": 1e-6}),
    (turn.ColumnCentered, {"through_observations": False}),
    (
        turn.MARS,
        {
            "gamma": 1.0,
            "whiten_rewards": False,
            "center_distinct": True,
            "whiten": True,
            "player_key": grouping.player_of_turn,
        },
    ),
]


@pytest.mark.parametrize(
    ("declared", "defaults"), DEFAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_the_constants_of_credit_are_those_of_its_papers(declared: Any, defaults: dict[str, Any]):
    assert declared_defaults(declared) == defaults
