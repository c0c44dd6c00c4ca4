"""Strategies are plain data that is stored in a run folder, and configs with them are read back
unchanged.
"""

import importlib
import json

import pytest

from agentrl_jax.algorithms.offline.action_ranking import token_advantage
from agentrl_jax.algorithms.strategies.adaptive_budget import AdaptiveBudget
from agentrl_jax.algorithms.strategies.best_of_n import BestOfN, MajorityVote
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.algorithms.strategies.early_stop import EarlyStopping, StepBudget, StopOnTurn
from agentrl_jax.algorithms.strategies.episode_scorers import (
    EpisodeQuestion,
    Judge,
    RewardModelScore,
    YesProbability,
)
from agentrl_jax.algorithms.strategies.paired_rollouts import PairedRollouts
from agentrl_jax.algorithms.strategies.ranked_actions import RankedActions
from agentrl_jax.algorithms.strategies.resample import ResampleGroup, ReturnStdAbove
from agentrl_jax.algorithms.strategies.scored_episodes import AcceptedEpisodes, ScoredEpisodes
from agentrl_jax.algorithms.strategies.self_correction import SelfCorrectionRollouts
from agentrl_jax.algorithms.strategies.semi_online import SemiOnlineRollouts, ThoughtWriter
from agentrl_jax.algorithms.strategies.strategist import StrategistRollouts
from agentrl_jax.algorithms.strategies.uncertainty import AEPOBranchRule, AEPOInitialRollouts
from agentrl_jax.rollout.runtime import Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage.config_json import from_json, to_json

YES = YesProbability(EpisodeQuestion("{transcript}"))
STRATEGIES = (
    BranchingRollouts(128),
    BranchingRollouts(128, 8, AEPOInitialRollouts(), AEPOBranchRule(), beam=3),
    AdaptiveBudget(turn_slack=1.5),
    ResampleGroup(PairedRollouts(), ReturnStdAbove(0.1)),
    StrategistRollouts(critical_turn_judge=None),
    EarlyStopping(ResampleGroup(BranchingRollouts(9)), (StepBudget(), StopOnTurn())),
    SemiOnlineRollouts(thought_end_marker=">", thought_writer=ThoughtWriter("writer")),
    SelfCorrectionRollouts(),
    RankedActions(token_advantage, 0.0),
    ScoredEpisodes(
        AcceptedEpisodes(IndependentEpisodes(4), YES, 0.2),
        {"model": RewardModelScore(), "judge": Judge(YES.prompt, per_turn=True)},
    ),
    BestOfN(IndependentEpisodes(4), YES),
    MajorityVote(IndependentEpisodes(4)),
)
CONFIGS = {
    "lookup_arpo": ("method", "hard", "base"),
    "lookup_aepo": ("method", "base"),
    "search_aepo": ("method", "base"),
    "search_planner": ("alpha", "s3"),
    "search_selfplay": ("method", "intermediate", "unchecked", "given"),
    "search_supo": ("method",),
    "keydoor_active_vln": ("method", "base"),
    "calculator_simpletir": ("method", "base"),
    "arithmetic_score": ("method", "base"),
    "form_ui_s1": ("method", "base"),
    "chain_epo_strategic": ("method",),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_plain_data(strategy: Strategy):
    assert isinstance(strategy, Strategy)
    assert from_json(json.loads(json.dumps(to_json(strategy)))) == strategy


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, variant) for name, variants in CONFIGS.items() for variant in variants],
)
def test_a_config_with_a_strategy_is_read_back_unchanged(name: str, variant: str):
    config = importlib.import_module(f"agentrl_jax.configs.{name}").get_config(variant)
    data = json.loads(json.dumps(to_json(config)))
    assert to_json(from_json(data)) == to_json(config)
