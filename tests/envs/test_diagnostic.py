"""Diagnostic environments: success rates, info fields, and the table of docs/diagnostic.md."""

import inspect
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.trajectories import Turn

INFO_FIELDS = {
    "agentrl/Arithmetic-v0": {"formatted", "answer"},
    "agentrl/Calculator-v0": {"void", "formatted", "called_tools", "stopped", "answer"},
    "agentrl/Chain-v0": {"legal", "anchor", "distance"},
    "agentrl/CountSquares-v0": {"formatted", "answer"},
    "agentrl/Desk-v0": {"legal", "formatted", "called_tools", "stopped", "answer"},
    "agentrl/Form-v0": {"noted"},
    "agentrl/KeyDoor-v0": {"legal", "void", "called_tools", "anchor", "distance", "stopped"},
    "agentrl/Lookup-v0": {"legal", "formatted", "called_tools", "stopped", "answer", "gold"},
}
PAGE = (Path(__file__).parents[2] / "docs" / "diagnostic.md").read_text()
PLAYERS = [(name, player) for name in INFO_FIELDS for player in make(name).scripted_policies]


def test_every_diagnostic_environment_is_listed_here():
    entries = {
        name: spec.entry_point
        for name, spec in gymnasium.registry.items()
        if name.startswith("agentrl/")
    }
    assert {name for name, entry in entries.items() if ".diagnostic." in str(entry)} == set(
        INFO_FIELDS
    )


def row_of(name: str) -> str:
    """The row of the table of success rates."""
    env, cells = make(name), []
    played_by = {
        player: [play_scripted_episode(env, player, seed) for seed in range(200)]
        for player in env.scripted_policies
    }
    for player in ("random", "weak", "mixture", "expert"):
        won = [bool(t.success) for t in played_by.get(player, ())]
        cells.append(f"{100 * np.mean(won):.0f} %" if won else "")
    texts = [
        [m.text for m in t.opening] + [text for turn in t.turns for text in turn_texts(turn)]
        for t in played_by["mixture"]
    ]
    tokenizer = BPETokenizer(vocab_size=128, all_bytes=False)(
        text for episode in texts for text in episode
    )
    tokens = [sum(len(tokenizer(text)["input_ids"]) for text in episode) for episode in texts]
    cells += [
        f"{np.mean([len(t.turns) for t in played_by['mixture']]):.1f}",
        f"{np.mean(tokens):.0f}, {max(tokens)}",
    ]
    return f"| {name.removeprefix('agentrl/').removesuffix('-v0')} | {' | '.join(cells)} |".replace(
        "|  |", "| |"
    )


def turn_texts(turn: Turn) -> list[str]:
    return [turn.action.text + "\n", *(m.text for m in turn.observation)]


@pytest.mark.slow
@pytest.mark.parametrize("name", INFO_FIELDS)
def test_the_docs_page_has_the_measured_success_rates(name):
    assert row_of(name) in PAGE


@pytest.mark.slow
@pytest.mark.parametrize("name", INFO_FIELDS)
def test_the_expert_solves_every_task_and_the_random_policy_few(name):
    env = make(name)
    assert all(play_scripted_episode(env, "expert", seed).success for seed in range(200))
    assert (
        np.mean([bool(play_scripted_episode(env, "random", seed).success) for seed in range(200)])
        < 0.25
    )


@pytest.mark.parametrize(("name", "player"), PLAYERS)
def test_every_turn_has_exactly_the_documented_info_fields(name, player):
    env = make(name)
    assert isinstance(env, SampledTaskEnvironment)
    for seed in range(10):
        t = play_scripted_episode(env, player, seed)
        assert (
            len({frozenset(turn.rewards) for turn in t.turns}) == 1
            and "outcome" in t.turns[0].rewards
        )
        assert all(
            set(turn.info) - {"success"} == INFO_FIELDS[name] | {"full_score"} for turn in t.turns
        )
        assert t.total_reward <= env.full_score + 1e-9
        assert not env.horizon or len(t.turns) <= env.horizon


@pytest.mark.parametrize("name", INFO_FIELDS)
def test_a_demonstration_has_fewer_than_400_characters(name):
    """At one to two characters per token."""
    env = make(name)
    for seed in range(50):
        play_scripted_episode(env, "mixture", seed)
        assert len(env.render()) < 400


@pytest.mark.parametrize("name", INFO_FIELDS)
def test_the_docs_page_names_options_policies_and_info_fields(name):
    (row,) = re.findall(rf"^\| `{name.removeprefix('agentrl/')}` \|(.*)\|$", PAGE, re.MULTILINE)
    _, options, players, facts = ([*re.findall(r"`(\w+)`", cell)] for cell in row.split("|"))
    env = make(name)
    assert options == [
        option
        for option in inspect.signature(type(env).__init__).parameters
        if option not in ("self", "render_mode")
    ]
    assert players == list(env.scripted_policies) and set(facts) == INFO_FIELDS[name]
