"""`MultiAgentEnvironment`: a turn-based game of several players, like PettingZoo's AEC API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.environment import Environment, Message, Messages
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import user


@dataclass(frozen=True)
class MoveResult:
    """The outcome of one move."""

    observations: Sequence[str]  # the line that each player sees, without line feed; "": none
    next_player: int | None  # who moves next; None: the game is over
    rewards: Mapping[str, Sequence[float]]  # component -> reward of each player
    truncated: bool = False  # ended by the game's horizon


class MultiAgentEnvironment(Environment):
    """A turn-based game; each player is a seat, numbered from 0.

    Subclasses define `_start_game`, `_legal_moves` and `_apply_move`; every player must get at
    least one move, and every game must end.

    Each observation is for the player `info["seat"]`: the lines that it has not seen yet, with the
    reward since its last move, so that a reward accrues to a player's last turn until it acts
    again. Once the game is over, each external player gets a final observation, one per step; the
    actions of those steps are ignored.

    A text that is not a legal move is replaced by the first legal move and reported as "?" and that
    move; it costs `penalty` (reward component "illegal"), and its player cannot have success. So no
    player can stall a game.

    By default one player is external, `seat` or one drawn from the seed, and the scripted policy
    `opponent` plays the others: an environment like any other. The reset option `seats` lists the
    external players, and the reset option `opponent` names another scripted policy.
    """

    num_players: int = 2
    # The least and the most that a player can earn between two of its turns.
    payoff_bounds: tuple[float, float] = (-1.0, 1.0)
    current_player: int = 0  # the player to move

    def __init__(
        self,
        opponent: str = "expert",
        seat: int | None = None,
        penalty: float = 0.05,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if (
            isinstance(penalty, bool)
            or not isinstance(penalty, int | float)
            or not 0 <= penalty < np.inf
        ):
            raise UserError(f"penalty must be a number from 0, not {penalty!r}")
        self.opponent = self._checked_policy_name(opponent)
        self.fixed_player = None if seat is None else self._checked_players([seat])[0]
        self.penalty = float(penalty)
        self.reward_bounds = (self.payoff_bounds[0] - self.penalty, self.payoff_bounds[1])

    def _start_game(self) -> Sequence[str]:
        """Draw a new game and set `current_player`; returns the first line of each player."""
        raise NotImplementedError(f"{type(self).__name__} must define _start_game")

    def _legal_moves(self) -> Sequence[str]:
        """The legal moves of the current player; the first one replaces any illegal text."""
        raise NotImplementedError(f"{type(self).__name__} must define _legal_moves")

    def _apply_move(self, move: str) -> MoveResult:
        """Make a legal move."""
        raise NotImplementedError(f"{type(self).__name__} must define _apply_move")

    def _has_won(self, player: int) -> bool:
        """Whether a player has won, once the game is over."""
        return self.returns[player] > 0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        players = options.pop("seats", None)
        opponent = self._checked_policy_name(options.pop("opponent", self.opponent))
        if options:
            raise UserError(
                f"{type(self).__name__} has no reset option {sorted(options)}: "
                "it has seats and opponent"
            )
        self._unseen_lines = [[text] if text else [] for text in self._start_game()]
        # Drawn even where it is not used: who plays must not change the other random numbers.
        random_player = int(self.np_random.integers(self.num_players))
        if players is None:
            players = [random_player if self.fixed_player is None else self.fixed_player]
        self.external_players = self._checked_players(players)
        self._opponent_policy = self.scripted_policies[opponent]
        self.returns = [0.0] * self.num_players  # so far, without penalties
        # Earned by each player since its last observation.
        self._pending_rewards: list[dict[str, float]] = [{} for _ in range(self.num_players)]
        self._move_info: list[dict[str, Any]] = [{} for _ in range(self.num_players)]
        self._has_moved = [False] * self.num_players
        self._made_illegal_move = [False] * self.num_players
        self._end_reason, self._players_to_notify = "", list(self.external_players)
        self._play_scripted_moves()
        if self._end_reason:
            raise EnvironmentFailure(
                f"{type(self).__name__} was over before seat {self._players_to_notify[0]} "
                "had a move",
                "nonsense",
            )
        return self._pop_observation(self.current_player), {"seat": self.current_player}

    def step(self, action: Message | str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        result = super().step(action)
        self._is_over = self._is_over and not self._players_to_notify
        return result

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        if not self._end_reason:
            self._make_move(text.strip())
            self._play_scripted_moves()
        player = self._players_to_notify.pop(0) if self._end_reason else self.current_player
        info: dict[str, Any] = {}
        if self._end_reason:
            info["success"] = bool(self._has_won(player)) and not self._made_illegal_move[player]
        rewards: dict[str, float] = {}
        if self._has_moved[player]:  # before its first move there is no turn to accrue to
            rewards, self._pending_rewards[player] = self._pending_rewards[player], {}
            info |= self._move_info[player]
        info |= {"seat": player, "rewards": rewards}
        return (
            self._pop_observation(player),
            float(sum(rewards.values())),
            self._end_reason == "terminated",
            self._end_reason == "truncated",
            info,
        )

    def _play_scripted_moves(self) -> None:
        """Make the scripted policy's moves until an external player is to move."""
        while not self._end_reason and self.current_player not in self.external_players:
            action = self._opponent_policy(self, self.np_random)
            self._make_move(action if isinstance(action, str) else action.text)

    def _make_move(self, text: str) -> None:
        player, legal = self.current_player, list(self._legal_moves())
        self._has_moved[player], self._move_info[player] = True, {"legal": text in legal}
        if text not in legal:
            text, self._made_illegal_move[player] = legal[0], True
            self._unseen_lines[player].append(f"?{text}")
            self._add_reward(player, "illegal", -self.penalty)
        result = self._apply_move(text)
        for name, amounts in result.rewards.items():
            for i, amount in enumerate(amounts):
                self.returns[i] += amount
                self._add_reward(i, name, amount)
        for i, line in enumerate(result.observations):
            self._unseen_lines[i] += [line] if line else []
        if result.next_player is None:
            self._end_reason = "truncated" if result.truncated else "terminated"
        else:
            self.current_player = result.next_player

    def _add_reward(self, player: int, name: str, amount: float) -> None:
        self._pending_rewards[player][name] = self._pending_rewards[player].get(name, 0.0) + amount

    def _pop_observation(self, player: int) -> Messages:
        """The lines that a player has not seen yet; they are seen from now on."""
        lines, self._unseen_lines[player] = self._unseen_lines[player], []
        return (user("".join(f"{line}\n" for line in lines)),) if lines else ()

    def _checked_policy_name(self, name: Any) -> str:
        if name not in self.scripted_policies:
            raise UserError(
                f"{type(self).__name__} has no opponent {name!r}, "
                f"only {', '.join(self.scripted_policies)}"
            )
        return name

    def _checked_players(self, players: Any) -> list[int]:
        """The players, sorted. Raises UserError where one is not a seat of this game."""
        if (
            not isinstance(players, list | tuple)
            or not players
            or any(type(x) is not int or not 0 <= x < self.num_players for x in players)
        ):
            raise UserError(
                f"the seats of {type(self).__name__} are 0 to {self.num_players - 1}, "
                f"not {players!r}"
            )
        return sorted(set(players))


def random_move(env: MultiAgentEnvironment, rng: np.random.Generator) -> str:
    """A uniform legal move."""
    legal = env._legal_moves()
    return legal[int(rng.integers(len(legal)))]
