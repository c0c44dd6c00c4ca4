"""What every game must do beside what every environment must: seats, turns, rewards that accrue, opponents that stall nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.environment import make
from agentrl_jax.envs.games.hanabi import MiniHanabi
from agentrl_jax.envs.games.tictactoe import TicTacToe, moved, winner, worth
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.games import Game, Played, random_move
from agentrl_jax.messages import texts

GAMES = {"Kuhn": True, "TicTacToe": True, "MiniHanabi": False}  # whether what one wins the other loses
HOSTILE = ["", "x" * 100_000, "p\nb", "🟩", "\x00", "1 2", "pass"]


def game(name: str, **options: Any) -> Game:
    env = make(f"agentrl/{name}-v0", options)
    assert isinstance(env, Game)
    return env


def match(env: Game, says: Any, seed: int) -> dict[int, list[tuple]]:
    """All seats from outside; `says(seat)` is a seat's text. Of each seat what it was told, in order, as (texts, reward, over, info)."""
    messages, info = env.reset(seed=seed, options={"seats": list(range(env.seats))})
    told: dict[int, list[tuple]] = {info["seat"]: [(texts(messages), 0.0, False, info)]}
    while not env._done:
        seat = info["seat"]
        over = told[seat][-1][2]
        messages, reward, terminated, truncated, info = env.step("" if over else says(seat))
        told.setdefault(info["seat"], []).append((texts(messages), reward, terminated or truncated, info))
    return told


def by_player(env: Game, players: dict[int, str], seed: int) -> Any:
    rng = np.random.default_rng([seed, 1])
    return lambda seat: env.players[players[seat]](env, rng)


def won(told: list[tuple]) -> float:
    return sum(reward for _, reward, _, _ in told)


@pytest.mark.parametrize("name", GAMES)
class TestEveryGame:
    def test_all_seats_are_told_the_end_once_and_what_they_earned_adds_up(self, name):
        env = game(name)
        for seed in range(30):
            told = match(env, by_player(env, {0: "random", 1: "expert"}, seed), seed)
            assert told.keys() == {0, 1}
            for seat, heard in told.items():
                assert [over for _, _, over, _ in heard] == [False] * (len(heard) - 1) + [True]
                assert won(heard) == pytest.approx(env.earned[seat])
                assert all(len(lines) == 1 for lines, _, _, _ in heard)
            if GAMES[name]:
                assert won(told[0]) + won(told[1]) == 0
            else:
                assert isinstance(env, MiniHanabi)
                assert won(told[0]) == won(told[1]) == sum(env.height.values())

    def test_a_seat_from_outside_hears_the_same_whoever_plays_the_other(self, name):
        """The scripted player within the game draws what it would draw outside: from the game's own stream."""
        env, other = game(name, opponent="random"), game(name)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            messages, _ = env.reset(seed=seed, options={"seats": [1]})
            alone, over = [(texts(messages), 0.0)], False
            while not over:
                messages, reward, over, _, _ = env.step(random_move(env, rng))
                alone.append((texts(messages), reward))
            rng = np.random.default_rng(seed)
            told = match(other, lambda seat, own=rng: random_move(other, own if seat else other.np_random), seed)
            assert [(lines, reward) for lines, reward, _, _ in told[1]] == alone

    def test_better_players_win_more(self, name):
        env = game(name)
        means = {}
        for who in ("random", "expert"):
            rows = []
            for seed in range(150):
                seat = seed % 2
                told = match(env, by_player(env, {seat: who, 1 - seat: "expert"}, seed), seed)
                rows.append(won(told[seat]))
            means[who] = np.mean(rows)
        least = {"Kuhn": -0.1, "TicTacToe": 0.5, "MiniHanabi": 1.0}  # Kuhn's dealing hides most of it: see test_kuhn
        assert means["expert"] - means["random"] > least[name]

    @settings(deadline=None, max_examples=15)
    @given(data=st.data())
    def test_hostile_text_is_answered_charged_to_its_seat_and_stalls_nothing(self, name, data):
        env = game(name, penalty=0.25)
        hostile, legal, refused = data.draw(st.sampled_from([0, 1])), random_move, 0
        rng = np.random.default_rng(0)

        def says(seat: int) -> str:
            nonlocal refused
            if seat != hostile:
                return legal(env, rng)
            refused += 1
            return data.draw(st.sampled_from(HOSTILE))

        told = match(env, says, seed=data.draw(st.integers(0, 5)))
        parts = [info["rewards"] for _, _, _, info in told[hostile][1:]]
        assert [part["illegal"] for part in parts] == [-0.25] * refused and refused > 0
        assert all(lines[0].startswith("?") for lines, _, _, _ in told[hostile][1:])
        assert not any("illegal" in info["rewards"] for _, _, _, info in told[1 - hostile][1:])
        assert all(not any(line.startswith("?") for line in lines) for lines, _, _, _ in told[1 - hostile])
        assert told[hostile][-1][3]["success"] is False
        assert all(not info["legal"] for _, _, _, info in told[hostile][1:])

    def test_the_first_legal_move_stands_in_for_what_is_none(self, name):
        one, other = game(name), game(name)
        rng = [np.random.default_rng(3), np.random.default_rng(3)]
        a = match(one, lambda seat: random_move(one, rng[0]) if seat else "no move", 4)
        b = match(other, lambda seat: random_move(other, rng[1]) if seat else other._legal()[0], 4)
        assert a[1] == b[1] and one.earned == other.earned

    def test_who_sits_where_changes_no_deal(self, name):
        env = game(name)
        deals = []
        for options in ({"seats": [0]}, {"seats": [0, 1]}, {"seats": [0], "opponent": "random"}):
            messages, info = env.reset(seed=7, options=options)
            deals.append((texts(messages), info))
        assert deals[0] == deals[1] == deals[2]

    @pytest.mark.parametrize("options", [{"seats": [2]}, {"seats": []}, {"seats": "0"}, {"seats": [True]}, {"opponent": "nobody"}])
    def test_seats_and_opponents_that_are_not_there_are_errors(self, name, options):
        with pytest.raises(UserError, match=r"seats of|no opponent"):
            game(name).reset(seed=0, options=options)

    @pytest.mark.parametrize("options", [{"seat": 2}, {"seat": True}, {"opponent": "nobody"}, {"penalty": -1.0}, {"penalty": True}])
    def test_constructor_options_out_of_range_are_errors(self, name, options):
        with pytest.raises(UserError):
            game(name, **options)


class Takes(Game):
    """Seats 0, 1, 2 say "a" in turn; every move earns its seat 1 and costs the next 10, three rounds; the last is cut."""

    seats, payoffs, players = 3, (-100.0, 100.0), {"expert": lambda env, rng: "a"}

    def _deal(self):
        self.moves, self.turn = 0, 0
        return "0", "1", "2"

    def _legal(self):
        return "a"

    def _played(self, move):
        self.moves += 1
        seat, after = self.turn, (self.turn + 1) % 3
        paid = [0.0] * 3
        paid[seat], paid[after] = 1.0, -10.0
        over = self.moves == 6
        return Played(["" if i == seat else f"{seat}a" for i in range(3)], None if over else after, {"gain": paid}, truncated=over)


def test_a_reward_accrues_to_a_seats_last_turn_until_it_acts_again():
    """Moves 0 1 2 0 1 2. What seats 1 and 2 had before they moved, -10, has no turn to accrue to and comes with their first."""
    told = match(Takes(), lambda seat: "a", seed=0)
    assert {seat: [reward for _, reward, _, _ in heard] for seat, heard in told.items()} == {
        0: [0.0, 1 - 10.0, 1 - 10.0], 1: [0.0, 1 - 10.0 - 10.0, 1.0], 2: [0.0, 1 - 10.0 - 10.0, 1.0],
    }  # fmt: skip
    assert [lines for lines, _, _, _ in told[0]] == [["0\n"], ["1a\n2a\n"], ["1a\n2a\n"]]
    assert [lines for lines, _, _, _ in told[2]] == [["2\n0a\n1a\n"], ["0a\n1a\n"], []]
    assert not any(info.get("success") for heard in told.values() for *_, info in heard[:-1])


def test_a_games_horizon_truncates_for_all():
    env = Takes()
    env.reset(seed=0, options={"seats": [0, 1, 2]})
    ends = []
    while not env._done:
        *_, terminated, truncated, info = env.step("a")
        ends.append((terminated, truncated, info["seat"]))
    assert ends[-3:] == [(False, True, 0), (False, True, 1), (False, True, 2)] and ends[-4][:2] == (False, False)


def test_a_game_that_is_over_before_a_seat_had_a_move_is_refused():
    class Short(Takes):
        def _played(self, move):
            return Played(("", "", ""), None, {})

    with pytest.raises(EnvironmentFailure, match="before seat 2 had a move"):
        Short().reset(seed=0, options={"seats": [2]})


def test_best_play_at_tic_tac_toe_is_a_draw_and_wins_where_it_can():
    assert worth("." * 9) == 0 and worth("xx.oo....") == 1 and worth("xxxoo....") == -1
    assert winner("xo.xo.x..") == 0 and winner("oo.xx.xx.") is None and moved("x........", 4) == "x...o...."
    env = game("TicTacToe")
    assert isinstance(env, TicTacToe)
    for seed in range(10):
        told = match(env, by_player(env, {0: "expert", 1: "expert"}, seed), seed)
        assert won(told[0]) == won(told[1]) == 0 and told[0][-1][0][0].endswith("drawn\n")


def test_hanabi_by_hand():
    env = game("MiniHanabi")
    assert isinstance(env, MiniHanabi)
    env.reset(seed=0, options={"seats": [0, 1]})
    env.hands, env.deck = [["a2", "b1"], ["a1", "a1"]], ["b2", "a1"]
    assert env._legal() == ["ha", "h1", "p1", "p2"]  # no card to throw away for a hint that is not missing
    seen = texts(env.step("h1")[0])[0]
    assert seen.endswith("a0b0 h3 l2 a2b1 ?1?1\n")
    messages, reward, *_, info = env.step("p2")  # seat 1 plays a1: both earn, seat 0 hears of it first
    assert reward == 1.0 and info["seat"] == 0 and texts(messages) == ["a1b0 h3 l2 a1a1 ????\n"]
    messages, reward, *_ = env.step("p2")  # b1
    assert reward == 2.0 and texts(messages) == ["a1b1 h3 l2 a2b2 ?1??\n"]
    messages, reward, *_ = env.step("p1")  # a second a1 costs a life; no card is left to draw
    assert reward == 1.0 and env.lives == 1 and texts(messages) == ["a1b1 h3 l1 a1 ????\n"]
    messages, reward, terminated, *_ = env.step("d1")  # the last card was drawn by this seat: both have moved since
    assert terminated and reward == 0.0 and texts(messages) == ["end 2\n"]
    assert texts(env.step("")[0]) == ["end 2\n"] and env._done
