"""`TextNav`: put the stale food into the fridge (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.house import ROOMS, State, commands, next_step
from agentrl_jax.envs.lmrl.house_text import REFUSED, Telling, canonical, carried, telling
from agentrl_jax.envs.probes.probe import whole
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

VIEWS = ("full", "partial")
HORIZON = 15
UNLISTED = ("examine", "look", "inventory")  # possible commands that hold one of these words are not listed
FAR = frozenset({"office", "bathroom", "garden", "backyard"})


class House(Environment):
    """What Text-Nav is in whatever words: the view, the start, the load and the commands that an answer lists."""

    reward_bounds: tuple[float, float] = (0.0, 1.0)
    score_anchors: tuple[float, float, float] | None = (0.0, 0.258, 1.0)
    rules = (
        "Put the stale food, which is on a table in the living room, into the fridge in the kitchen, and close the fridge;\n"
        f"you may give {HORIZON} commands, such as: go east, take bowl from table, open fridge, insert bowl into fridge, close fridge."
    )

    def __init__(self, view: str, render_mode: str | None) -> None:
        super().__init__(render_mode)
        if view not in VIEWS:
            raise UserError(f"view must be one of {', '.join(VIEWS)}, not {view!r}")
        self.view = view
        self.state = State(ROOMS[0])
        self.turns = 0

    def possible(self) -> Iterable[str]:
        """Every possible command, in alphabetical order."""
        return commands(self.state)

    def actions(self) -> tuple[str, ...]:
        """The commands that are listed: not those to examine, to look and to take stock."""
        return tuple(command for command in self.possible() if not any(word in command for word in UNLISTED))

    def _start(self, options: Mapping[str, Any]) -> str:
        """The room where an episode starts: the one that the reset's options name, or one that is drawn."""
        if unknown := options.keys() - {"room"}:
            raise UserError(f"{type(self).__name__} has no reset option {sorted(unknown)}; it has: room")
        room = options.get("room", ROOMS[self.np_random.integers(len(ROOMS))])
        if room not in ROOMS:
            raise UserError(f"room must be one of {', '.join(ROOMS)}, not {room!r}")
        return room

    def _said(self, answer: str, load: bool = True) -> Messages:
        """An answer, in the full view what is carried, and the list."""
        parts = [
            answer,
            *([carried(self.state)] if load and self.view == "full" else []),
            f"Admissible commands: {', '.join(self.actions())}",
        ]
        return (user("\n\n".join(parts) + "\n"),)


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform command of those that are listed."""
    assert isinstance(env, House)
    choices = env.actions()
    return choices[rng.integers(len(choices))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The first command of a shortest way to win; it knows where everything is."""
    assert isinstance(env, House)
    return next_step(env.state)


PLAYERS: Mapping[str, Player] = MappingProxyType({"random": _random, "expert": _expert})


@dataclass(frozen=True)
class Walker:
    """LMRL-Gym's data policy: the expert in half of the rooms; in the other half it takes a uniform listed command.

    In a share `far` of the episodes the rooms it knows are the office, the bathroom, the garden and the backyard, else the other four.
    There it does what the expert does with probability `knows` a turn. With 1 its mean return and length are those of the data set that
    was published, 0.258 and 12.2; with 0.1, as the released script has it, it wins less than one episode in a hundred.
    """

    far: float = 0.75
    knows: float = 1.0

    def __call__(self, env: Environment, rng: np.random.Generator) -> str:
        assert isinstance(env, TextNav)
        known = (env.state.room in FAR) == (env.lot < self.far)
        return (_expert if known and rng.random() < self.knows else _random)(env, rng)


class TextNav(House, Rewindable):
    """A house of eight rooms: take the stale food from the living room's table, put it into the kitchen's fridge and close that.

    Actions are commands: "go east", "open fridge", "take stale food from table", "insert stale food into fridge", "put bowl on table",
    "drop bowl", "eat fruit", "close fridge", "examine bowl", "look", "inventory". Case, white space and "the" do not count, and the
    usual short forms are understood. Any other text is refused, changes nothing and costs a turn.

    An answer tells what happened, or what the room is like, and lists the possible commands (but those to examine, look and take stock).
    In the view "full" the room is named and every answer tells what is carried; "partial" says neither. The reward is 1 with the closed
    fridge, which ends the episode, as eating the stale food does; else 0. After 15 commands without an end the episode is truncated.

    `info["legal"]` says whether the command was possible. Reset option: `room`, where to start; by default one of the eight.
    Sentences are picked by `sentences`, a seed of its own. Raises UserError where an option is unknown or out of range.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({**PLAYERS, "released": Walker(knows=0.1), "mixture": Walker()})

    def __init__(self, view: str = "full", sentences: int = 1234, render_mode: str | None = None) -> None:
        super().__init__(view, render_mode)
        self.sentences = whole("sentences", sentences, 0, 2**31)
        self.start = ROOMS[0]
        self.lot = 0.0  # drawn once an episode, for a player that has no memory

    @property
    def telling(self) -> Telling:
        return telling(self.sentences)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.start, self.lot = self._start(options), float(self.np_random.random())
        self._rewind()
        return self._said(self.telling.room(self.state, self.view == "full"), load=False), {}

    def _rewind(self) -> None:
        self.state, self.turns = State(self.start), 0

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        command = canonical(text, self.state)
        info: dict[str, Any] = {"legal": command is not None}
        if command is None:
            answer = REFUSED
        else:
            self.state = commands(self.state)[command]
            answer = self.telling.answer(command, self.state, self.view == "full")
        won, over = self.state.won, self.state.won or self.state.lost
        cut = not over and self.turns == HORIZON
        if over or cut:
            info["success"] = won
        return self._said(answer), float(won), over, cut, info
