"""`PettingZoo`: games of PettingZoo's AEC and parallel APIs (arXiv 2009.14471) as texts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.adapters.packages import shortened
from agentrl_jax.envs.adapters.pettingzoo_loading import make_aec
from agentrl_jax.envs.adapters.redrawn import Redrawn
from agentrl_jax.envs.adapters.replayed import Replayed
from agentrl_jax.envs.adapters.spaces_as_text import (
    action_text,
    is_supported,
    listed_actions,
    parsed_action,
    value_text,
    without_escapes,
)
from agentrl_jax.envs.options import checked_choice, checked_int
from agentrl_jax.errors import UserError
from agentrl_jax.multi_agent import MoveResult


def _random_action(env: "PettingZoo", rng: np.random.Generator) -> str:
    """A uniform legal move; of a space that lists none, a sample."""
    if listed_actions(env.space, env.names) is None:
        env.space.seed(int(rng.integers(2**31)))
        return action_text(env.space, env.names, env.space.sample())
    legal = env._legal_moves()
    return legal[int(rng.integers(len(legal)))]


class PettingZoo(Replayed, Redrawn):
    """A game of PettingZoo; a player that is to move reads its observation, the "ansi" rendering
    where there is one, and its legal moves.

    Agents are players in the order of `possible_agents`. The reward of a player is what
    `env.last()` returns when it is selected. The game is over when no agent is left, and truncated
    where none of those that leave last terminated. `random` and `expert` are the same policy.

    Args:
        name: PettingZoo's id, such as `classic/tictactoe-v3`.
        api: `aec` or `parallel`, whose agents then move one after the other, unseen.
        module: one to import that registers it; empty: PettingZoo's own.
        env_options: of its constructor.
        actions: names of the actions; empty: their numbers.
        parts: names of an observation's parts.
        max_listed: the most legal moves that a text lists; 0: it lists none.
        opponent: as in `MultiAgentEnvironment`, like `seat` and `penalty`.

    Raises:
        UserError: the package is missing, or an id or option is unknown, or actions are no texts.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "expert": _random_action}
    )
    program_options: ClassVar[tuple[str, ...]] = ("module",)
    payoff_bounds = (-np.inf, np.inf)

    def __init__(
        self,
        name: str = "classic/tictactoe-v3",
        api: str = "aec",
        module: str = "",
        env_options: Mapping[str, Any] | None = None,
        actions: Sequence[str] = (),
        parts: Sequence[str] = (),
        max_listed: int = 64,
        opponent: str = "random",
        seat: int | None = None,
        penalty: float = 0.05,
        render_mode: str | None = None,
    ) -> None:
        checked_choice("api", api, ("aec", "parallel"))
        self.env = make_aec(name, api, module, dict(env_options or {}))
        self.num_players = len(self.env.possible_agents)
        super().__init__(opponent, seat, penalty, render_mode)
        self.names, self.parts = tuple(actions), tuple(parts)
        self.max_listed = checked_int("max_listed", max_listed, 0, 10**6)
        for agent in self.env.possible_agents:
            space = self.space = self.env.action_space(agent)
            if not is_supported(space) or len(self.names) not in (0, getattr(space, "n", 0)):
                raise UserError(f"{name} has the actions {space}, which have no texts {actions}")
        self.rules = (
            f"{name}, a game of PettingZoo with {self.num_players} players. Write one of the "
            "moves; an illegal text makes the first one."
        )
        self._text, self._mask = "", None

    def _start_game(self) -> Sequence[str]:
        self.env.reset(seed=int(self.np_random.integers(2**31)))
        return self._next_observations(self.env.last())

    def _make_move(self, text: str) -> None:
        self._text = text  # a legal move where moves are not listed and this is an action
        super()._make_move(text)

    def _legal_moves(self) -> Sequence[str]:
        listed = listed_actions(self.space, self.names)
        if listed is not None:
            mask = [True] * len(listed) if self._mask is None else self._mask
            return [text for text, is_legal in zip(listed, mask) if is_legal]
        if parsed_action(self.space, self.names, self._text) is not None:
            return [self._text]
        self.space.seed(0)
        return [action_text(self.space, self.names, self.space.sample())]

    def _apply_move(self, move: str) -> MoveResult:
        self.env.step(parsed_action(self.space, self.names, move))
        gains, ends = [0.0] * self.num_players, []
        while self.env.agents:
            turn, player = self.env.last(), self._selected_player()
            gains[player] += float(turn[1])
            if not turn[2] and not turn[3]:
                lines = self._next_observations(turn)
                return MoveResult(lines, self.current_player, {"outcome": gains})
            ends.append(bool(turn[2]))
            self.env.step(None)  # PettingZoo removes an agent so
        lines = [f"The game is over: {old + gain:+g}" for old, gain in zip(self.returns, gains)]
        return MoveResult(lines, None, {"outcome": gains}, truncated=not any(ends))

    def _selected_player(self) -> int:
        return self.env.possible_agents.index(self.env.agent_selection)

    def _next_observations(self, turn: tuple[Any, ...]) -> list[str]:
        """Sets the player to move; what each player reads next: the one to move its view, others
        nothing.

        Args:
            turn: what `env.last()` returned.
        """
        player = self.current_player = self._selected_player()
        observation, info = turn[0], turn[4]
        self.space, self._mask = self.env.action_space(self.env.agent_selection), None
        if isinstance(observation, Mapping) and "action_mask" in observation:
            self._mask, observation = observation["action_mask"], observation["observation"]
        elif "action_mask" in info:
            self._mask = info["action_mask"]
        is_rendered = getattr(self.env.unwrapped, "render_mode", None) == "ansi"
        text = self.env.render() if is_rendered else value_text(observation, self.parts)
        text, listed = (
            without_escapes(str(text)).strip("\n"),
            listed_actions(self.space, self.names),
        )
        moves = shortened(list(self._legal_moves()), self.max_listed) if listed else str(self.space)
        text = f"{text}\nMoves: {moves}" if self.max_listed else text
        return [text if i == player else "" for i in range(self.num_players)]
