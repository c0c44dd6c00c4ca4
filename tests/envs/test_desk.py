"""`Desk`: reward components by hand, and the effect of a gate on farming them."""

from math import inf

import numpy as np
import pytest
from support.env_episodes import (
    group_of,
    info_values,
    make_env,
    observation_texts,
    play_actions,
    play_scripted_episode,
    rewards,
)

from agentrl_jax.algorithms.experience.rewards import RewardGate
from agentrl_jax.environment import make
from agentrl_jax.envs.diagnostic.desk import Desk
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def make_desk(
    pages: tuple[int, ...] = (4, 9, 0, 8), question_pages: tuple[int, int] = (1, 4), **options
) -> Desk:
    env = make_env(Desk, pages=len(pages), **options)
    env.pages, env.question_pages = pages, question_pages
    return env


def test_the_shortest_solution_turn_by_turn():
    t = play_actions(make_desk(), "read 1", "read 4", "write 12", "submit")
    assert observation_texts(t) == ["4\n", "8\n", "ok\n", "Done.\n"]
    busy, handed_in = (
        {"outcome": 0.0, "format": 0.1, "tool": 0.1},
        {"outcome": 1.0, "format": 0.1, "tool": 0.0},
    )
    assert [turn.rewards for turn in t.turns] == [busy, busy, busy, handed_in]
    assert rewards(t) == [0.2, 0.2, 0.2, 1.1] and t.total_reward == pytest.approx(1.7)
    assert info_values(t, "called_tools") == [["read"], ["read"], ["write"], []] and info_values(
        t, "stopped"
    ) == [
        False,
        False,
        False,
        True,
    ]
    assert (
        info_values(t, "answer") == [None, None, None, "12"]
        and t.success is True
        and t.turns[-1].terminated
    )


@pytest.mark.parametrize(
    "actions", [["submit"], ["write 11", "submit"], ["write 12", "write 13", "submit"]]
)
def test_the_last_written_number_is_submitted(actions):
    t = play_actions(make_desk(), *actions)
    assert t.success is False and t.turns[-1].rewards == {
        "outcome": 0.0,
        "format": 0.1,
        "tool": 0.0,
    }


def test_a_guess_counts_as_written():
    assert play_actions(make_desk(), "write 1", "write 012", " submit\n").success is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "read",
        "read 5",
        "read 0",
        "read 1 2",
        "write x",
        "write -1",
        "submit 12",
        "Submit",
        "write " + "1" * 10,
    ],
)
def test_malformed_actions_are_answered_and_earn_nothing(text):
    t = play_actions(make_desk(), text)
    assert observation_texts(t) == ["?\n"] and t.turns[0].rewards == {
        "outcome": 0.0,
        "format": 0.0,
        "tool": 0.0,
    }
    assert info_values(t, "legal") == info_values(t, "formatted") == [False] and info_values(
        t, "called_tools"
    ) == [[]]


def test_without_a_submission_the_horizon_truncates_and_the_outcome_is_0():
    t = play_actions(make_desk(), *["write 12"] * 12)
    assert (
        t.turns[-1].truncated
        and t.success is False
        and sum(turn.rewards["outcome"] for turn in t.turns) == 0
    )


def test_the_question_names_two_different_pages():
    env = make("agentrl/Desk-v0", {"pages": 3})
    openings = {texts(env.reset(seed=seed)[0])[0] for seed in range(200)}
    assert openings == {f"p{a}+p{b}=?\n" for a in (1, 2, 3) for b in (1, 2, 3) if a != b}


def test_farming_returns_more_than_solving_without_a_gate():
    farmed, solved = (
        play_scripted_episode(make_desk(), "farmer", 1),
        play_scripted_episode(make_desk(), "expert", 1),
    )
    group = group_of(farmed, solved)
    for thresholds, expected in ((-inf, -inf), [2.4, 1.7]), ((0.0, -inf), [0.0, 1.7]):
        gated = RewardGate(("outcome", "format", "tool"), thresholds)(group, 0)
        assert [t.total_reward for t in gated.trajectories] == pytest.approx(expected)


def test_full_score_is_the_largest_return():
    """Eleven tool turns, the last one writes the sum; then submit: 12 x .1 + 11 x .1 + 1."""
    t = play_actions(make_desk(), *["read 1"] * 10, "write 12", "submit")
    assert t.total_reward == pytest.approx(3.3) and info_values(t, "full_score") == pytest.approx(
        [3.3] * 12
    )


def test_the_step_rewards_and_the_horizon_are_options():
    env = make_desk(horizon=5, format_reward=0.0, tool_reward=0.5)
    assert env.reward_bounds == (0.0, 1.5)
    t = play_actions(env, *["read 1"] * 5)
    assert rewards(t) == [0.5] * 5 and t.turns[-1].truncated


@pytest.mark.parametrize("option", [{"horizon": 3}, {"format_reward": -0.1}, {"tool_reward": 1.5}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        make_desk(**option)
    with pytest.raises(UserError, match="pages"):
        make_desk((1,) * 10)


def test_the_expert_finishes_a_partial_solution():
    env = make_desk()
    play_actions(env, "read 4", "write 3")
    assert env.scripted_policies["expert"](env, np.random.default_rng(0)) == "read 1"
    play_actions(env, "read 1")
    assert env.scripted_policies["expert"](env, np.random.default_rng(0)) == "write 12"
