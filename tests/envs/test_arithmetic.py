"""Sums and attempts: texts and rewards by hand, and what UFO's and SCoRe's rewards make of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import answers, by_hand, facts, fresh, group_of, played, rewards

from agentrl_jax.algorithms.rewards import AttemptDecay, InTurn, Progress, RepeatedAnswers
from agentrl_jax.environment import make
from agentrl_jax.envs.probes.arithmetic import Arithmetic
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

WRONG = "Incorrect. Please think again.\n"


def world(problem: tuple[int, str, int] = (17, "+", 25), **options) -> Arithmetic:
    env = fresh(Arithmetic, **options)
    env.problem = problem
    return env


def test_a_wrong_answer_earns_nothing_but_the_feedback_and_the_right_one_ends_it():
    t = by_hand(world(), "41", "forty", "42")
    assert answers(t) == [WRONG, WRONG, "Correct.\n"]
    assert rewards(t) == [0.0, 0.0, 1.0] and [turn.rewards for turn in t.turns][-1] == {"outcome": 1.0}
    assert facts(t, "formatted") == [True, False, True] and facts(t, "answer") == ["41", None, "42"]
    assert [turn.terminated for turn in t.turns] == [False, False, True] and t.success is True


def test_five_attempts_without_success_end_it():
    t = by_hand(world(), *["1"] * 5)
    assert answers(t) == [WRONG] * 5 and rewards(t) == [0.0] * 5
    assert t.turns[-1].terminated and not t.turns[-1].truncated and t.success is False


def test_the_question_shows_operands_and_operator():
    env = make("agentrl/Arithmetic-v0", {"largest": 9, "operators": "*"})
    seen = {texts(env.reset(seed=seed)[0])[0] for seed in range(600)}
    assert seen == {f"{a}*{b}=?\n" for a in range(10) for b in range(10)}


@pytest.mark.parametrize(("problem", "right"), [((3, "-", 20), "-17"), ((20, "*", 20), "400"), ((0, "+", 0), "0")])
def test_the_operators_mean_what_they_say(problem, right):
    assert by_hand(world(problem, operators="+-*"), right).success is True


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
    assert facts(by_hand(world((5, "+", 5)), text), "answer") == [answer]


@settings(deadline=None, max_examples=40)
@given(st.text() | st.integers().map(str))
def test_any_text_is_a_number_or_malformed(text):
    (turn,) = by_hand(world((0, "+", 0)), text).turns
    assert turn.info["formatted"] == (turn.info["answer"] is not None)
    if turn.info["formatted"]:
        assert int(turn.info["answer"]) == int(text)
    assert turn.reward == float(turn.info["answer"] == "0")


@pytest.mark.parametrize(
    ("actions", "paid", "success"),
    [(("42", "42"), [1, 1], True), (("41", "42"), [0, 1], True), (("42", "41"), [1, 0], False), (("x", "41"), [0, 0], False)],
)
def test_with_always_both_attempts_are_scored_and_the_last_decides(actions, paid, success):
    t = by_hand(world(always=True), *actions)
    assert answers(t) == ["Check it and answer again.\n", "Done.\n"]
    assert rewards(t) == paid and t.success is success and t.turns[-1].terminated
    assert facts(t, "full_score") == [2.0, 2.0]


def test_attempts_and_feedback_are_options():
    t = by_hand(world(attempts=2, feedback="no"), "1", "2")
    assert answers(t) == ["no\n", "no\n"] and t.turns[-1].terminated
    assert len(by_hand(world(always=True, attempts=3), "1", "42", "42").turns) == 3


@pytest.mark.parametrize("option", [{"largest": 0}, {"operators": ""}, {"operators": "+/"}, {"attempts": 0}, {"attempts": 101}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        world(**option)


def test_answers_lie_in_the_range_that_the_random_player_draws_from():
    assert world(operators="+").answer_range == (0, 40)
    assert world(operators="-+").answer_range == (-20, 40)
    assert world(operators="*", largest=9).answer_range == (0, 81)


def test_the_mixture_slips_by_one_or_ten():
    env = world(largest=99)
    slips = set()
    for seed in range(200):
        t = played(env, "mixture", seed)
        slips |= {int(turn.info["answer"]) - env.solution for turn in t.turns}
    assert slips == {0, 1, -1, 10, -10}


def test_the_repeater_repeats_its_first_answer():
    env, lengths = world(), set()
    for seed in range(50):
        t = played(env, "repeater", seed)
        assert len(set(facts(t, "answer"))) == 1
        lengths.add(len(t.turns))
    assert lengths == {1, 5}


def test_ufo_pays_less_for_late_success_and_for_repeating_oneself():
    """2^-2 for the third attempt, all distinct; -.5 (1 - 1/5) for five times the same."""
    reward = InTurn([AttemptDecay(), RepeatedAnswers()])
    late, stubborn = by_hand(world(), "41", "43", "42"), by_hand(world(), *["41"] * 5)
    assert [t.total_reward for t in reward(group_of(late, stubborn), 0).trajectories] == pytest.approx([0.25, -0.4])


def test_score_pays_for_the_correction():
    """The second attempt's reward with alpha 10: wrong to right 11, right to right 1, wrong to wrong 0, right to wrong -10."""
    pairs = [("41", "42"), ("42", "42"), ("41", "41"), ("42", "41")]
    group = group_of(*(by_hand(world(always=True), *pair) for pair in pairs))
    assert [rewards(t)[1] for t in Progress(10.0)(group, 0).trajectories] == [11.0, 1.0, 0.0, -10.0]
