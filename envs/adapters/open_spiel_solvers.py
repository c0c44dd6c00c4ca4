"""Scripted play of OpenSpiel's games (CFR+, Monte Carlo tree search), and exact exploitability."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.envs.adapters.open_spiel_games import (
    decision_text,
    has_perfect_information,
    import_pyspiel,
    load_game,
    moves_of,
)
from agentrl_jax.errors import UserError

MAX_HISTORIES = 20_000  # of a game that is solved: Leduc poker has 9,457
CFR_ITERATIONS = 100
SIMULATIONS = 200  # of the search before each move


@dataclass(frozen=True)
class Decision:
    """A decision of a player in an information state."""

    player: int
    text: str  # what it reads, without the last line feed
    moves: Mapping[str, int]  # OpenSpiel's actions by text, in its order


@functools.lru_cache(maxsize=16)
def decisions(game: str, view: str, max_listed: int) -> Mapping[str, Decision] | None:
    """All decisions by OpenSpiel's string of the information state; None: the game has no such
    strings, or more than `MAX_HISTORIES` histories.

    Args:
        game: OpenSpiel's name of it.
        view: of the texts, as `open_spiel_games.view_of` returns it.
        max_listed: the most moves that a text lists.
    """
    loaded = load_game(game)
    if not loaded.get_type().provides_information_state_string:
        return None
    by_state: dict[str, Decision] = {}
    pending, count = [loaded.new_initial_state()], 0
    while pending:
        state, count = pending.pop(), count + 1
        if count + len(pending) > MAX_HISTORIES:
            return None
        if not state.is_terminal() and not state.is_chance_node():
            known, player = state.information_state_string(), state.current_player()
            if known not in by_state:
                text = decision_text(state, view, max_listed)
                by_state[known] = Decision(player, text, moves_of(state))
        pending += [state.child(a) for a in ([] if state.is_terminal() else state.legal_actions())]
    return by_state


@functools.lru_cache(maxsize=16)
def equilibrium(game: str) -> Mapping[str, Mapping[int, float]] | None:
    """The average policy of `CFR_ITERATIONS` iterations of CFR+ (arXiv 1407.5042), the
    probabilities of actions by information state; None where `decisions` is None.

    For two players and a zero-sum game it comes close to a Nash equilibrium; with more players, or
    other payoffs, there is no such guarantee.
    """
    if decisions(game, "information_state", 0) is None:
        return None
    solver = import_pyspiel().CFRPlusSolver(load_game(game))
    for _ in range(CFR_ITERATIONS):
        solver.evaluate_and_update_policy()
    table = solver.tabular_average_policy().policy_table()
    return {known: dict(probabilities) for known, probabilities in table.items()}


def expert_action(env: Any, rng: np.random.Generator) -> str:
    """A move of the `equilibrium` of a small game of imperfect information, elsewhere of a Monte
    Carlo tree search that sees hidden cards; uniform where rewards come before the end, which the
    search does not know.
    """
    state, game = env.state, env.game
    texts = {action: text for text, action in moves_of(state).items()}
    policy = None if has_perfect_information(game) else equilibrium(str(game))
    if policy is not None:
        known = policy[state.information_state_string()]
        weights = np.array([known.get(action, 0.0) for action in texts])
        return list(texts.values())[int(rng.choice(len(texts), p=weights / weights.sum()))]
    library, seed = import_pyspiel(), int(rng.integers(2**31))
    if game.get_type().reward_model != library.GameType.RewardModel.TERMINAL:
        return list(texts.values())[int(rng.integers(len(texts)))]
    evaluator = library.RandomRolloutEvaluator(1, seed)
    bot = library.MCTSBot(game, evaluator, 2.0, SIMULATIONS, 100, True, seed, False)
    return texts[bot.step(state)]


def has_exploitability(game: str) -> bool:
    """Whether a game is zero-sum, of two players, and small enough for `exploitability`."""
    library, loaded = import_pyspiel(), load_game(game)
    is_zero_sum = loaded.get_type().utility == library.GameType.Utility.ZERO_SUM
    has_two = loaded.num_players() == 2
    return has_two and is_zero_sum and decisions(game, "information_state", 0) is not None


def exploitability(game: str, probabilities: Mapping[str, Mapping[str, float]]) -> float:
    """The mean over both players of the value of a best response to a policy, in returns.

    E = (max_p u_0(p, pi_1) + max_p u_1(pi_0, p)) / 2, which is 0 at a Nash equilibrium.

    Args:
        game: OpenSpiel's name of a small zero-sum game of two players.
        probabilities: of moves by text, for each key of `decisions`.

    Raises:
        UserError: the game is too large, or has more players or other payoffs.
    """
    by_state = decisions(game, "information_state", 0) if has_exploitability(game) else None
    if by_state is None:
        raise UserError(f"exploitability needs a small zero-sum game of two players, not {game}")
    table = {
        known: [(a, float(probabilities[known][text])) for text, a in decision.moves.items()]
        for known, decision in by_state.items()
    }
    return float(import_pyspiel().exploitability(load_game(game), table))
