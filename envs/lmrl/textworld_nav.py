"""`TextWorldNav`: Text-Nav's house as a game of the textworld package, which speaks its own sentences.

Needs `pip install 'agentrl_jax[textworld]'` and a C compiler; the first episode from a room compiles its game, some seconds.
"""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentrl_jax.environment import Messages, Player
from agentrl_jax.envs.lmrl.house import EDIBLE, HOLDERS, OPPOSITE, ROOMS, THINGS, WAYS, State, commands
from agentrl_jax.envs.lmrl.house_text import REFUSED, canonical
from agentrl_jax.envs.lmrl.text_nav import HORIZON, PLAYERS, House
from agentrl_jax.errors import UserError

GRAMMAR_SEED = 1234
ROOM_NAME = re.compile(r"-= [\w ]+ =-\n")  # above a room's description


def package() -> Any:
    try:
        import_module("textworld.generator")
        return import_module("textworld")
    except ModuleNotFoundError as error:
        raise UserError("this world needs textworld: pip install 'agentrl_jax[textworld]'") from error


@cache
def folder() -> Path:
    """Where the compiled games are kept as long as this process lives."""
    path = tempfile.mkdtemp(prefix="textworld-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


@contextmanager
def _home(path: Path) -> Iterator[None]:
    """The compiler writes into $HOME: let that be `path` meanwhile."""
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(path)
    try:
        yield
    finally:
        del os.environ["HOME"]
        if before is not None:
            os.environ["HOME"] = before


@cache
def compiled(room: str) -> str:
    """The game file that starts in a room."""
    textworld = package()
    event, quest = textworld.generator.game.Event, textworld.generator.game.Quest
    options = textworld.GameOptions()
    maker = textworld.GameMaker(options)
    rooms = {name: maker.new_room(name) for name in ROOMS}
    for here, way, there in WAYS:
        maker.connect(getattr(rooms[here], way), getattr(rooms[there], OPPOSITE[way]))
    holders = {}
    for holder in HOLDERS:
        made = holders[holder.place] = maker.new(type="c" if holder.opens else "s", name=holder.name)
        rooms[holder.room].add(made)
        if holder.opens:
            maker.add_fact("closed", made)
    things = {}
    for name, place in THINGS.items():
        things[name] = maker.new(type="f" if name in EDIBLE else "o", name=name)
        holders[place].add(things[name])
    maker.set_player(rooms[room])
    food, fridge = things["stale food"], holders["kitchen fridge"]
    eaten = event(conditions={maker.new_fact("eaten", food)})
    stored = event(conditions={maker.new_fact("in", food, fridge), maker.new_fact("closed", fridge)})
    maker.quests = [quest(win_events=[], fail_events=[eaten]), quest(win_events=[stored], reward=1)]
    game = maker.build()
    flags = {"theme": "house", "include_adj": False, "only_last_action": True, "blend_instructions": True, "blend_descriptions": True}
    game.change_grammar(textworld.generator.make_grammar(flags, rng=np.random.RandomState(GRAMMAR_SEED)))
    options.path = str(folder() / f"{room.replace(' ', '_')}.z8")
    with _home(folder()):
        return textworld.generator.compile_game(game, options)


class TextWorldNav(House):
    """`TextNav` with the textworld package's answers: the same map, commands, views and horizon, and that package's sentences.

    Texts are read as `TextNav` reads them, and the game is given the possible command that is meant; it never sees any other text, some
    of which it would answer by questions, files or a list of commands that is no longer true. In the view "partial" the description of
    a room loses its first paragraph, the decoration, which a changed copy of the package left out of the published game.

    `info["legal"]` says whether the command was possible. Reset option: `room`, where to start; by default one of the eight.
    """

    players: ClassVar[Mapping[str, Player]] = PLAYERS

    def __init__(self, view: str = "full", render_mode: str | None = None) -> None:
        super().__init__(view, render_mode)
        self.game: Any = None
        self.commands: tuple[str, ...] = ()  # what the package says can be done

    def possible(self) -> tuple[str, ...]:
        return self.commands

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        room = self._start(options)
        textworld = package()
        self.close()
        self.game = textworld.start(compiled(room), textworld.EnvInfos(admissible_commands=True, score=True))
        self.state, self.turns = State(room), 0
        answer = self.game.reset()
        self.commands = tuple(sorted(answer.admissible_commands))
        return self._said(self._text(answer.feedback), load=False), {}

    def close(self) -> None:
        if self.game is not None:
            self.game.close()
            self.game = None

    def _text(self, feedback: str) -> str:
        """An answer without its banner, the room's name, the prompt and the notice of an end."""
        text = re.split(r"\n>|\*\*\*", feedback)[0]
        *_, told = ROOM_NAME.split(text)
        parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", told.strip())]
        return "\n\n".join(parts[1:] if told != text and self.view == "partial" else parts)

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        command = canonical(text, self.state)
        info: dict[str, Any] = {"legal": command is not None}
        said, score, over = REFUSED, 0.0, False
        if command is not None:
            answer, _, over = self.game.step(command)
            self.state = commands(self.state)[command]
            self.commands, score = tuple(sorted(answer.admissible_commands)), float(answer.score)
            said = self._text(answer.feedback)
        cut = not over and self.turns == HORIZON
        if over or cut:
            info["success"] = score == 1
        return self._said(said), score, over, cut, info


if "textworld/TextNav-v0" not in gymnasium.registry:
    gymnasium.register("textworld/TextNav-v0", "agentrl_jax.envs.lmrl.textworld_nav:TextWorldNav")
