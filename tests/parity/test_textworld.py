"""Text-Nav's house against the same house as a game of the textworld package."""

import random

import numpy as np
import pytest

from agentrl_jax.envs.lmrl.house import ROOMS, command_results, next_step
from agentrl_jax.envs.lmrl.textworld_nav import TextWorldNav

pytest.importorskip("textworld", reason="textworld is not installed: make test-extras does it")
pytestmark = pytest.mark.filterwarnings("default")  # its interpreter warns that the game is unknown


@pytest.mark.parametrize("view", ["full", "partial"])
def test_both_have_the_same_commands_scores_and_ends(view):
    env, dice, ends = TextWorldNav(view=view), random.Random(3), set()
    for game in range(24):
        env.reset(seed=game, options={"room": ROOMS[game % len(ROOMS)]})
        done = False
        while not done:
            assert env.admissible_commands() == tuple(command_results(env.state))
            command = (
                next_step(env.state)
                if dice.random() < 0.5
                else dice.choice(env.admissible_commands())
            )
            (message,), reward, terminated, truncated, info = env.step(command)
            assert (
                terminated is (env.state.is_won or env.state.is_lost)
                and reward == float(env.state.is_won)
                and info["legal"]
            )
            assert (
                "-=" not in message.text and ">" not in message.text and "***" not in message.text
            )
            done = terminated or truncated
        ends.add((terminated, reward))
    assert ends == {(True, 1.0), (True, 0.0), (False, 0.0)}
    env.close()


def test_the_partial_view_hides_the_room():
    texts = {}
    for view in ("full", "partial"):
        env = TextWorldNav(view=view)
        (message,), _ = env.reset(options={"room": "garden"})
        texts[view] = message.text
        env.close()
    assert "garden" in texts["full"].lower() and "garden" not in texts["partial"].lower()
    assert texts["full"].endswith(texts["partial"]) and texts["partial"].endswith(
        "Admissible commands: go south\n"
    )


def test_the_scripted_policies_play_and_hostile_text_is_answered():
    for player, won in (("expert", 1.0), ("random", None)):
        env, total, done = TextWorldNav(), 0.0, False
        env.reset(seed=1)
        while not done:
            _, reward, terminated, truncated, _ = env.step(
                env.scripted_policies[player](env, np.random.default_rng(1))
            )
            total, done = total + reward, terminated or truncated
        assert won is None or total == won
        env.close()
    env.reset(seed=1)
    for text in ("quit", "save\nx", "\x00", "é" * 1000, "restart", "undo", ""):
        (message,), reward, terminated, _, info = env.step(text)
        assert (reward, terminated, info["legal"]) == (
            0.0,
            False,
            False,
        ) and message.text.startswith("That is not possible here.")
    env.close()
