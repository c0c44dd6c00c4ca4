"""`Form`: texts and rewards by hand, thoughts, and what the policy sees with old screens hidden."""

import pytest
from support.env_episodes import (
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.algorithms.contexts.history_views import ObservationPlaceholders
from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.form import Form, action_type
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def make_form(**options) -> Form:
    """Two fields: a is 4, b is 7, and b is asked for first."""
    env = make_env(Form, fields=2, **options)
    env.values, env.digits, env.order = (4, 7), (2, 5, 8), (1, 0)
    return env


def test_an_episode_by_hand():
    env = make_form()
    assert env._opening_text() == "start 2"
    t = play_actions(env, "y", "a4;x", " hm ; w", "7", "b7;4")
    assert observation_texts(t) == ["a=4 5\n", "b=7 8\n", "b?\n", "a?\n", "Done.\n"]
    assert rewards(t) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert info_values(t, "noted") == ["", "a", "a", "a", "ab"]
    assert t.success is True and t.turns[-1].terminated


def test_a_wrong_button_costs_a_turn_and_a_wrong_value_ends_the_episode():
    t = play_actions(make_form(), "w", "y", "x", "w", "4")
    assert observation_texts(t) == ["start 2\n", "a=4 5\n", "b=7 8\n", "b?\n", "b?\n"]
    assert t.success is False and t.turns[-1].terminated and not t.turns[-2].terminated
    assert rewards(t) == [0.0] * 5


@pytest.mark.parametrize("text", ["", "7", "yy", "y;", ";", "press y", "Y"])
def test_what_is_no_button_changes_nothing_on_a_screen(text):
    t = play_actions(make_form(), text, "y")
    assert observation_texts(t) == ["start 2\n", "a=4 5\n"]


def test_what_is_no_digit_does_not_end_the_episode_on_the_form():
    t = play_actions(make_form(horizon=8), "y", "x", "w", "w", "77", "7", "4")
    assert observation_texts(t)[2:] == ["b?\n", "b?\n", "b?\n", "a?\n", "Done.\n"]
    assert t.success is True


def test_the_horizon_truncates():
    t = play_actions(make_form(), *"wwwwww")
    assert t.turns[-1].truncated and not t.turns[-2].truncated and t.success is False


def test_the_scripted_policies():
    env = make("agentrl/Form-v0", {"fields": 8})
    episode = play_scripted_episode(env, "note_taker", 1)
    assert episode.success is True and len(episode.turns) == 17
    assert info_values(episode, "noted")[8] == "abcdefgh"
    assert all(len(turn.action.text) == 1 for turn in play_scripted_episode(env, "expert", 1).turns)
    forgetful = [play_scripted_episode(make("agentrl/Form-v0"), "mixture", i) for i in range(100)]
    after_screens = [info_values(episode, "noted")[3] for episode in forgetful]
    assert 0.4 < sum(map(len, after_screens)) / 300 < 0.8


def test_with_old_screens_hidden_only_thoughts_hold_the_values():
    env = make_env(Form, fields=2)
    context = ObservationPlaceholders("...\n")
    for player, is_noted in (("note_taker", True), ("expert", False)):
        episode = play_scripted_episode(env, player, 5)
        view = "".join(texts(context.view(episode.opening, episode.turns[:3])))
        values = [f"{field}{value}" for field, value in zip("ab", env.values)]
        assert all((value in view) == is_noted for value in values), view
        assert "=" not in view and view.endswith("?\n")


def test_types_of_actions():
    assert [action_type(x) for x in ("w", "0", "", "wx", "a", "10")] == [
        "press",
        "type",
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("options", [{"fields": 0}, {"fields": 9}, {"horizon": 0}])
def test_bad_options(options):
    with pytest.raises(UserError):
        make("agentrl/Form-v0", options)
