"""OpenSpiel's games as texts against the package's own loop, and its exact exploitability."""

import pickle
from typing import Any

import numpy as np
import pytest

from agentrl_jax.context import FullHistory, LastMessages
from agentrl_jax.environment import make
from agentrl_jax.envs.adapters import open_spiel_solvers
from agentrl_jax.envs.adapters.open_spiel import OpenSpiel
from agentrl_jax.envs.adapters.open_spiel_solvers import decisions, equilibrium, exploitability
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message

pyspiel = pytest.importorskip(
    "pyspiel", reason="OpenSpiel is not installed: pip install 'agentrl_jax[open-spiel]' does it"
)

# Each with the string of the package that a player reads.
GAMES = {
    "kuhn_poker": "information_state_string",
    "kuhn_poker(players=3)": "information_state_string",
    "leduc_poker": "information_state_string",
    "liars_dice(dice_sides=3)": "information_state_string",
    "tic_tac_toe": "observation_string",
    "connect_four": "observation_string",
    "backgammon": "observation_string",
    "goofspiel(num_cards=4)": "information_state_string",  # simultaneous
    "negotiation": "observation_string",  # with a generator of its own
    "hanabi(players=2,colors=2,ranks=2,hand_size=2)": "observation_string",  # early rewards
    "2048": "observation_string",  # one player
}


def game(name: str, **options: Any) -> OpenSpiel:
    env = make("agentrl/OpenSpiel-v0", {"game": name, **options})
    assert isinstance(env, OpenSpiel)
    return env


def text_of(messages: tuple[Message, ...]) -> str:
    return "".join(message.text for message in messages)


@pytest.mark.parametrize("name", GAMES)
def test_messages_and_rewards_are_those_of_the_packages_loop(name: str):
    """The package's loop makes the same actions, chance's included, in a state of its own."""
    env = game(name, horizon=60)
    for seed in range(100):
        rng = np.random.default_rng([seed, 1])
        messages, info = env.reset(seed=seed, options={"seats": list(range(env.num_players))})
        # Loaded again: what has drawn from its own generator would draw on.
        state = pyspiel.load_game(str(env.game)).new_initial_state()
        earned = [0.0] * env.num_players
        while not env._is_over:
            for action in env.state.full_history()[len(state.full_history()) :]:
                if state.is_chance_node():
                    assert dict(state.chance_outcomes())[action.action] > 0
                state.apply_action(action.action)
            move = ""
            if not env._end_reason:
                player, legal = state.current_player(), state.legal_actions()
                assert player == info["seat"] and not state.is_chance_node()
                texts = [state.action_to_string(player, action) for action in legal]
                assert list(env._legal_moves()) == [" ".join(text.split()) for text in texts]
                view_text = getattr(state, GAMES[name])(player).strip("\n")
                head, _, listed = text_of(messages).rpartition("Moves: ")
                assert head.strip("\n") == view_text
                assert listed.startswith(", ".join(env._legal_moves()[:64]))
                assert (", ".join(env._legal_moves()) == listed[:-1]) == (len(legal) <= 64)
                move = env._legal_moves()[int(rng.integers(len(legal)))]
            messages, reward, _, _, info = env.step(move)
            earned[info["seat"]] += reward
        assert earned == pytest.approx(env.state.returns())
        assert env.state.is_terminal() or env._end_reason == "truncated"


def test_long_lists_of_moves_are_cut():
    env = game("tic_tac_toe", max_listed=2, opponent="random", seat=0)
    assert text_of(env.reset(seed=0)[0]).endswith("...\nMoves: x(0,0), x(0,1) and 7 more\n")
    short = game("tic_tac_toe", max_listed=0, opponent="random", seat=0)
    assert text_of(short.reset(seed=0)[0]) == "...\n...\n...\n"


def test_chance_does_not_depend_on_who_draws_other_random_numbers():
    env = game("leduc_poker")
    cards = []
    for options in ({"seats": [0, 1]}, {"seats": [1]}, {"seats": [0], "opponent": "expert"}):
        env.reset(seed=5, options=options)
        cards.append(env.state.history()[:2])
    assert cards[0] == cards[1] == cards[2]


def test_a_game_with_its_own_generator_follows_the_seed():
    openings = [text_of(game("negotiation", seat=0).reset(seed=seed)[0]) for seed in (1, 1, 2)]
    assert openings[0] == openings[1] != openings[2]
    fixed = [game("negotiation(rng_seed=7)", seat=0).reset(seed=s)[0] for s in (1, 2)]
    assert fixed[0] == fixed[1]  # the name sets it


@pytest.mark.parametrize("name", GAMES)
def test_a_game_pickles_and_forks_in_its_middle(name: str):
    env, rng = game(name), np.random.default_rng(0)
    env.reset(seed=3, options={"seats": list(range(env.num_players))})
    for _ in range(2):
        env.step(env._legal_moves()[int(rng.integers(len(env._legal_moves())))])
    twins = [pickle.loads(pickle.dumps(env)), env.fork()]
    for _ in range(3):
        moves = env._legal_moves() or [""]
        move = "" if env._is_over else moves[int(rng.integers(len(moves)))]
        if env._is_over:
            break
        answer = env.step(move)
        assert [twin.step(move) for twin in twins] == [answer, answer]


def test_a_game_that_is_over_before_the_players_move_is_drawn_again():
    env, first_moves = game("pig(winscore=2)", seat=1), set()
    for seed in range(20):
        env.reset(seed=seed)
        assert env.state.current_player() == 1 and not env.state.is_terminal()
        first_moves.add(tuple(env.state.history()))
    assert len(first_moves) > 1


def test_every_player_of_three_is_told_the_end():
    env = game("kuhn_poker(players=3)")
    for seed in range(20):
        env.reset(seed=seed, options={"seats": [0, 1, 2]})
        ends = []
        while not env._is_over:
            messages, _, terminated, _, info = env.step("Bet")
            if terminated:
                ends.append((info["seat"], text_of(messages)))
        returns = env.state.returns()
        assert ends == [(i, f"The game is over: {returns[i]:+g}\n") for i in range(3)]


def test_the_context_is_one_message_where_it_holds_all():
    assert game("kuhn_poker").context == LastMessages(1)
    assert game("tic_tac_toe").context == LastMessages(1)
    assert game("leduc_poker", view="observation").context == FullHistory()


def test_the_expert_wins_of_the_random_player():
    for name, least in (("tic_tac_toe", 0.5), ("leduc_poker", 0.3), ("connect_four", 0.5)):
        env, returns = game(name, opponent="random"), []
        for seed in range(40):
            rng, is_over = np.random.default_rng([seed, 2]), False
            env.reset(seed=seed)
            while not is_over:
                _, _, is_over, _, info = env.step(env.scripted_policies["expert"](env, rng))
            returns.append(env.returns[info["seat"]])
        assert np.mean(returns) > least, (name, np.mean(returns))


def test_exploitability_is_exact():
    """Of uniform play: 11/24 in Kuhn poker by hand; in Leduc what OpenSpiel's Python computes."""
    from open_spiel.python import policy  # type: ignore[import-not-found]
    from open_spiel.python.algorithms import exploitability as theirs  # type: ignore[import-not-found]

    def uniform(name: str) -> dict[str, dict[str, float]]:
        known = decisions(name, "information_state", 0)
        assert known is not None
        return {x: dict.fromkeys(d.moves, 1 / len(d.moves)) for x, d in known.items()}

    assert exploitability("kuhn_poker", uniform("kuhn_poker")) == pytest.approx(11 / 24)
    leduc = pyspiel.load_game("leduc_poker")
    expected = theirs.exploitability(leduc, policy.UniformRandomPolicy(leduc))
    assert exploitability("leduc_poker", uniform("leduc_poker")) == pytest.approx(expected)


def test_the_equilibrium_is_hardly_exploitable():
    for name, most in (("kuhn_poker", 0.01), ("leduc_poker", 0.05)):
        known, table = decisions(name, "information_state", 0), equilibrium(name)
        assert known is not None and table is not None and known.keys() == table.keys()
        policy = {
            x: {move: table[x].get(a, 0.0) for move, a in d.moves.items()} for x, d in known.items()
        }
        assert 0 <= exploitability(name, policy) < most


@pytest.mark.parametrize("name", ["chess", "kuhn_poker(players=3)", "tiny_hanabi"])
def test_exploitability_is_refused_where_it_is_not_defined(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(open_spiel_solvers, "MAX_HISTORIES", 3000)
    with pytest.raises(UserError, match="small zero-sum game of two players"):
        exploitability(name, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "poker_of_mars"}, "cannot be played: Unknown game"),
        ({"game": "kuhn_poker(hands=3)"}, "cannot be played"),
        ({"game": "mfg_garnet"}, "mean-field"),
        ({"game": "crossword"}, "cannot be played"),
        ({"game": "negotiation", "view": "information_state"}, "has no text of the view"),
        ({"view": "picture"}, "view must be one of"),
        ({"max_listed": -1}, "max_listed"),
        ({"horizon": -1}, "horizon"),
        ({"seat": 2}, "the seats of OpenSpiel are 0 to 1"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make("agentrl/OpenSpiel-v0", options)
