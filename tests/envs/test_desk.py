"""The desk: parts of the reward by hand, and what a gate makes of farming them."""

from math import inf

import numpy as np
import pytest
from worlds import answers, by_hand, facts, fresh, group_of, played, rewards

from agentrl_jax.algorithms.rewards import Gate
from agentrl_jax.environment import make
from agentrl_jax.envs.probes.desk import Desk
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def world(pages: tuple[int, ...] = (4, 9, 0, 8), asked: tuple[int, int] = (1, 4), **options) -> Desk:
    env = fresh(Desk, pages=len(pages), **options)
    env.pages, env.asked = pages, asked
    return env


def test_the_shortest_solution_turn_by_turn():
    t = by_hand(world(), "read 1", "read 4", "write 12", "submit")
    assert answers(t) == ["4\n", "8\n", "ok\n", "Done.\n"]
    busy, handed_in = {"outcome": 0.0, "format": 0.1, "tool": 0.1}, {"outcome": 1.0, "format": 0.1, "tool": 0.0}
    assert [turn.rewards for turn in t.turns] == [busy, busy, busy, handed_in]
    assert rewards(t) == [0.2, 0.2, 0.2, 1.1] and t.total_reward == pytest.approx(1.7)
    assert facts(t, "tool_calls") == [1, 1, 1, 0] and facts(t, "stopped") == [False, False, False, True]
    assert facts(t, "answer") == [None, None, None, "12"] and t.success is True and t.turns[-1].terminated


@pytest.mark.parametrize("actions", [["submit"], ["write 11", "submit"], ["write 12", "write 13", "submit"]])
def test_what_is_submitted_is_what_was_written_last(actions):
    t = by_hand(world(), *actions)
    assert t.success is False and t.turns[-1].rewards == {"outcome": 0.0, "format": 0.1, "tool": 0.0}


def test_the_last_note_counts_even_if_it_was_a_guess():
    assert by_hand(world(), "write 1", "write 012", " submit\n").success is True


@pytest.mark.parametrize(
    "text", ["", "read", "read 5", "read 0", "read 1 2", "write x", "write -1", "submit 12", "Submit", "write " + "1" * 10]
)
def test_anything_else_is_answered_and_earns_nothing(text):
    t = by_hand(world(), text)
    assert answers(t) == ["?\n"] and t.turns[0].rewards == {"outcome": 0.0, "format": 0.0, "tool": 0.0}
    assert facts(t, "legal") == facts(t, "formatted") == [False] and facts(t, "tool_calls") == [0]


def test_without_a_submission_the_horizon_truncates_and_the_outcome_is_0():
    t = by_hand(world(), *["write 12"] * 12)
    assert t.turns[-1].truncated and t.success is False and sum(turn.rewards["outcome"] for turn in t.turns) == 0


def test_the_question_names_two_different_pages():
    env = make("agentrl/Desk-v0", {"pages": 3})
    seen = {texts(env.reset(seed=seed)[0])[0] for seed in range(200)}
    assert seen == {f"p{a}+p{b}=?\n" for a in (1, 2, 3) for b in (1, 2, 3) if a != b}


def test_farming_pays_more_than_solving_until_a_gate_closes():
    farmed, solved = played(world(), "farmer", 1), played(world(), "expert", 1)
    group = group_of(farmed, solved)
    for thresholds, expected in ((-inf, -inf), [2.4, 1.7]), ((0.0, -inf), [0.0, 1.7]):
        gated = Gate(("outcome", "format", "tool"), thresholds)(group, 0)
        assert [t.total_reward for t in gated.trajectories] == pytest.approx(expected)


def test_the_most_that_can_be_earned_is_said():
    """Eleven tool turns, the last of which writes the sum, then the submission: 12 x .1 + 11 x .1 + 1."""
    t = by_hand(world(), *["read 1"] * 10, "write 12", "submit")
    assert t.total_reward == pytest.approx(3.3) and facts(t, "full_score") == pytest.approx([3.3] * 12)


def test_the_step_rewards_and_the_horizon_are_options():
    env = world(horizon=5, format_reward=0.0, tool_reward=0.5)
    assert env.reward_bounds == (0.0, 1.5)
    t = by_hand(env, *["read 1"] * 5)
    assert rewards(t) == [0.5] * 5 and t.turns[-1].truncated


@pytest.mark.parametrize("option", [{"horizon": 3}, {"format_reward": -0.1}, {"tool_reward": 1.5}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        world(**option)
    with pytest.raises(UserError, match="pages"):
        world((1,) * 10)


def test_the_expert_finishes_what_others_began():
    env = world()
    by_hand(env, "read 4", "write 3")
    assert env.players["expert"](env, np.random.default_rng(0)) == "read 1"
    by_hand(env, "read 1")
    assert env.players["expert"](env, np.random.default_rng(0)) == "write 12"
