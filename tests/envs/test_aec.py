"""Multi-agent environments through PettingZoo's AEC API; its api_test expects arrays, not texts."""

import numpy as np
import pytest
from pettingzoo.test import seed_test

from agentrl_jax.environment import make
from agentrl_jax.envs.games.aec import AEC
from agentrl_jax.multi_agent import MultiAgentEnvironment

NAMES = ("Kuhn", "TicTacToe", "MiniHanabi")


def aec(name: str) -> AEC:
    game = make(f"agentrl/{name}-v0")
    assert isinstance(game, MultiAgentEnvironment)
    return AEC(game)


@pytest.mark.parametrize("name", NAMES)
def test_pettingzoos_agent_loop_finishes_the_game(name: str):
    env = aec(name)
    for seed in range(30):
        env.reset(seed=seed)
        rng, earned, moves, left = (
            np.random.default_rng(seed),
            dict.fromkeys(env.possible_agents, 0.0),
            0,
            [],
        )
        for agent in env.agent_iter(200):
            observation, reward, terminated, truncated, info = env.last()
            earned[agent] += reward
            assert env.observation_space(agent).contains(observation)
            assert agent == f"seat_{info['seat']}" and set(env.rewards) == set(env.agents)
            if terminated or truncated:
                assert "success" in info
                left.append(agent)
                env.step(None)
            else:
                assert env.game.current_player == env.possible_agents.index(agent)
                legal = env.game._legal_moves()
                env.step(legal[int(rng.integers(len(legal)))])
                moves += 1
        assert env.agents == [] and sorted(left) == env.possible_agents and moves >= len(left)
        assert list(earned.values()) == pytest.approx(env.game.returns)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_pettingzoos_seed_test_passes(name: str):
    seed_test(lambda: aec(name), num_cycles=30)


def test_an_agent_whose_game_is_over_cannot_act():
    env = aec("Kuhn")
    env.reset(seed=0)
    while not env.terminations[env.agent_selection]:
        env.step("p")
    with pytest.raises(ValueError, match="None"):
        env.step("p")
