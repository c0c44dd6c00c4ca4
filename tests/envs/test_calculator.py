"""`Calculator`: texts and rewards by hand, void turns, and masks of void turns."""

import pytest
from support.env_episodes import (
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.algorithms.advantages.trajectory_checks import has_void_turn
from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.calculator import Calculator
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def make_calculator(numbers: tuple[int, ...] = (3, 14, 8), **options) -> Calculator:
    env = make_env(Calculator, terms=len(numbers), **options)
    env.numbers = numbers
    return env


def test_an_episode_by_hand():
    env = make_calculator()
    assert env._opening_text() == "3+14+8=?"
    t = play_actions(env, "calc 3+14", "calc 17+8", "answer 25")
    assert observation_texts(t) == ["17\n", "25\n", "Done.\n"] and rewards(t) == [0.0, 0.0, 1.0]
    assert info_values(t, "called_tools") == [["calc"], ["calc"], []] and info_values(
        t, "stopped"
    ) == [
        False,
        False,
        True,
    ]
    assert info_values(t, "void") == [False] * 3 and info_values(t, "answer") == [None, None, "25"]
    assert t.success is True and t.turns[-1].terminated


def test_a_wrong_answer_ends_the_episode_without_reward():
    t = play_actions(make_calculator(), "answer 24")
    assert rewards(t) == [0.0] and t.turns[-1].terminated and t.success is False


def test_leading_zeros_are_ignored():
    t = play_actions(make_calculator(), "calc 03+014", " answer 025\n")
    assert (
        observation_texts(t) == ["17\n", "Done.\n"]
        and info_values(t, "answer") == [None, "25"]
        and t.success is True
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "25",
        "hm",
        "calc",
        "calc 3",
        "calc 3+",
        "calc 3-1",
        "calc 3 + 4",
        "calc 1+2+3",
        "answer",
        "answer x",
        "answer -1",
        "calc ３+4",
    ],
)
def test_malformed_actions_are_void_turns(text):
    t = play_actions(make_calculator(), text)
    assert (
        observation_texts(t) == ["?\n"]
        and info_values(t, "void") == [True]
        and info_values(t, "formatted") == [False]
        and not t.turns[-1].terminated
    )
    ended = play_actions(make_calculator(void_ends=True), text)
    assert ended.turns[-1].terminated and ended.success is False and rewards(ended) == [0.0]


def test_long_results_are_cut():
    assert observation_texts(
        play_actions(make_calculator(longest=3), "calc 99999+1", "calc 999+1", "calc 99+1")
    ) == [
        "100\n",
        "100\n",
        "100\n",
    ]
    assert observation_texts(play_actions(make_calculator(), "calc 999999999+1")) == ["10000000\n"]


def test_the_horizon_truncates():
    t = play_actions(make_calculator(), *["hm"] * 8)
    assert t.turns[-1].truncated and t.success is False


def test_numbers_are_sampled_up_to_the_largest():
    env = make("agentrl/Calculator-v0", {"terms": 2, "largest": 3})
    openings = {texts(env.reset(seed=seed)[0])[0] for seed in range(200)}
    assert openings == {f"{a}+{b}=?\n" for a in range(4) for b in range(4)}


def test_the_expert_needs_a_call_for_every_number_but_the_first():
    assert [
        len(play_scripted_episode(make_calculator((1,) * n), "expert", 0).turns) for n in (2, 3, 7)
    ] == [
        2,
        3,
        7,
    ]


def test_only_the_mixture_has_void_turns():
    """A turn is void with probability .2: three turns contain none with probability .512."""
    env = make_calculator()
    share = (
        sum(has_void_turn(play_scripted_episode(env, "mixture", seed)) for seed in range(300)) / 300
    )
    assert 0.3 < share < 0.7
    assert not any(
        has_void_turn(play_scripted_episode(env, player, seed))
        for seed in range(50)
        for player in ("expert", "random")
    )


@pytest.mark.parametrize("option", [{"largest": 0}, {"longest": 0}, {"horizon": 0}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make_calculator(**option)
    with pytest.raises(UserError, match="terms"):
        make("agentrl/Calculator-v0", {"terms": 1})
