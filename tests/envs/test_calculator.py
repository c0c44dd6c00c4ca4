"""The calculator: texts and rewards by hand, void turns, and what a mask makes of them."""

import pytest
from worlds import answers, by_hand, facts, fresh, played, rewards

from agentrl_jax.algorithms.quality import void
from agentrl_jax.environment import make
from agentrl_jax.envs.probes.calculator import Calculator
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def world(numbers: tuple[int, ...] = (3, 14, 8), **options) -> Calculator:
    env = fresh(Calculator, terms=len(numbers), **options)
    env.numbers = numbers
    return env


def test_the_sum_is_found_call_by_call():
    env = world()
    assert env._question() == "3+14+8=?"
    t = by_hand(env, "calc 3+14", "calc 17+8", "answer 25")
    assert answers(t) == ["17\n", "25\n", "Done.\n"] and rewards(t) == [0.0, 0.0, 1.0]
    assert facts(t, "tool_calls") == [1, 1, 0] and facts(t, "stopped") == [False, False, True]
    assert facts(t, "void") == [False] * 3 and facts(t, "answer") == [None, None, "25"]
    assert t.success is True and t.turns[-1].terminated


def test_a_wrong_answer_ends_it_with_nothing():
    t = by_hand(world(), "answer 24")
    assert rewards(t) == [0.0] and t.turns[-1].terminated and t.success is False


def test_leading_zeros_mean_nothing():
    t = by_hand(world(), "calc 03+014", " answer 025\n")
    assert answers(t) == ["17\n", "Done.\n"] and facts(t, "answer") == [None, "25"] and t.success is True


@pytest.mark.parametrize(
    "text",
    ["", "25", "hm", "calc", "calc 3", "calc 3+", "calc 3-1", "calc 3 + 4", "calc 1+2+3", "answer", "answer x", "answer -1", "calc ３+4"],
)
def test_anything_else_is_a_void_turn(text):
    t = by_hand(world(), text)
    assert answers(t) == ["?\n"] and facts(t, "void") == [True] and facts(t, "formatted") == [False] and not t.turns[-1].terminated
    ended = by_hand(world(void_ends=True), text)
    assert ended.turns[-1].terminated and ended.success is False and rewards(ended) == [0.0]


def test_a_result_is_cut():
    assert answers(by_hand(world(longest=3), "calc 99999+1", "calc 999+1", "calc 99+1")) == ["100\n", "100\n", "100\n"]
    assert answers(by_hand(world(), "calc 999999999+1")) == ["10000000\n"]


def test_the_horizon_truncates():
    t = by_hand(world(), *["hm"] * 8)
    assert t.turns[-1].truncated and t.success is False


def test_numbers_are_drawn_up_to_the_largest():
    env = make("agentrl/Calculator-v0", {"terms": 2, "largest": 3})
    seen = {texts(env.reset(seed=seed)[0])[0] for seed in range(200)}
    assert seen == {f"{a}+{b}=?\n" for a in range(4) for b in range(4)}


def test_the_expert_needs_a_call_for_every_number_but_the_first():
    assert [len(played(world((1,) * n), "expert", 0).turns) for n in (2, 3, 7)] == [2, 3, 7]


def test_the_mixture_writes_void_turns_in_a_part_of_its_episodes_and_the_others_none():
    """A turn is void with probability .2: three turns hold none with probability .512."""
    env = world()
    share = sum(void(played(env, "mixture", seed)) for seed in range(300)) / 300
    assert 0.3 < share < 0.7
    assert not any(void(played(env, player, seed)) for seed in range(50) for player in ("expert", "random"))


@pytest.mark.parametrize("option", [{"largest": 0}, {"longest": 0}, {"horizon": 0}])
def test_options_out_of_range_are_errors_that_name_them(option):
    with pytest.raises(UserError, match=next(iter(option))):
        world(**option)
    with pytest.raises(UserError, match="terms"):
        make("agentrl/Calculator-v0", {"terms": 1})
