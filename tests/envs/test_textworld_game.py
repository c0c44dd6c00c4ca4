"""Games that TextWorld generates against the package's own loop, and its own solutions."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.textworld_game import TextWorld, feedback_text
from agentrl_jax.envs.adapters.textworld_generator import KINDS, compiled_game
from agentrl_jax.errors import UserError

GAMES = 3  # of each kind; compiling one takes seconds


@pytest.fixture(scope="module", autouse=True)
def textworld() -> Any:
    return pytest.importorskip(
        "textworld", reason="textworld is not installed: make test-textworld"
    )


def game(kind: str, **options: Any) -> TextWorld:
    env = make("agentrl/TextWorld-v0", {"kind": kind, "games": GAMES, **options})
    assert isinstance(env, TextWorld)
    return env


@pytest.mark.parametrize("kind", KINDS)
def test_messages_and_rewards_are_those_of_the_packages_loop(kind: str, textworld: Any):
    env = game(kind, horizon=25)
    infos = textworld.EnvInfos(admissible_commands=True, score=True, max_score=True, won=True)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        (opening,), info = env.reset(seed=seed)
        path = compiled_game(kind, env.settings, info["game"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference = textworld.start(path, infos)
            state = reference.reset()
        assert opening.text.split("\n\n")[0] in " ".join(state.feedback.split("\n"))
        is_over, turn = False, 0
        while not is_over and turn < 25:
            commands = sorted(state.admissible_commands)
            assert list(env.commands) == commands
            command, before = commands[int(rng.integers(len(commands)))], state.score
            (answer,), reward, *ends, info = env.step(command)
            state, _, is_over = reference.step(command)
            turn += 1
            listed = ", ".join(sorted(state.admissible_commands))
            assert answer.text == f"{feedback_text(state.feedback)}\nCommands: {listed}\n"
            assert reward == (state.score - before) / state.max_score and info["legal"]
            assert ends == [is_over, not is_over and turn == 25]
        assert info["success"] is state.won
        reference.close()
    env.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_packages_solution_wins(kind: str):
    env = game(kind, progress=0.5)
    for seed in range(GAMES):
        env.reset(seed=seed)
        total, parts, is_over = 0.0, [], False
        while not is_over:
            action = env.scripted_policies["expert"](env, np.random.default_rng(0))
            _, _, is_over, truncated, info = env.step(action)
            total += info["rewards"]["task"]
            parts.append(info["rewards"]["progress"])
            assert not truncated
        assert info["success"] and total == pytest.approx(1.0) and min(parts) >= 0
        assert total + sum(parts) == pytest.approx(info["full_score"])
        if kind == "quest":
            assert len(parts) == 4  # the length of the quest
    env.close()


def test_an_impossible_command_is_refused_and_the_game_does_not_see_it():
    env = game("coin_collector", horizon=4)
    env.reset(seed=0)
    commands = list(env.commands)
    for text in ("save", "quit", "restart", "script"):
        (answer,), reward, terminated, truncated, info = env.step(text)
        assert answer.text.startswith("That is not possible here.") and env.commands == commands
        assert (reward, terminated, info["legal"]) == (0.0, False, False)
    assert truncated and info["success"] is False
    env.close()


def test_a_game_is_the_same_in_another_process():
    code = (
        "from agentrl_jax.environment import make\nimport agentrl_jax.envs\n"
        "env = make('agentrl/TextWorld-v0', {'games': 1})\n"
        "print(env.reset(seed=0)[0][0].text)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    env = make("agentrl/TextWorld-v0", {"games": 1})
    assert done.stdout == env.reset(seed=0)[0][0].text + "\n"


def test_splits_are_ranges_of_games():
    openings = {}
    for first in (0, 100):
        env = game("quest", first=first)
        for seed in range(2):
            (opening,), info = env.reset(seed=seed)
            assert info == {"game": first + seed}
            openings[info["game"]] = opening.text
        assert env.reset(seed=GAMES)[1] == {"game": first}
    assert len(set(openings.values())) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "chess"}, "TextWorld has the games quest, coin_collector"),
        ({"settings": {"colour": 1}}, "not {'colour': 1}"),
        ({"games": 0}, "games"),
        ({"progress": -1}, "progress"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/TextWorld-v0", options)
    with pytest.raises(UserError, match="makes no game coin_collector"):
        game("coin_collector", settings={"level": 10**6}).reset(seed=0)
