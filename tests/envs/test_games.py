"""What every multi-agent environment must satisfy: turns, rewards that accrue, illegal moves."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.environment import make
from agentrl_jax.envs.games.hanabi import MiniHanabi
from agentrl_jax.envs.games.tictactoe import TicTacToe, minimax_value, place_mark, winner
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import texts
from agentrl_jax.multi_agent import MoveResult, MultiAgentEnvironment, random_move

GAMES = {
    "Kuhn": True,
    "TicTacToe": True,
    "MiniHanabi": False,
}  # whether what one wins the other loses
HOSTILE = ["", "x" * 100_000, "p\nb", "🟩", "\x00", "1 2", "pass"]


def game(name: str, **options: Any) -> MultiAgentEnvironment:
    env = make(f"agentrl/{name}-v0", options)
    assert isinstance(env, MultiAgentEnvironment)
    return env


def match(env: MultiAgentEnvironment, act: Any, seed: int) -> dict[int, list[tuple]]:
    """Play a game with external players only; `act(seat)` is the text of that player.

    Returns each player's (texts, reward, over, info) in order.
    """
    messages, info = env.reset(seed=seed, options={"seats": list(range(env.num_players))})
    replies: dict[int, list[tuple]] = {info["seat"]: [(texts(messages), 0.0, False, info)]}
    while not env._is_over:
        seat = info["seat"]
        over = replies[seat][-1][2]
        messages, reward, terminated, truncated, info = env.step("" if over else act(seat))
        replies.setdefault(info["seat"], []).append(
            (texts(messages), reward, terminated or truncated, info)
        )
    return replies


def by_player(env: MultiAgentEnvironment, players: dict[int, str], seed: int) -> Any:
    rng = np.random.default_rng([seed, 1])
    return lambda seat: env.scripted_policies[players[seat]](env, rng)


def won(replies: list[tuple]) -> float:
    return sum(reward for _, reward, _, _ in replies)


@pytest.mark.parametrize("name", GAMES)
class TestEveryGame:
    def test_every_player_sees_the_end_once_and_its_rewards_sum_to_its_return(self, name):
        env = game(name)
        for seed in range(30):
            replies = match(env, by_player(env, {0: "random", 1: "expert"}, seed), seed)
            assert replies.keys() == {0, 1}
            for seat, player_replies in replies.items():
                assert [over for _, _, over, _ in player_replies] == [False] * (
                    len(player_replies) - 1
                ) + [True]
                assert won(player_replies) == pytest.approx(env.returns[seat])
                assert all(len(lines) == 1 for lines, _, _, _ in player_replies)
            if GAMES[name]:
                assert won(replies[0]) + won(replies[1]) == 0
            else:
                assert isinstance(env, MiniHanabi)
                assert won(replies[0]) == won(replies[1]) == sum(env.firework_heights.values())

    def test_an_external_player_observes_the_same_with_a_scripted_or_external_opponent(self, name):
        """An opponent inside the environment draws from the environment's generator."""
        env, second = game(name, opponent="random"), game(name)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            messages, _ = env.reset(seed=seed, options={"seats": [1]})
            alone, over = [(texts(messages), 0.0)], False
            while not over:
                messages, reward, over, _, _ = env.step(random_move(env, rng))
                alone.append((texts(messages), reward))
            rng = np.random.default_rng(seed)
            replies = match(
                second,
                lambda seat, external_rng=rng: random_move(
                    second, external_rng if seat else second.np_random
                ),
                seed,
            )
            assert [(lines, reward) for lines, reward, _, _ in replies[1]] == alone

    def test_better_policies_win_more(self, name):
        env = game(name)
        means = {}
        for who in ("random", "expert"):
            rows = []
            for seed in range(150):
                seat = seed % 2
                replies = match(env, by_player(env, {seat: who, 1 - seat: "expert"}, seed), seed)
                rows.append(won(replies[seat]))
            means[who] = np.mean(rows)
        least = {
            "Kuhn": -0.1,
            "TicTacToe": 0.5,
            "MiniHanabi": 1.0,
        }  # Kuhn's dealing hides most of it: see test_kuhn
        assert means["expert"] - means["random"] > least[name]

    @settings(deadline=None, max_examples=15)
    @given(data=st.data())
    def test_hostile_text_costs_its_player_alone_and_does_not_stall_the_game(self, name, data):
        env = game(name, penalty=0.25)
        hostile, legal, refused = data.draw(st.sampled_from([0, 1])), random_move, 0
        rng = np.random.default_rng(0)

        def act(seat: int) -> str:
            nonlocal refused
            if seat != hostile:
                return legal(env, rng)
            refused += 1
            return data.draw(st.sampled_from(HOSTILE))

        replies = match(env, act, seed=data.draw(st.integers(0, 5)))
        parts = [info["rewards"] for _, _, _, info in replies[hostile][1:]]
        assert [part["illegal"] for part in parts] == [-0.25] * refused and refused > 0
        assert all(lines[0].startswith("?") for lines, _, _, _ in replies[hostile][1:])
        assert not any("illegal" in info["rewards"] for _, _, _, info in replies[1 - hostile][1:])
        assert all(
            not any(line.startswith("?") for line in lines)
            for lines, _, _, _ in replies[1 - hostile]
        )
        assert replies[hostile][-1][3]["success"] is False
        assert all(not info["legal"] for _, _, _, info in replies[hostile][1:])

    def test_the_first_legal_move_replaces_an_illegal_text(self, name):
        first, second = game(name), game(name)
        rng = [np.random.default_rng(3), np.random.default_rng(3)]
        a = match(first, lambda seat: random_move(first, rng[0]) if seat else "no move", 4)
        b = match(
            second,
            lambda seat: random_move(second, rng[1]) if seat else second._legal_moves()[0],
            4,
        )
        assert a[1] == b[1] and first.returns == second.returns

    def test_the_choice_of_external_players_does_not_change_the_deal(self, name):
        env = game(name)
        deals = []
        for options in ({"seats": [0]}, {"seats": [0, 1]}, {"seats": [0], "opponent": "random"}):
            messages, info = env.reset(seed=7, options=options)
            deals.append((texts(messages), info))
        assert deals[0] == deals[1] == deals[2]

    @pytest.mark.parametrize(
        "options",
        [{"seats": [2]}, {"seats": []}, {"seats": "0"}, {"seats": [True]}, {"opponent": "nobody"}],
    )
    def test_unknown_seats_and_opponents_are_errors(self, name, options):
        with pytest.raises(UserError, match=r"seats of|no opponent"):
            game(name).reset(seed=0, options=options)

    @pytest.mark.parametrize(
        "options",
        [{"seat": 2}, {"seat": True}, {"opponent": "nobody"}, {"penalty": -1.0}, {"penalty": True}],
    )
    def test_constructor_options_out_of_range_are_errors(self, name, options):
        with pytest.raises(UserError):
            game(name, **options)


class TakingTurns(MultiAgentEnvironment):
    """Players 0, 1, 2 write "a" in turn; a move earns 1 and costs the next player 10; six moves."""

    num_players, payoff_bounds = 3, (-100.0, 100.0)
    scripted_policies = MappingProxyType({"expert": lambda env, rng: "a"})

    def _start_game(self):
        self.moves, self.current_player = 0, 0
        return "0", "1", "2"

    def _legal_moves(self):
        return "a"

    def _apply_move(self, move):
        self.moves += 1
        seat, after = self.current_player, (self.current_player + 1) % 3
        paid = [0.0] * 3
        paid[seat], paid[after] = 1.0, -10.0
        over = self.moves == 6
        return MoveResult(
            ["" if i == seat else f"{seat}a" for i in range(3)],
            None if over else after,
            {"gain": paid},
            truncated=over,
        )


def test_a_reward_accrues_to_the_players_last_turn_until_it_acts_again():
    """Moves 0 1 2 0 1 2.

    What players 1 and 2 received before their first move, -10, comes with their first reward.
    """
    replies = match(TakingTurns(), lambda seat: "a", seed=0)
    assert {
        seat: [reward for _, reward, _, _ in player_replies]
        for seat, player_replies in replies.items()
    } == {
        0: [0.0, 1 - 10.0, 1 - 10.0],
        1: [0.0, 1 - 10.0 - 10.0, 1.0],
        2: [0.0, 1 - 10.0 - 10.0, 1.0],
    }
    assert [lines for lines, _, _, _ in replies[0]] == [["0\n"], ["1a\n2a\n"], ["1a\n2a\n"]]
    assert [lines for lines, _, _, _ in replies[2]] == [["2\n0a\n1a\n"], ["0a\n1a\n"], []]
    assert not any(
        info.get("success")
        for player_replies in replies.values()
        for *_, info in player_replies[:-1]
    )


def test_the_horizon_truncates_for_all_players():
    env = TakingTurns()
    env.reset(seed=0, options={"seats": [0, 1, 2]})
    ends = []
    while not env._is_over:
        *_, terminated, truncated, info = env.step("a")
        ends.append((terminated, truncated, info["seat"]))
    assert ends[-3:] == [(False, True, 0), (False, True, 1), (False, True, 2)] and ends[-4][:2] == (
        False,
        False,
    )


def test_a_game_that_ends_before_a_player_moved_is_a_failure():
    class Short(TakingTurns):
        def _apply_move(self, move):
            return MoveResult(("", "", ""), None, {})

    with pytest.raises(EnvironmentFailure, match="before seat 2 had a move"):
        Short().reset(seed=0, options={"seats": [2]})


def test_optimal_play_at_tic_tac_toe_is_a_draw():
    assert (
        minimax_value("." * 9) == 0
        and minimax_value("xx.oo....") == 1
        and minimax_value("xxxoo....") == -1
    )
    assert (
        winner("xo.xo.x..") == 0
        and winner("oo.xx.xx.") is None
        and place_mark("x........", 4) == "x...o...."
    )
    env = game("TicTacToe")
    assert isinstance(env, TicTacToe)
    for seed in range(10):
        replies = match(env, by_player(env, {0: "expert", 1: "expert"}, seed), seed)
        assert won(replies[0]) == won(replies[1]) == 0 and replies[0][-1][0][0].endswith("drawn\n")


def test_a_hanabi_game_by_hand():
    env = game("MiniHanabi")
    assert isinstance(env, MiniHanabi)
    env.reset(seed=0, options={"seats": [0, 1]})
    env.hands, env.deck = [["a2", "b1"], ["a1", "a1"]], ["b2", "a1"]
    assert env._legal_moves() == [
        "ha",
        "h1",
        "p1",
        "p2",
    ]  # no card to discard for a hint that is not missing
    observation = texts(env.step("h1")[0])[0]
    assert observation.endswith("a0b0 h3 l2 a2b1 ?1?1\n")
    messages, reward, *_, info = env.step(
        "p2"
    )  # player 1 plays a1: both get the reward, player 0 observes it first
    assert reward == 1.0 and info["seat"] == 0 and texts(messages) == ["a1b0 h3 l2 a1a1 ????\n"]
    messages, reward, *_ = env.step("p2")  # b1
    assert reward == 2.0 and texts(messages) == ["a1b1 h3 l2 a2b2 ?1??\n"]
    messages, reward, *_ = env.step("p1")  # a second a1 costs a life; no card is left to draw
    assert reward == 1.0 and env.lives == 1 and texts(messages) == ["a1b1 h3 l1 a1 ????\n"]
    messages, reward, terminated, *_ = env.step(
        "d1"
    )  # this player drew the last card: both have moved since
    assert terminated and reward == 0.0 and texts(messages) == ["end 2\n"]
    assert texts(env.step("")[0]) == ["end 2\n"] and env._is_over
