"""`agentrl-bench ratings`: seats and points of its games, and a table of a run's policies."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.fixtures import ScriptedEngine

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.algorithms.strategies.self_play import OtherAgent, ScriptedOpponent, SelfPlay
from agentrl_jax.configs.kuhn_mars import get_config
from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.claims.exploitability import exploitability
from agentrl_jax.launch.benchmarks.ratings import Ratings, games_of, points_of
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training import loop
from agentrl_jax.training.config import DemonstrationConfig
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())


def play(games: SelfPlay, env: str, **texts: str) -> list[Group]:
    """Twenty groups of games between agents that always write the same text."""
    engines = {name: ScriptedEngine(RENDERER, text) for name, text in texts.items()}
    agents = {
        name: Agent(name, RENDERER, FullHistory(), Sampling(budget=2), name) for name in texts
    }
    with Runtime(engines, agents, InlinePool()) as runtime:
        return runtime.collect(games, [Task(env, seed) for seed in range(20)], (0, 0))


def test_each_deal_is_played_in_both_seats():
    """A player that bets wins against one that folds, whatever the cards are."""
    groups = play(games_of("bold", OtherAgent("meek")), "agentrl/Kuhn-v0", bold="b", meek="p")
    for group in groups:
        assert [(t.sample, t.agent_index, t.agent) for t in group.trajectories] == [
            (0, 0, "bold"),
            (0, 1, "meek"),
            (1, 0, "meek"),
            (1, 1, "bold"),
        ]
        assert points_of(group) == [1.0, 1.0]
        first, second = (group.trajectories[i].opening for i in (0, 2))
        assert first == second  # the same card in the same seat


def test_against_a_scripted_policy_the_sign_of_the_return_counts():
    groups = play(
        games_of("bold", ScriptedOpponent("expert")), "agentrl/TicTacToe-v0", bold="1"
    )  # its illegal moves cost .05, so no game of its is drawn
    for group in groups:
        assert [t.agent_index for t in group.trajectories] == [0, 1]
        signs = [np.sign(t.total_reward) for t in group.trajectories]
        assert points_of(group) == [0.5 * (1 + sign) for sign in signs]


def test_a_dropped_game_leaves_its_row_incomplete():
    (group, *_) = play(games_of("bold", OtherAgent("meek")), "agentrl/Kuhn-v0", bold="b", meek="p")
    assert points_of(dataclasses.replace(group, trajectories=group.trajectories[2:])) == [1.0]


@pytest.mark.slow
def test_a_table_of_a_runs_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = get_config()
    config.demonstrations = DemonstrationConfig("random", episodes=200)
    config.phases["sft"].steps, config.phases["rl"].steps = 30, 2
    config.evaluation.episodes = 8
    loop.train(config, tmp_path / "kuhn", quiet=True)
    capsys.readouterr()
    players = (f"{tmp_path}/kuhn:sft", f"{tmp_path}/kuhn", "expert", "random")
    result = Ratings(players, games=100).run()
    lines = capsys.readouterr().out.splitlines()
    assert result["players"].keys() == {*players} and result["dropped"] == 0
    assert result["players"][players[0]]["rating"] == 1000.0
    assert len(lines) == 2 + len(players) and lines[0].startswith("| player | Elo")
    rows = {row[1].strip(): row for line in lines[2:] if (row := line.split("|"))}
    assert [rows[name][4].strip() for name in players] == ["300", "300", "200", "200"]
    assert [rows[name][5].strip() == "-" for name in players] == [False, False, True, True]
    tuned = result["players"][players[1]]["exploitability"]
    assert tuned == exploitability.compute(tmp_path / "kuhn") and 0 < tuned < 1
    assert Ratings(players, games=100).run() == result  # the same games


@pytest.mark.parametrize(
    ("players", "fields", "message"),
    [
        (("random",), {}, "two or more"),
        (("random", "random"), {}, "each once"),
        (("random", "expert"), {"environment": "agentrl/Kuhn-v0"}, "name a run folder"),
        (("random", "expert"), {}, "give a game"),
        (("random", "nobody"), {"environment": "agentrl/Kuhn-v0"}, "neither a run folder"),
        (("random", "expert"), {"environment": "agentrl/Wordle-v0"}, "no game of two"),
        (("random", "expert"), {"environment": "agentrl/Kuhn-v0", "games": 1}, "2 or more"),
    ],
)
def test_what_cannot_be_rated(players: tuple[str, ...], fields: dict, message: str):
    with pytest.raises(UserError, match=message):
        Ratings(players, **fields).run()
