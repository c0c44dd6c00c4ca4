"""`Chain` against its restated rules, and rewards by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import (
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.chain import Chain
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def make_chain(digits: tuple[int, ...] = (0, 5, 7), **options) -> Chain:
    """The right letters of the default are "a", "b", "d"."""
    env = make_env(Chain, length=len(digits), **options)
    env.digits = digits
    return env


def test_right_letters_lead_to_the_only_reward():
    t = play_actions(make_chain(), "a", "b", "d")
    assert observation_texts(t) == ["1:5\n", "2:7\n", "end\n"] and rewards(t) == [0.0, 0.0, 1.0]
    assert info_values(t, "distance") == [2, 1, 0] and t.success is True and t.turns[-1].terminated
    assert (
        info_values(t, "anchor") == ["057@0", "057@1", "057@2"]
        and info_values(t, "full_score") == [1.0] * 3
    )


def test_a_wrong_letter_stays_and_the_horizon_truncates():
    t = play_actions(make_chain(), "a", "c", "x", "ab", "b", "a")
    assert observation_texts(t) == ["1:5\n"] * 4 + ["2:7\n"] * 2 and rewards(t) == [0.0] * 6
    assert info_values(t, "legal") == [True, True, False, False, True, True]
    assert t.turns[-1].truncated and not t.turns[-1].terminated and t.success is False


def test_the_last_turn_of_the_horizon_may_still_win():
    t = play_actions(make_chain(horizon=4), "a", "a", "b", "d")
    assert t.success is True and t.turns[-1].terminated and not t.turns[-1].truncated


def test_a_wrong_letter_may_fall_back_but_not_below_the_start():
    t = play_actions(make_chain(wrong=2), "d", "a", "a", "a", "b", "a")
    assert observation_texts(t) == ["0:0\n", "1:5\n", "0:0\n", "1:5\n", "2:7\n", "0:0\n"]
    assert info_values(t, "distance") == [3, 2, 3, 2, 1, 3]


def test_a_wrong_letter_may_end_it_but_a_refused_text_does_not():
    t = play_actions(make_chain(wrong="end"), "a", "?", "c")
    assert observation_texts(t) == ["1:5\n", "1:5\n", "1:5\n"] and rewards(t) == [0.0] * 3
    assert t.turns[-1].terminated and t.success is False


def test_progress_rewards_what_each_turn_gained_or_lost():
    env = make_chain((0, 5, 7, 0), wrong=2, progress=True)
    t = play_actions(env, "a", "b", "a", "a", "b", "d", "a")
    assert [turn.rewards["progress"] for turn in t.turns] == [
        0.25,
        0.25,
        -0.5,
        0.25,
        0.25,
        0.25,
        0.25,
    ]
    assert rewards(t)[-1] == 1.25 and t.total_reward == 2.0 == t.turns[0].info["full_score"]
    assert env.reward_bounds == (-1.0, 2.0)


def test_a_plan_changes_nothing_and_the_follower_mostly_follows_it():
    t = play_actions(make_chain(plans=True), "d", "a", "a", "x", "?", "b", "", "d")
    assert observation_texts(t) == [
        "\n",
        "1:5\n",
        "\n",
        "1:5\n",
        "\n",
        "2:7\n",
        "\n",
        "end\n",
    ] and rewards(t) == [0.0] * 7 + [1.0]
    assert info_values(t, "distance") == [3, 2, 2, 2, 2, 1, 1, 0] and t.success
    env = make_env(Chain, plans=True, length=60)
    texts_of = [
        turn.action.text
        for seed in range(5)
        for turn in play_scripted_episode(env, "follower", seed).turns
    ]
    followed_fraction = sum(plan == text for plan, text in zip(texts_of[::2], texts_of[1::2])) / (
        len(texts_of) // 2
    )
    assert (
        0.88 < followed_fraction < 0.97 and env.horizon == 240
    )  # 90 %, and a quarter of the others


def test_the_last_positions_may_recall_early_digits():
    """Of positions 0 5 7 2 2 2, the last two refer to positions 1 and 2, whatever their digits."""
    t = play_actions(
        make_chain((0, 5, 7, 2, 2, 2), recall=2), "a", "b", "d", "c", "c", "b", "c", "d"
    )
    assert observation_texts(t) == [
        "1:5\n",
        "2:7\n",
        "3:2\n",
        "4=1\n",
        "4=1\n",
        "5=2\n",
        "5=2\n",
        "end\n",
    ]
    assert t.success is True and info_values(t, "distance") == [5, 4, 3, 2, 2, 1, 1, 0]


def test_recall_zero_is_the_default_environment():
    recall_episode, plain_episode = (
        play_scripted_episode(env, "mixture", 3) for env in (make_chain(), make_chain(recall=0))
    )
    assert recall_episode.messages == plain_episode.messages and rewards(recall_episode) == rewards(
        plain_episode
    )
    with pytest.raises(UserError, match="recall must be a whole number from 0 to 1"):
        make("agentrl/Chain-v0", {"length": 4, "recall": 2})


@pytest.mark.parametrize(
    ("letters", "right"), [(2, "abababababab"), (4, "abcdabcdab"), (10, "abcdefghij")]
)
def test_the_letter_is_the_digit_mod_the_letters(letters, right):
    env = make_chain(tuple(range(10)), letters=letters)
    assert play_actions(env, *right[:10]).success is True


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", ""]), max_size=20),
    st.sampled_from(["stay", "end", 1, 3]),
)
def test_any_actions_match_the_restated_rules(digits, actions, wrong):
    env, place = make_chain(tuple(digits), wrong=wrong), 0
    for turn, action in enumerate(actions[: 2 * len(digits)], 1):
        observation, reward, terminated, truncated, info = env.step(action)
        lost = False
        if action and action in "abcd":
            if "abcd".index(action) == digits[place] % 4:
                place += 1
            elif wrong == "end":
                lost = True
            elif wrong != "stay":
                place = max(place - int(wrong), 0)
        won = place == len(digits)
        assert texts(observation) == ["end\n" if won else f"{place}:{digits[place]}\n"]
        assert (reward, terminated, truncated) == (
            won,
            won or lost,
            not (won or lost) and turn == 2 * len(digits),
        )
        assert info["distance"] == len(digits) - place
        if terminated or truncated:
            return


@pytest.mark.parametrize(
    "option", [{"letters": 1}, {"letters": 11}, {"wrong": 0}, {"wrong": "back"}, {"horizon": 0}]
)
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make_chain(**option)


def test_the_defaults_and_a_long_chain():
    short, long = make("agentrl/Chain-v0"), make("agentrl/Chain-v0", {"length": 40})
    assert (
        len(play_scripted_episode(short, "expert", 0).turns) == 12
        and len(play_scripted_episode(long, "expert", 0).turns) == 40
    )
    assert len(play_scripted_episode(long, "random", 0).turns) == 80


def test_most_mixture_episodes_fail_where_a_wrong_letter_ends_the_chain():
    """(.8 + .2 / 4)^12 = .142 of the mixture's episodes succeed; 400 of them, 4 standard errors."""
    env = make("agentrl/Chain-v0", {"wrong": "end"})
    share = (
        sum(bool(play_scripted_episode(env, "mixture", seed).success) for seed in range(400)) / 400
    )
    assert share == pytest.approx(0.85**12, abs=0.07)


def test_an_answer_may_be_its_letter_written_several_times():
    t = play_actions(make_chain(answer_length=3), "aaa", "b", "bbbb", "bbb", "ddd")
    assert observation_texts(t) == ["1:5\n"] * 3 + ["2:7\n", "end\n"] and t.success is True
    assert info_values(t, "legal") == [True, False, False, True, True]


def test_scripted_policies_write_answers_of_the_length():
    t = play_scripted_episode(make_env(Chain, length=4, answer_length=24), "expert", 0)
    assert t.success is True and len(t.turns) == 4
    assert all(len(turn.action.text.strip()) == 24 for turn in t.turns)
