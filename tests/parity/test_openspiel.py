"""Kuhn poker and tic-tac-toe against OpenSpiel's, move by move, where it is installed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.games.kuhn import CARDS, INFORMATION_STATES, Kuhn, exploitability
from agentrl_jax.multi_agent import MultiAgentEnvironment

pyspiel = pytest.importorskip(
    "pyspiel", reason="OpenSpiel is not installed: pip install 'agentrl_jax[selfplay]' does it"
)


def deal_kuhn(env: MultiAgentEnvironment, state: Any) -> None:
    assert isinstance(env, Kuhn)
    for card in env.cards:
        state.apply_action(CARDS.index(card))


GAMES: dict[str, tuple[str, Callable[[MultiAgentEnvironment, Any], None], Callable[[int], str]]] = {
    "Kuhn": ("kuhn_poker", deal_kuhn, lambda action: "pb"[action]),
    "TicTacToe": ("tic_tac_toe", lambda env, state: None, lambda action: str(action + 1)),
}


@pytest.mark.parametrize("name", GAMES)
def test_both_allow_the_same_moves_and_give_the_same_rewards(name: str):
    env, (other, deal, text) = make(f"agentrl/{name}-v0"), GAMES[name]
    assert isinstance(env, MultiAgentEnvironment)
    for seed in range(60):
        env.reset(seed=seed, options={"seats": [0, 1]})
        state, rng = pyspiel.load_game(other).new_initial_state(), np.random.default_rng(seed)
        deal(env, state)
        while not state.is_terminal():
            legal = state.legal_actions()
            assert env.current_player == state.current_player() and list(
                env._legal_moves()
            ) == list(map(text, legal))
            action = int(rng.choice(legal))
            _, _, terminated, _, info = env.step(text(action))
            state.apply_action(action)
            assert terminated == state.is_terminal()
        assert env.returns == state.returns() and info["seat"] == 0


def test_exploitability_equals_that_of_openspiel():
    from open_spiel.python import policy
    from open_spiel.python.algorithms import exploitability as theirs

    game = pyspiel.load_game("kuhn_poker")
    for seed in range(5):
        bet = dict(
            zip(
                INFORMATION_STATES,
                np.random.default_rng(seed).random(len(INFORMATION_STATES)).tolist(),
            )
        )
        table = policy.TabularPolicy(game)
        for (
            known,
            p,
            # OpenSpiel's are called "0", "0p", "0pb": the card's number and the moves
        ) in bet.items():
            table.policy_for_key(f"{CARDS.index(known[0])}{known[1:]}")[:] = [1 - p, p]
        assert exploitability(bet) == pytest.approx(theirs.exploitability(game, table))
