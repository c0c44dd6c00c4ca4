"""`Narrator`: the sentences of Text-Nav, selected by a seed once per room and kind."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from agentrl_jax.envs.lmrl.house import (
    CONTAINER_BY_ROOM,
    HAND,
    OPPOSITE,
    ROOMS,
    HouseState,
    command_results,
    exits,
)

ROOM_TEMPLATES = (
    "You have come into the {}.",
    "This is the {}.",
    "The {} lies around you.",
    "You are standing in the {}.",
)
MOOD_SENTENCES = (
    "It looks lived in.",
    "Somebody keeps it tidy.",
    "It is very quiet.",
    "It has seen better days.",
    "Everything is as ever.",
)
FURNITURE_TEMPLATES = (
    "There is {} here.",
    "You notice {}.",
    "Your eye falls on {}.",
    "Right in front of you is {}.",
)
EMPTY_TEMPLATES = (
    "There is nothing {} it.",
    "Not a thing is {} it.",
    "Nobody has put anything {} it.",
)
CONTENT_TEMPLATES = (
    "{where} the {name} you see {things}.",
    "{things} can be seen {where} the {name}.",
    "Somebody has left {things} {where} the {name}.",
)
EXIT_TEMPLATES = (
    "You can leave to the {}.",
    "The way is free to the {}.",
    "Nothing stops you from going {}.",
    "You may go {}.",
)

ABBREVIATIONS: Mapping[str, str] = MappingProxyType(
    {"i": "inventory", "l": "look"}
    | {way[0]: f"go {way}" for way in OPPOSITE}
    | {way: f"go {way}" for way in OPPOSITE}
)
# Alternative spellings of a command, and the listed one.
COMMAND_REWRITES = (
    (re.compile(r"\bthe "), ""),
    (re.compile(r"^(get|pick up) "), "take "),
    (re.compile(r"^x "), "examine "),
    (re.compile(r"^(put|insert) (.+) (in|into) (.+)$"), r"insert \2 into \4"),
)
REFUSAL_TEXT = "That is not possible here."
MAX_COMMAND_LENGTH = 100  # characters; every possible command is shorter than half


def with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def join_names(names: Sequence[str]) -> str:
    """("a", "b", "c") reads "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def canonical_command(text: str, state: HouseState) -> str | None:
    """The possible command that a text means, or None."""
    if len(text) > MAX_COMMAND_LENGTH:
        return None
    command = " ".join(text.lower().split())
    for pattern, written in COMMAND_REWRITES:
        command = pattern.sub(written, command)
    command, holder = ABBREVIATIONS.get(command, command), CONTAINER_BY_ROOM.get(state.room)
    candidates = [command] if holder is None else [command, f"{command} from {holder.name}"]
    return next(
        (candidate for candidate in candidates if candidate in command_results(state)), None
    )


def action_text(command: str, state: HouseState) -> str:
    """The answer to a command that moved an item or opened a container."""
    verb, _, argument = command.partition(" ")
    name = re.sub(r" (from|into|on) ", r" \1 the ", argument)
    if verb == "open":
        inside = [*map(with_article, state.items_at(CONTAINER_BY_ROOM[state.room].location))]
        contents = f" and find {join_names(inside)}" if inside else ", which is empty"
        return f"You open the {name}{contents}."
    phrases = {
        "insert": f"put the {name}",
        "drop": f"drop the {name} on the floor",
        "eat": f"eat the {name}. It could be worse",
    }
    return f"You {phrases.get(verb, f'{verb} the {name}')}."


def inventory_text(state: HouseState) -> str:
    things = state.items_at(HAND)
    return (
        f"You are carrying: {join_names([*map(with_article, things)])}."
        if things
        else "You are carrying nothing."
    )


@dataclass(frozen=True)
class Narrator:
    """One sentence of each kind per room; rooms may differ in their wording."""

    templates: Mapping[
        str, tuple[str, ...]
    ]  # room -> room and mood, furniture, empty, contents, exits

    def describe_furniture(self, state: HouseState) -> list[str]:
        """The visible part of the room's table, chest or fridge."""
        holder = CONTAINER_BY_ROOM.get(state.room)
        if holder is None:
            return []
        _, there, empty, holds, _ = self.templates[state.room]
        is_closed = holder.can_open and state.room not in state.open_rooms
        kind = (
            f"{'closed' if is_closed else 'open'} {holder.name}" if holder.can_open else holder.name
        )
        things, where = state.items_at(holder.location), "in" if holder.can_open else "on"
        if is_closed:
            contents = []
        elif things:
            sentence = holds.format(
                where=where, name=holder.name, things=join_names([*map(with_article, things)])
            )
            contents = [sentence[0].upper() + sentence[1:]]
        else:
            contents = [empty.format(where)]
        return [there.format(with_article(kind)), *contents]

    def describe_room(self, state: HouseState, decorated: bool) -> str:
        """The description of the room.

        Without decoration an empty string takes its place, as in the published game.
        """
        decoration, *_, ways = self.templates[state.room]
        things = state.items_at(state.room)
        floor = (
            [
                f"On the floor {'are' if len(things) > 1 else 'is'} "
                f"{join_names([*map(with_article, things)])}."
            ]
            if things
            else []
        )
        description = " ".join(
            [decoration if decorated else "", *self.describe_furniture(state), *floor]
        )
        return f"{description}\n\n{ways.format(join_names([*exits(state.room)]))}"

    def describe_result(self, command: str, state: HouseState, decorated: bool) -> str:
        """The answer after a possible command was carried out."""
        verb, _, name = command.partition(" ")
        if verb in ("go", "look"):
            return self.describe_room(state, decorated)
        if verb == "inventory":
            return inventory_text(state)
        if verb == "examine":
            holder = CONTAINER_BY_ROOM.get(state.room)
            is_holder = holder is not None and holder.name == name
            return (
                " ".join(self.describe_furniture(state))
                if is_holder
                else f"The {name} looks as one would expect."
            )
        return action_text(command, state)


@cache
def make_narrator(seed: int) -> Narrator:
    """The sentences that a seed selects."""
    rng = np.random.default_rng(seed)

    def pick(kinds: tuple[str, ...]) -> str:
        return kinds[rng.integers(len(kinds))]

    return Narrator(
        MappingProxyType(
            {
                r: (
                    f"{pick(ROOM_TEMPLATES).format(r)} {pick(MOOD_SENTENCES)}",
                    pick(FURNITURE_TEMPLATES),
                    pick(EMPTY_TEMPLATES),
                    pick(CONTENT_TEMPLATES),
                    pick(EXIT_TEMPLATES),
                )
                for r in ROOMS
            }
        )
    )
