"""`TextWorldNav`: Text-Nav's house as a game of the textworld package, in its sentences.

Needs `pip install 'agentrl_jax[textworld]'` and a C compiler; the first episode from a room
compiles its game, which takes some seconds.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.lmrl.house import (
    CONNECTIONS,
    CONTAINERS,
    EDIBLE_ITEMS,
    INITIAL_LOCATIONS,
    OPPOSITE,
    ROOMS,
    HouseState,
    command_results,
)
from agentrl_jax.envs.lmrl.house_text import REFUSAL_TEXT, canonical_command
from agentrl_jax.envs.lmrl.text_nav import HORIZON, SCRIPTED_POLICIES, HouseEnvironment
from agentrl_jax.envs.textworld_compiler import games_folder, import_textworld, temporary_home

GRAMMAR_SEED = 1234
ROOM_NAME = re.compile(r"-= [\w ]+ =-\n")  # above a room's description


@cache
def compile_game(room: str) -> str:
    """The path of the compiled game that starts in a room."""
    textworld = import_textworld()
    event, quest = textworld.generator.game.Event, textworld.generator.game.Quest
    options = textworld.GameOptions()
    maker = textworld.GameMaker(options)
    rooms = {name: maker.new_room(name) for name in ROOMS}
    for room_name, direction, neighbor in CONNECTIONS:
        maker.connect(
            getattr(rooms[room_name], direction), getattr(rooms[neighbor], OPPOSITE[direction])
        )
    holders = {}
    for holder in CONTAINERS:
        entity = holders[holder.location] = maker.new(
            type="c" if holder.can_open else "s", name=holder.name
        )
        rooms[holder.room].add(entity)
        if holder.can_open:
            maker.add_fact("closed", entity)
    things = {}
    for name, location in INITIAL_LOCATIONS.items():
        things[name] = maker.new(type="f" if name in EDIBLE_ITEMS else "o", name=name)
        holders[location].add(things[name])
    maker.set_player(rooms[room])
    food, fridge = things["stale food"], holders["kitchen fridge"]
    eaten = event(conditions={maker.new_fact("eaten", food)})
    stored = event(
        conditions={maker.new_fact("in", food, fridge), maker.new_fact("closed", fridge)}
    )
    maker.quests = [quest(win_events=[], fail_events=[eaten]), quest(win_events=[stored], reward=1)]
    game = maker.build()
    flags = {
        "theme": "house",
        "include_adj": False,
        "only_last_action": True,
        "blend_instructions": True,
        "blend_descriptions": True,
    }
    game.change_grammar(
        textworld.generator.make_grammar(flags, rng=np.random.RandomState(GRAMMAR_SEED))
    )
    options.path = str(games_folder() / f"{room.replace(' ', '_')}.z8")
    with temporary_home(games_folder()):
        return textworld.generator.compile_game(game, options)


class TextWorldNav(HouseEnvironment):
    """`TextNav` with the textworld package's sentences: same map, commands, views and horizon.

    Texts are parsed as in `TextNav`, and the game receives the possible command that is meant and
    no other text, some of which it would answer by questions, files or an outdated list of
    commands. In the view "partial", the description of a room loses its first paragraph, the
    decoration, which a modified copy of the package left out of the published game. `info["legal"]`
    is whether the command was possible.

    Scripted policies: `random` and `expert`. Reset option: `room`, the start room; default:
    sampled.

    Args:
        view: "full" or "partial".
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = SCRIPTED_POLICIES

    def __init__(self, view: str = "full", render_mode: str | None = None) -> None:
        super().__init__(view, render_mode)
        self.game: Any = None
        self.game_commands: tuple[str, ...] = ()  # admissible by the package

    def admissible_commands(self) -> tuple[str, ...]:
        return self.game_commands

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        room = self._choose_start_room(options)
        textworld = import_textworld()
        self.close()
        self.game = textworld.start(
            compile_game(room), textworld.EnvInfos(admissible_commands=True, score=True)
        )
        self.state, self.turns = HouseState(room), 0
        answer = self.game.reset()
        self.game_commands = tuple(sorted(answer.admissible_commands))
        return self._observation(self._clean_feedback(answer.feedback), show_inventory=False), {}

    def close(self) -> None:
        if self.game is not None:
            self.game.close()
            self.game = None

    def _clean_feedback(self, feedback: str) -> str:
        """An answer without banner, room name, prompt and end-of-game notice."""
        text = re.split(r"\n>|\*\*\*", feedback)[0]
        *_, description = ROOM_NAME.split(text)
        parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", description.strip())]
        return "\n\n".join(parts[1:] if description != text and self.view == "partial" else parts)

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        command = canonical_command(text, self.state)
        info: dict[str, Any] = {"legal": command is not None}
        feedback, score, over = REFUSAL_TEXT, 0.0, False
        if command is not None:
            answer, _, over = self.game.step(command)
            self.state = command_results(self.state)[command]
            self.game_commands, score = (
                tuple(sorted(answer.admissible_commands)),
                float(answer.score),
            )
            feedback = self._clean_feedback(answer.feedback)
        cut = not over and self.turns == HORIZON
        if over or cut:
            info["success"] = score == 1
        return self._observation(feedback), score, over, cut, info


if "textworld/TextNav-v0" not in gymnasium.registry:
    gymnasium.register("textworld/TextNav-v0", "agentrl_jax.envs.lmrl.textworld_nav:TextWorldNav")
