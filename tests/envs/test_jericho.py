"""Stories in jericho's interpreter against the package's own loop, on a game compiled here."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import Environment, make
from agentrl_jax.envs.adapters.textworld_generator import KINDS, compiled_game
from agentrl_jax.errors import UserError

jericho = pytest.importorskip("jericho", reason="jericho is not installed: make test-textworld")
pytest.importorskip("textworld", reason="textworld is not installed: make test-textworld")
NAME = "agentrl/Jericho-v0"


@pytest.fixture(scope="module")
def story() -> tuple[str, list[str]]:
    """A story file, and commands that win it."""
    import json

    path = compiled_game("coin_collector", json.dumps(dict(KINDS["coin_collector"])), 1)
    env = make("agentrl/TextWorld-v0", {"kind": "coin_collector", "games": 1, "first": 1})
    env.reset(seed=0)
    commands = []
    while not env._is_over:
        commands.append(str(env.scripted_policies["expert"](env, np.random.default_rng(0))))
        env.step(commands[-1])
    env.close()
    return path, commands


def plays(env: Environment, reference: Any, seed: int, policy: str) -> bool:
    """Plays an episode beside the package's loop; returns whether it succeeded."""
    rng = np.random.default_rng(seed)
    (opening,), _ = env.reset(seed=seed)
    reference.seed(1 + seed)
    assert opening.text.strip() == reference.reset()[0].strip().removesuffix(">").strip()
    while True:
        command = str(env.scripted_policies[policy](env, rng))
        (answer,), reward, terminated, truncated, info = env.step(command)
        printed = reference.step(command)[0]
        assert answer.text.strip() == printed.strip().removesuffix(">").strip()
        assert terminated is ("***" in printed) and reward == float("*** The End ***" in printed)
        if terminated or truncated:
            return info["success"]


def test_messages_are_those_of_the_packages_loop(story: tuple[str, list[str]]):
    path, commands = story
    env = make(NAME, {"story": path, "walkthrough": commands, "horizon": 15})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = jericho.FrotzEnv(path, seed=1)
    successes = [plays(env, reference, s, ("expert", "random")[s % 2]) for s in range(100)]
    assert all(successes[::2]) and not all(successes[1::2])


def test_a_pattern_is_checked(story: tuple[str, list[str]]):
    with pytest.raises(UserError, match="is no pattern"):
        make(NAME, {"story": story[0], "winning_text": "("})


def test_a_fork_goes_on_alike(story: tuple[str, list[str]]):
    path, commands = story
    env = make(NAME, {"story": path, "walkthrough": commands})
    env.reset(seed=2)
    env.step(commands[0])
    fork = env.fork()
    for command in ("look", *commands[1:]):
        assert fork.step(command) == env.step(command)
    assert env._is_over


def test_commands_that_save_or_quit_do_not_reach_the_story(
    story: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    env = make(NAME, {"story": story[0], "horizon": 9})
    env.reset(seed=0)
    texts = (
        "save",
        "look. save",
        "QUIT",
        "restart",
        "script",
        "wait then restore",
        "",
        "é",
        "x" * 9999,
    )
    for text in texts:
        _, reward, terminated, truncated, info = env.step(text)
        assert reward == 0 and not terminated
        assert info["legal"] is (text[:1] == "x")
    assert truncated and info["success"] is False and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the path of a story file"),
        ({"story": "/nowhere.z5"}, "the path of a story file"),
        ({"story": __file__}, "the path of a story file"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make(NAME, options)
