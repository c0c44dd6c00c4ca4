"""`OpenSpiel`: the turn-based games of the package open_spiel (arXiv 1908.09453) as texts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, FullHistory, LastMessages
from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.adapters.open_spiel_games import (
    VIEWS,
    decision_text,
    has_own_generator,
    load_game,
    moves_of,
    payoff_bounds,
    shows_everything,
    view_of,
)
from agentrl_jax.envs.adapters.open_spiel_solvers import expert_action
from agentrl_jax.envs.adapters.redrawn import Redrawn
from agentrl_jax.envs.options import checked_choice, checked_int
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.multi_agent import MoveResult, random_move


class OpenSpiel(Redrawn):
    """A game of OpenSpiel; a player that is to move sees the package's text and its legal moves.

    Moves are the package's action strings. Chance outcomes follow from the seed and the moves, and
    simultaneous moves are made one after the other, unseen by those who move later. The change of a
    player's return is its reward. A game that ends before the external player's first move is drawn
    again.

    Scripted policies: `random` (uniform) and `expert` (`open_spiel_solvers.expert_action`).

    Args:
        game: OpenSpiel's name of it, with parameters: `leduc_poker(players=3)`.
        view: `information_state` holds all that a player knows, `observation` what it sees now;
            `auto` is the observation where all is visible, else the information state, whichever
            the game has.
        max_listed: the most legal moves that a text lists; 0: it lists none.
        horizon: moves of all players before truncation; 0: the game's own end.
        opponent: as in `MultiAgentEnvironment`, like `seat` and `penalty`.

    Raises:
        UserError: the package is missing, or the game or an option is none that can be played.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": random_move, "expert": expert_action}
    )

    def __init__(
        self,
        game: str = "kuhn_poker",
        view: str = "auto",
        max_listed: int = 64,
        horizon: int = 0,
        opponent: str = "random",
        seat: int | None = None,
        penalty: float = 0.05,
        render_mode: str | None = None,
    ) -> None:
        self.name, self.game = game, load_game(game)
        self.num_players = int(self.game.num_players())
        self.payoff_bounds = payoff_bounds(self.game)
        super().__init__(opponent, seat, penalty, render_mode)
        self.max_listed = checked_int("max_listed", max_listed, 0, 10**6)
        self.horizon = checked_int("horizon", horizon, 0, 10**9)
        self.view = view_of(self.game, checked_choice("view", view, VIEWS))
        self.context: ContextManager = (
            LastMessages(1) if shows_everything(self.game, self.view) else FullHistory()
        )
        self.rules = (
            f"{game}, a game of OpenSpiel with {self.num_players} players. Write one of the moves; "
            "an illegal text makes the first one."
        )
        self.state: Any = None
        self._moves: dict[str, int] = {}

    def actions(self) -> Sequence[str] | None:
        return list(self._moves) or None

    def _start_game(self) -> Sequence[str]:
        seed = int(self.np_random.integers(2**31))
        # Of the outcomes, so that they do not depend on who draws other random numbers.
        self._outcomes = np.random.default_rng([seed, 1])
        if has_own_generator(self.game):
            self.game = load_game(self.name, seed)
        self.state, self._num_moves = self.game.new_initial_state(), 0
        self._draw_chance()
        if self.state.is_terminal():
            raise EnvironmentFailure(f"{self.game} is over before a move", "nonsense")
        return self._next_observations()

    def _legal_moves(self) -> Sequence[str]:
        return list(self._moves)

    def _apply_move(self, move: str) -> MoveResult:
        before, self._num_moves = list(self.state.returns()), self._num_moves + 1
        self.state.apply_action(self._moves[move])
        self._draw_chance()
        gains = [after - old for old, after in zip(before, self.state.returns())]
        rewards = {"outcome": gains} if any(gains) else {}
        is_over = self.state.is_terminal()
        is_cut = not is_over and 0 < self.horizon <= self._num_moves
        if not is_over and not is_cut:
            lines = self._next_observations()
            return MoveResult(lines, self.state.current_player(), rewards)
        self._moves = {}
        ends = [f"The game is over: {value:+g}" for value in self.state.returns()]
        return MoveResult(ends, None, rewards, truncated=is_cut)

    def _draw_chance(self) -> None:
        while self.state.is_chance_node():
            actions, weights = zip(*self.state.chance_outcomes())
            weights = np.array(weights) / np.sum(weights)
            self.state.apply_action(int(self._outcomes.choice(actions, p=weights)))

    def _next_observations(self) -> list[str]:
        """Sets the legal moves; what each player sees next: the one to move its view, others
        nothing.
        """
        player = self.current_player = self.state.current_player()
        self._moves = moves_of(self.state)
        text = decision_text(self.state, self.view, self.max_listed)
        return [text if i == player else "" for i in range(self.num_players)]
