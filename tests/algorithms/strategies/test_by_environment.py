"""Each environment of a mixture is played by its own strategy."""

import dataclasses
import json

import pytest
from support.strategy_runs import KEY, KeyedTextEngine, chain_task, groups_equal, make_runtime

from agentrl_jax.algorithms.strategies.adaptive_budget import AdaptiveBudget
from agentrl_jax.algorithms.strategies.by_environment import StrategyByEnvironment
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.strategy import IndependentEpisodes, find_pieces, load_pieces, save_pieces
from agentrl_jax.workers.pool import Task

KUHN = Task("agentrl/Kuhn-v0", 3, label="kuhn")
CHAIN = dataclasses.replace(chain_task(2), label="chain")


def test_games_and_tasks_of_one_agent_are_played_in_one_step():
    alone = {"kuhn": SelfPlay(3), "chain": IndependentEpisodes(5)}
    with make_runtime(KeyedTextEngine()) as runtime:
        game, chain = runtime.collect(StrategyByEnvironment(alone), [KUHN, CHAIN], KEY)
        assert len(game.trajectories) == 6 and len(chain.trajectories) == 5
        assert {t.environment for t in game.trajectories} == {"kuhn"}
        assert groups_equal(game, runtime.collect(alone["kuhn"], [KUHN], KEY)[0])
        (again,) = runtime.collect(StrategyByEnvironment(alone), [CHAIN], KEY)
        assert groups_equal(again, runtime.collect(alone["chain"], [CHAIN], KEY)[0])
        with pytest.raises(UserError, match="no strategy for the environment other"):
            other = dataclasses.replace(CHAIN, label="other")
            runtime.collect(StrategyByEnvironment(alone), [other], KEY)


def test_the_pieces_of_every_strategy_are_found_and_saved():
    def strategy() -> StrategyByEnvironment:
        adaptive = AdaptiveBudget(IndependentEpisodes(3), rollout_count=lambda success: 2)
        return StrategyByEnvironment({"kuhn": SelfPlay(2), "chain": adaptive})

    first, second = strategy(), strategy()
    assert find_pieces(first) == [first.strategies["chain"]]
    with make_runtime(KeyedTextEngine()) as runtime:
        groups = runtime.collect(first, [KUHN, CHAIN], KEY)
    for piece in find_pieces(first):
        piece.update([piece.summarize(groups)])
    states = json.loads(json.dumps(save_pieces(first)))
    load_pieces(second, states)
    assert save_pieces(second) == states and any(states)
