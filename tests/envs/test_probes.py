"""What all the small worlds promise: who solves them, which facts they say, and what the page about them tells."""

import inspect
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from worlds import played

from agentrl_jax.environment import make
from agentrl_jax.envs.probes.probe import Probe
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.trajectories import Turn

FACTS = {
    "agentrl/Arithmetic-v0": {"formatted", "answer"},
    "agentrl/Calculator-v0": {"void", "formatted", "tool_calls", "stopped", "answer"},
    "agentrl/Chain-v0": {"legal", "anchor", "distance"},
    "agentrl/Desk-v0": {"legal", "formatted", "tool_calls", "stopped", "answer"},
    "agentrl/KeyDoor-v0": {"legal", "anchor", "distance", "stopped"},
    "agentrl/Lookup-v0": {"legal", "formatted", "tool_calls", "stopped", "answer", "gold"},
}
PAGE = (Path(__file__).parents[2] / "docs" / "probes.md").read_text()
PLAYERS = [(name, player) for name in FACTS for player in make(name).players]


def test_these_are_all_of_them():
    entries = {name: spec.entry_point for name, spec in gymnasium.registry.items() if name.startswith("agentrl/")}
    assert {name for name, entry in entries.items() if ".probes." in str(entry)} == set(FACTS)


def row_of(name: str) -> str:
    """The page's line about how well the players do."""
    env, cells = make(name), []
    played_by = {player: [played(env, player, seed) for seed in range(200)] for player in env.players}
    for player in ("random", "weak", "mixture", "expert"):
        won = [bool(t.success) for t in played_by.get(player, ())]
        cells.append(f"{100 * np.mean(won):.0f} %" if won else "")
    texts = [[m.text for m in t.opening] + [text for turn in t.turns for text in said(turn)] for t in played_by["mixture"]]
    tokenizer = BytePairs(vocab_size=128, all_bytes=False)(text for episode in texts for text in episode)
    tokens = [sum(len(tokenizer(text)["input_ids"]) for text in episode) for episode in texts]
    cells += [f"{np.mean([len(t.turns) for t in played_by['mixture']]):.1f}", f"{np.mean(tokens):.0f}, {max(tokens)}"]
    return f"| {name.removeprefix('agentrl/').removesuffix('-v0')} | {' | '.join(cells)} |".replace("|  |", "| |")


def said(turn: Turn) -> list[str]:
    return [turn.action.text + "\n", *(m.text for m in turn.observation)]


@pytest.mark.parametrize("name", FACTS)
def test_the_page_tells_how_well_the_players_do(name):
    assert row_of(name) in PAGE


@pytest.mark.parametrize("name", FACTS)
def test_the_expert_solves_every_task_and_the_random_player_few(name):
    env = make(name)
    assert all(played(env, "expert", seed).success for seed in range(200))
    assert np.mean([bool(played(env, "random", seed).success) for seed in range(200)]) < 0.25


@pytest.mark.parametrize(("name", "player"), PLAYERS)
def test_every_turn_says_the_facts_and_the_parts_and_nothing_else(name, player):
    env = make(name)
    assert isinstance(env, Probe)
    for seed in range(10):
        t = played(env, player, seed)
        assert len({frozenset(turn.rewards) for turn in t.turns}) == 1 and "outcome" in t.turns[0].rewards
        assert all(set(turn.info) - {"success"} == FACTS[name] | {"full_score"} for turn in t.turns)
        assert t.total_reward <= env.full_score + 1e-9
        assert not env.horizon or len(t.turns) <= env.horizon


@pytest.mark.parametrize("name", FACTS)
def test_an_episode_of_demonstrations_is_short(name):
    """Under 400 characters, at one to two a token."""
    env = make(name)
    for seed in range(50):
        played(env, "mixture", seed)
        assert len(env.render()) < 400


@pytest.mark.parametrize("name", FACTS)
def test_the_page_names_its_options_players_and_facts(name):
    (row,) = re.findall(rf"^\| `{name.removeprefix('agentrl/')}` \|(.*)\|$", PAGE, re.MULTILINE)
    _, options, players, facts = ([*re.findall(r"`(\w+)`", cell)] for cell in row.split("|"))
    env = make(name)
    assert options == [option for option in inspect.signature(type(env).__init__).parameters if option not in ("self", "render_mode")]
    assert players == list(env.players) and set(facts) == FACTS[name]
