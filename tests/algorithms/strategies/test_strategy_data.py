"""Strategies are plain data that a run folder remembers, and the configs that use them are read back as they were."""

import importlib
import json

import pytest

from agentrl_jax.algorithms.ranking import advantage
from agentrl_jax.algorithms.strategies.adaptive import Adaptive
from agentrl_jax.algorithms.strategies.branching import Branching
from agentrl_jax.algorithms.strategies.early import Early, OnTurn, StepBudget
from agentrl_jax.algorithms.strategies.guided import Guided
from agentrl_jax.algorithms.strategies.pairs import Pairs
from agentrl_jax.algorithms.strategies.ranked import Ranked
from agentrl_jax.algorithms.strategies.reroll import Reroll, Spread
from agentrl_jax.algorithms.strategies.semi_online import SemiOnline, Thought
from agentrl_jax.algorithms.strategies.two_attempts import TwoAttempts
from agentrl_jax.algorithms.strategies.uncertainty import Penalised, Split
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.runtime import Strategy

STRATEGIES = (
    Branching(128), Branching(128, 8, Split(), Penalised(), beam=3), Adaptive(slack=1.5), Reroll(Pairs(), Spread(0.1)), Guided(judge=None),
    Early(Reroll(Branching(9)), (StepBudget(), OnTurn())), SemiOnline(marker=">", thought=Thought("writer")), TwoAttempts(),
    Ranked(advantage, 0.0),
)  # fmt: skip
CONFIGS = {
    "lookup_arpo": ("method", "hard", "base"), "lookup_aepo": ("method", "base"), "keydoor_active_vln": ("method", "base"),
    "calculator_simpletir": ("method", "base"), "arithmetic_score": ("method", "base"), "keydoor_ui_s1": ("method", "base"),
    "chain_epo_strategic": ("method",),
}  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_plain_data(strategy: Strategy):
    assert isinstance(strategy, Strategy)
    assert from_json(json.loads(json.dumps(to_json(strategy)))) == strategy


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name, variants in CONFIGS.items() for variant in variants])
def test_a_config_with_a_strategy_is_read_back_as_it_was(name: str, variant: str):
    config = importlib.import_module(f"agentrl_jax.configs.{name}").get_config(variant)
    data = json.loads(json.dumps(to_json(config)))
    assert to_json(from_json(data)) == to_json(config)
