"""`TextNav`: put the stale food into the fridge (LMRL-Gym, arXiv 2311.18232)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.house import ROOMS, State, commands, next_step
from agentrl_jax.envs.lmrl.house_text import REFUSED, Telling, canonical, carried, telling
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

VIEWS = ("full", "partial")
HORIZON = 15
UNLISTED = ("examine", "look", "inventory")  # possible commands that hold one of these words are not listed
FAR = frozenset({"office", "bathroom", "garden", "backyard"})


def listed(possible: Iterable[str]) -> tuple[str, ...]:
    """The possible commands without those to examine, to look and to take stock."""
    return tuple(command for command in possible if not any(word in command for word in UNLISTED))


def start_of(env: Environment, options: Mapping[str, Any]) -> str:
    """The room where an episode starts: the one that the reset's options name, or one that is drawn."""
    if unknown := options.keys() - {"room"}:
        raise UserError(f"{type(env).__name__} has no reset option {sorted(unknown)}; it has: room")
    room = options.get("room", ROOMS[env.np_random.integers(len(ROOMS))])
    if room not in ROOMS:
        raise UserError(f"room must be one of {', '.join(ROOMS)}, not {room!r}")
    return room


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform command of those that are listed."""
    assert isinstance(env, TextNav)
    choices = env.admissible()
    return choices[rng.integers(len(choices))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The first command of a shortest way to win; it knows where everything is."""
    assert isinstance(env, TextNav)
    return next_step(env.state)


@dataclass(frozen=True)
class Walker:
    """LMRL-Gym's data policy: the expert in half of the rooms; in the other half it takes a uniform listed command.

    In a share `far` of the episodes the rooms it knows are the office, the bathroom, the garden and the backyard, else the other four.
    There it does what the expert does with probability `knows` a turn. With 1 its mean return and length are those of the data set that
    was published, 0.258 and 12.2; with 0.1, as the released script has it, it wins one episode in a thousand.
    """

    far: float = 0.75
    knows: float = 1.0

    def __call__(self, env: Environment, rng: np.random.Generator) -> str:
        assert isinstance(env, TextNav)
        known = (env.state.room in FAR) == (env.lot < self.far)
        return (_expert if known and rng.random() < self.knows else _random)(env, rng)


class TextNav(Rewindable):
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

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "released": Walker(knows=0.1), "mixture": Walker(), "expert": _expert}
    )
    reward_bounds: tuple[float, float] = (0.0, 1.0)
    score_anchors: tuple[float, float, float] | None = (0.0, 0.258, 1.0)
    rules = (
        "Put the stale food, which is on a table in the living room, into the fridge in the kitchen, and close the fridge;\n"
        f"you may give {HORIZON} commands, such as: go east, take bowl from table, open fridge, insert bowl into fridge, close fridge."
    )

    def __init__(self, view: str = "full", sentences: int = 1234, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        if view not in VIEWS:
            raise UserError(f"view must be one of {', '.join(VIEWS)}, not {view!r}")
        if isinstance(sentences, bool) or not isinstance(sentences, int) or sentences < 0:
            raise UserError(f"sentences must be a seed, a whole number from 0, not {sentences!r}")
        self.view, self.sentences = view, sentences
        self.start = ROOMS[0]
        self.state = State(self.start)
        self.turns = 0
        self.lot = 0.0  # drawn once an episode, for a player that has no memory

    def admissible(self) -> tuple[str, ...]:
        """The commands that are listed, in alphabetical order."""
        return listed(commands(self.state))

    @property
    def telling(self) -> Telling:
        return telling(self.sentences)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.start, self.lot = start_of(self, options), float(self.np_random.random())
        self._rewind()
        return self._said(self.telling.room(self.state, self.view == "full")), {}

    def _rewind(self) -> None:
        self.state, self.turns = State(self.start), 0

    def _said(self, *paragraphs: str) -> Messages:
        return (user("\n\n".join([*paragraphs, f"Admissible commands: {', '.join(self.admissible())}"]) + "\n"),)

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
        paragraphs = [answer, carried(self.state)] if self.view == "full" else [answer]
        return self._said(*paragraphs), float(won), over, cut, info
