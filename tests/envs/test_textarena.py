"""TextArena's games against the package's own loop, and its global generators."""

import random
import threading
from typing import Any

import numpy as np
import pytest

from agentrl_jax.context import FullHistory, LastMessages
from agentrl_jax.environment import make
from agentrl_jax.envs.adapters.global_random import GlobalRandom
from agentrl_jax.envs.adapters.textarena_game import TextArena
from agentrl_jax.envs.adapters.textarena_games import NUM_PLAYERS
from agentrl_jax.errors import UserError

GAMES = {
    "TicTacToe-v0": 40,  # number of episodes
    "KuhnPoker-v0-raw": 20,
    "LiarsDice-v0": 10,
    "Minesweeper-v0": 10,
    "ThreePlayerIPD-v0": 5,
    "ColonelBlotto-v0": 5,
    "PigDice-v0": 5,
    "IndianPoker-v0": 5,
}


@pytest.fixture(scope="module")
def textarena() -> Any:
    return pytest.importorskip("textarena", reason="textarena is not installed: make test-extras")


def game(name: str, **options: Any) -> TextArena:
    env = make("agentrl/TextArena-v0", {"name": name, **options})
    assert isinstance(env, TextArena)
    return env


@pytest.mark.parametrize("name", GAMES)
def test_messages_and_rewards_are_those_of_the_packages_loop(name: str, textarena: Any):
    env = game(name)
    for seed in range(GAMES[name]):
        rng = np.random.default_rng([seed, 1])
        messages, info = env.reset(seed=seed, options={"seats": list(range(env.num_players))})
        episode: list[Any] = [(info["seat"], messages[0].text)]
        actions, earned = [], dict.fromkeys(range(env.num_players), 0.0)
        while not env._is_over:
            action = env.scripted_policies["random"](env, rng)
            actions.append(action)
            messages, reward, _, _, info = env.step(action)
            earned[info["seat"]] += reward
            if not env._end_reason:
                episode.append((info["seat"], messages[0].text))
        reference = textarena.make(name)
        seed_of_game = int(np.random.default_rng(seed).integers(2**31))
        random.seed(seed_of_game)
        np.random.seed(seed_of_game)  # noqa: NPY002
        reference.reset(num_players=env.num_players, seed=seed_of_game)
        is_over, turn = False, 0
        while not is_over:
            player, observation = reference.get_observation()
            if not isinstance(observation, str):
                roles = reference.state.role_mapping
                observation = "\n".join(f"[{roles[x]}] {text}" for x, text, _ in observation)
            assert episode[turn] == (player, observation.strip("\n") + "\n")
            assert isinstance(actions[turn], str)
            is_over, _ = reference.step(actions[turn])
            turn += 1
        assert turn == len(episode)
        moved = {player for player, _ in episode}
        rewards = {x: float(reward) for x, reward in reference.close()[0].items() if x in moved}
        assert {x: reward for x, reward in earned.items() if x in moved} == rewards


def test_every_listed_family_starts(textarena: Any):
    assert len(NUM_PLAYERS) == 72
    for family, players in NUM_PLAYERS.items():
        ids = [x for x in textarena.envs.registration.ENV_REGISTRY if x.startswith(f"{family}-v")]
        env = game(min(ids, key=len))
        assert env.num_players == players
        messages, _ = env.reset(seed=0)
        assert len(messages[0].text) > 20, family


def test_the_processs_own_generators_go_on_as_if_there_were_no_game(textarena: Any):
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    expected = [random.random(), np.random.random()]  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    env = game("Minesweeper-v0")
    env.reset(seed=0)
    env.step("[1 1]")
    assert [random.random(), np.random.random()] == expected  # noqa: NPY002


def test_two_games_of_a_process_do_not_change_each_other(textarena: Any):
    def play(env: TextArena, results: list[Any]) -> None:
        for seed in range(5):
            rng = np.random.default_rng(seed)
            results.append(env.reset(seed=seed))
            while not env._is_over:
                results.append(env.step(env.scripted_policies["random"](env, rng)))

    alone: list[Any] = []
    play(game("LiarsDice-v0"), alone)
    together: list[list[Any]] = [[], []]
    threads = [
        threading.Thread(target=play, args=(game("LiarsDice-v0"), results)) for results in together
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [alone, alone]


def test_a_state_of_the_generators_goes_on_where_it_was():
    state, draws = GlobalRandom(5), []
    for _ in range(3):
        with state.swapped_in():
            draws.append(random.random())
    reference = random.Random(5)
    assert draws == [reference.random() for _ in range(3)]


def test_contexts_and_options(textarena: Any):
    assert game("TicTacToe-v0").context == LastMessages(1)
    assert game("TicTacToe-v0-raw").context == FullHistory()
    with pytest.raises(UserError, match="no game of TextArena that runs here is 'Wordle-v0'"):
        game("Wordle-v0")
    with pytest.raises(UserError, match="has no game 'TicTacToe-v9'"):
        game("TicTacToe-v9").reset(seed=0)
