"""`Game`: a text world of several seats that take turns; PettingZoo's AEC API in spirit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.environment import Environment, Message, Messages
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import user


@dataclass(frozen=True)
class Played:
    """What came of one move."""

    news: Sequence[str]  # what each seat sees of it, without its line feed; "": nothing
    turn: int | None  # who moves next; None: the game is over
    rewards: Mapping[str, Sequence[float]]  # by part, for each seat
    truncated: bool = False  # over by the game's horizon


class Game(Environment):
    """Subclasses define `_deal`, `_legal` and `_played`; every seat must get at least one move, and every game must end.

    Each reply is for the seat that `info["seat"]` names: what it has not seen yet, and what it has earned since it last moved, so that
    a reward accrues to a seat's last turn until it acts again. Once the game is over every seat is told so, one after the other: the
    action that asks for the next one's end is not looked at.

    Text that is no legal move is answered with "?" and the move that is made in its place, the first legal one; it costs `penalty` (part
    "illegal"), and its seat cannot have success. So nobody stalls a game.

    By default one seat is played from outside, `seat` or one that the seed draws, and the scripted player `opponent` sits in the others:
    an environment like any other. The reset option `seats` lists the seats that are played from outside, `opponent` names another player.
    """

    seats: int = 2
    payoffs: tuple[float, float] = (-1.0, 1.0)  # the least and the most that a seat can earn from one of its turns to the next
    turn: int = 0  # the seat to move

    def __init__(self, opponent: str = "expert", seat: int | None = None, penalty: float = 0.05, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 <= penalty < np.inf:
            raise UserError(f"penalty must be a number from 0, not {penalty!r}")
        self.opponent = self._player(opponent)
        self.seat = None if seat is None else self._seats([seat])[0]
        self.penalty = float(penalty)
        self.reward_bounds = (self.payoffs[0] - self.penalty, self.payoffs[1])

    def _deal(self) -> Sequence[str]:
        """Draw a new game, set `turn`, and return what each seat sees of it, without its line feed; "": nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define _deal")

    def _legal(self) -> Sequence[str]:
        """The moves of the seat to move; the first stands in for any other text."""
        raise NotImplementedError(f"{type(self).__name__} must define _legal")

    def _played(self, move: str) -> Played:
        """Make a legal move."""
        raise NotImplementedError(f"{type(self).__name__} must define _played")

    def _succeeded(self, seat: int) -> bool:
        """Whether a seat has won, once the game is over."""
        return self.earned[seat] > 0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        seats, opponent = options.pop("seats", None), self._player(options.pop("opponent", self.opponent))
        if options:
            raise UserError(f"{type(self).__name__} has no reset option {sorted(options)}: it has seats and opponent")
        self._news = [[text] if text else [] for text in self._deal()]
        drawn = int(self.np_random.integers(self.seats))  # always: who sits where must not change what else is drawn
        self.outside = self._seats([drawn if self.seat is None else self.seat] if seats is None else seats)
        self._inside = self.players[opponent]
        self.earned = [0.0] * self.seats  # so far, without penalties
        self._parts: list[dict[str, float]] = [{} for _ in range(self.seats)]  # earned since the seat's last reply
        self._facts: list[dict[str, Any]] = [{} for _ in range(self.seats)]
        self._moved, self._refused = [False] * self.seats, [False] * self.seats
        self._over, self._untold = "", list(self.outside)
        self._advance()
        if self._over:
            raise EnvironmentFailure(f"{type(self).__name__} was over before seat {self._untold[0]} had a move", "nonsense")
        return self._unseen(self.turn), {"seat": self.turn}

    def step(self, action: Message | str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        reply = super().step(action)
        self._done = self._done and not self._untold
        return reply

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        if not self._over:
            self._act(text.strip())
            self._advance()
        seat, info = self._untold.pop(0) if self._over else self.turn, {}
        if self._over:
            info["success"] = bool(self._succeeded(seat)) and not self._refused[seat]
        parts = {}
        if self._moved[seat]:  # what came before its first move waits: there is no turn to accrue to
            parts, self._parts[seat] = self._parts[seat], {}
            info |= self._facts[seat]
        info |= {"seat": seat, "rewards": parts}
        return self._unseen(seat), float(sum(parts.values())), self._over == "terminated", self._over == "truncated", info

    def _advance(self) -> None:
        """Scripted players move until it is a seat's turn that is played from outside."""
        while not self._over and self.turn not in self.outside:
            self._act(self._inside(self, self.np_random))

    def _act(self, text: str) -> None:
        seat, legal = self.turn, list(self._legal())
        self._moved[seat], self._facts[seat] = True, {"legal": text in legal}
        if text not in legal:
            text, self._refused[seat] = legal[0], True
            self._news[seat].append(f"?{text}")
            self._earn(seat, "illegal", -self.penalty)
        played = self._played(text)
        for name, amounts in played.rewards.items():
            for i, amount in enumerate(amounts):
                self.earned[i] += amount
                self._earn(i, name, amount)
        for i, line in enumerate(played.news):
            self._news[i] += [line] if line else []
        if played.turn is None:
            self._over = "truncated" if played.truncated else "terminated"
        else:
            self.turn = played.turn

    def _earn(self, seat: int, name: str, amount: float) -> None:
        self._parts[seat][name] = self._parts[seat].get(name, 0.0) + amount

    def _unseen(self, seat: int) -> Messages:
        """What a seat has not seen yet, which it sees now."""
        lines, self._news[seat] = self._news[seat], []
        return (user("".join(f"{line}\n" for line in lines)),) if lines else ()

    def _player(self, name: Any) -> str:
        if name not in self.players:
            raise UserError(f"{type(self).__name__} has no opponent {name!r}, only {', '.join(self.players)}")
        return name

    def _seats(self, seats: Any) -> list[int]:
        """Raises UserError where these are no seats of this game."""
        if not isinstance(seats, list | tuple) or not seats or any(type(x) is not int or not 0 <= x < self.seats for x in seats):
            raise UserError(f"the seats of {type(self).__name__} are 0 to {self.seats - 1}, not {seats!r}")
        return sorted(set(seats))


def random_move(env: Environment, rng: np.random.Generator) -> str:
    """A uniform legal move."""
    assert isinstance(env, Game)
    legal = env._legal()
    return legal[int(rng.integers(len(legal)))]
