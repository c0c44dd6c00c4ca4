"""`Arithmetic`: texts and rewards by hand, and UFO's and SCoRe's shaped rewards on it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.env_episodes import (
    group_of,
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.algorithms.experience.penalties import RepeatedAnswerPenalty
from agentrl_jax.algorithms.experience.rewards import AttemptDecay, ProgressBonus, RewardChain
from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.arithmetic import Arithmetic
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

WRONG = "Incorrect. Please think again.\n"


def make_arithmetic(problem: tuple[int, str, int] = (17, "+", 25), **options) -> Arithmetic:
    env = make_env(Arithmetic, **options)
    env.problem = problem
    return env


def test_a_wrong_answer_gets_feedback_and_the_right_one_ends_the_episode():
    t = play_actions(make_arithmetic(), "41", "forty", "42")
    assert observation_texts(t) == [WRONG, WRONG, "Correct.\n"]
    assert rewards(t) == [0.0, 0.0, 1.0] and [turn.rewards for turn in t.turns][-1] == {
        "outcome": 1.0
    }
    assert info_values(t, "formatted") == [True, False, True] and info_values(t, "answer") == [
        "41",
        None,
        "42",
    ]
    assert [turn.terminated for turn in t.turns] == [False, False, True] and t.success is True


def test_five_wrong_attempts_end_the_episode():
    t = play_actions(make_arithmetic(), *["1"] * 5)
    assert observation_texts(t) == [WRONG] * 5 and rewards(t) == [0.0] * 5
    assert t.turns[-1].terminated and not t.turns[-1].truncated and t.success is False


def test_the_question_shows_operands_and_operator():
    env = make("agentrl/Arithmetic-v0", {"largest": 9, "operators": "*"})
    openings = {texts(env.reset(seed=seed)[0])[0] for seed in range(600)}
    assert openings == {f"{a}*{b}=?\n" for a in range(10) for b in range(10)}


@pytest.mark.parametrize(
    ("problem", "right"), [((3, "-", 20), "-17"), ((20, "*", 20), "400"), ((0, "+", 0), "0")]
)
def test_operators_by_hand(problem, right):
    assert play_actions(make_arithmetic(problem, operators="+-*"), right).success is True


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 42\n", "42"),
        ("042", "42"),
        ("-0", "0"),
        ("-7", "-7"),
        ("4 2", None),
        ("+42", None),
        ("42.", None),
        ("٤٢", None),
        ("1" * 10, None),
    ],
)
def test_what_counts_as_a_number(text, answer):
    assert info_values(play_actions(make_arithmetic((5, "+", 5)), text), "answer") == [answer]


@settings(deadline=None, max_examples=40)
@given(st.text() | st.integers().map(str))
def test_any_text_is_a_number_or_malformed(text):
    (turn,) = play_actions(make_arithmetic((0, "+", 0)), text).turns
    assert turn.info["formatted"] == (turn.info["answer"] is not None)
    if turn.info["formatted"]:
        assert int(turn.info["answer"]) == int(text)
    assert turn.reward == float(turn.info["answer"] == "0")


@pytest.mark.parametrize(
    ("actions", "paid", "success"),
    [
        (("42", "42"), [1, 1], True),
        (("41", "42"), [0, 1], True),
        (("42", "41"), [1, 0], False),
        (("x", "41"), [0, 0], False),
    ],
)
def test_with_always_both_attempts_are_rewarded_and_the_last_decides(actions, paid, success):
    t = play_actions(make_arithmetic(always=True), *actions)
    assert observation_texts(t) == ["Check it and answer again.\n", "Done.\n"]
    assert rewards(t) == paid and t.success is success and t.turns[-1].terminated
    assert info_values(t, "full_score") == [2.0, 2.0]


def test_attempts_and_feedback_are_options():
    t = play_actions(make_arithmetic(attempts=2, feedback="no"), "1", "2")
    assert observation_texts(t) == ["no\n", "no\n"] and t.turns[-1].terminated
    assert len(play_actions(make_arithmetic(always=True, attempts=3), "1", "42", "42").turns) == 3


@pytest.mark.parametrize(
    "option",
    [{"largest": 0}, {"operators": ""}, {"operators": "+/"}, {"attempts": 0}, {"attempts": 101}],
)
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make_arithmetic(**option)


def test_solutions_lie_in_the_range_of_the_random_policy():
    assert make_arithmetic(operators="+").answer_range == (0, 40)
    assert make_arithmetic(operators="-+").answer_range == (-20, 40)
    assert make_arithmetic(operators="*", largest=9).answer_range == (0, 81)


def test_the_mixture_is_off_by_one_or_ten():
    env = make_arithmetic(largest=99)
    slips = set()
    for seed in range(200):
        t = play_scripted_episode(env, "mixture", seed)
        slips |= {int(turn.info["answer"]) - env.solution for turn in t.turns}
    assert slips == {0, 1, -1, 10, -10}


def test_the_repeater_repeats_its_first_answer():
    env, lengths = make_arithmetic(), set()
    for seed in range(50):
        t = play_scripted_episode(env, "repeater", seed)
        assert len(set(info_values(t, "answer"))) == 1
        lengths.add(len(t.turns))
    assert lengths == {1, 5}


def test_ufo_rewards_late_success_and_repeated_answers_less():
    """2^-2 for the third attempt, all distinct; -.5 (1 - 1/5) for five times the same."""
    reward = RewardChain([AttemptDecay(), RepeatedAnswerPenalty()])
    late, stubborn = (
        play_actions(make_arithmetic(), "41", "43", "42"),
        play_actions(make_arithmetic(), *["41"] * 5),
    )
    assert [
        t.total_reward for t in reward(group_of(late, stubborn), 0).trajectories
    ] == pytest.approx([0.25, -0.4])


def test_score_rewards_the_correction():
    """The second attempt's reward with alpha 10: wrong to right 11, right to right 1, wrong to
    wrong 0, right to wrong -10.
    """
    pairs = [("41", "42"), ("42", "42"), ("41", "41"), ("42", "41")]
    group = group_of(*(play_actions(make_arithmetic(always=True), *pair) for pair in pairs))
    assert [rewards(t)[1] for t in ProgressBonus(10.0)(group, 0).trajectories] == [
        11.0,
        1.0,
        0.0,
        -10.0,
    ]
