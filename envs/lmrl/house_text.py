"""`Telling`: what is said of the house of Text-Nav, in sentences that a seed picks once for each room and thing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from agentrl_jax.envs.lmrl.house import HAND, HOLDER_IN, OPPOSITE, ROOMS, State, commands, exits

ROOM = ("You have come into the {}.", "This is the {}.", "The {} lies around you.", "You are standing in the {}.")
MOOD = ("It looks lived in.", "Somebody keeps it tidy.", "It is very quiet.", "It has seen better days.", "Everything is as ever.")
THERE = ("There is {} here.", "You notice {}.", "Your eye falls on {}.", "Right in front of you is {}.")
EMPTY = ("There is nothing {} it.", "Not a thing is {} it.", "Nobody has put anything {} it.")
HOLDS = (
    "{where} the {name} you see {things}.",
    "{things} can be seen {where} the {name}.",
    "Somebody has left {things} {where} the {name}.",
)
WAYS = ("You can leave to the {}.", "The way is free to the {}.", "Nothing stops you from going {}.", "You may go {}.")

SHORT: Mapping[str, str] = MappingProxyType(
    {"i": "inventory", "l": "look"} | {way[0]: f"go {way}" for way in OPPOSITE} | {way: f"go {way}" for way in OPPOSITE}
)
# Other ways to write a command, and the one that is listed.
SPELLINGS = (
    (re.compile(r"\bthe "), ""),
    (re.compile(r"^(get|pick up) "), "take "),
    (re.compile(r"^x "), "examine "),
    (re.compile(r"^(put|insert) (.+) (in|into) (.+)$"), r"insert \2 into \4"),
)
REFUSED = "That is not possible here."
LONGEST = 100  # letters of a command; no possible one has half as many


def with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def listed(names: Sequence[str]) -> str:
    """("a", "b", "c") reads "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def canonical(text: str, state: State) -> str | None:
    """The possible command that a text means, or None."""
    if len(text) > LONGEST:
        return None
    command = " ".join(text.lower().split())
    for pattern, written in SPELLINGS:
        command = pattern.sub(written, command)
    command, holder = SHORT.get(command, command), HOLDER_IN.get(state.room)
    candidates = [command] if holder is None else [command, f"{command} from {holder.name}"]
    return next((candidate for candidate in candidates if candidate in commands(state)), None)


def done(command: str, after: State) -> str:
    """What is said of a command that moved something."""
    verb, _, rest = command.partition(" ")
    name = re.sub(r" (from|into|on) ", r" \1 the ", rest)
    if verb == "open":
        inside = after.at(HOLDER_IN[after.room].place)
        return f"You open the {name}{f' and find {listed([*map(with_article, inside)])}' if inside else ', which is empty'}."
    told = {"insert": f"put the {name}", "drop": f"drop the {name} on the floor", "eat": f"eat the {name}. It could be worse"}
    return f"You {told.get(verb, f'{verb} the {name}')}."


def carried(state: State) -> str:
    things = state.at(HAND)
    return f"You are carrying: {listed([*map(with_article, things)])}." if things else "You are carrying nothing."


@dataclass(frozen=True)
class Telling:
    """One sentence of each kind for every room; the same kind may be told otherwise in another room."""

    told: Mapping[str, tuple[str, ...]]  # room -> room and mood, there, empty, holds, ways

    def furniture(self, state: State) -> list[str]:
        """What there is to see of the room's table, chest or fridge."""
        holder = HOLDER_IN.get(state.room)
        if holder is None:
            return []
        _, there, empty, holds, _ = self.told[state.room]
        shut = holder.opens and state.room not in state.open
        kind = f"{'closed' if shut else 'open'} {holder.name}" if holder.opens else holder.name
        things, where = state.at(holder.place), "in" if holder.opens else "on"
        if shut:
            contents = []
        elif things:
            said = holds.format(where=where, name=holder.name, things=listed([*map(with_article, things)]))
            contents = [said[0].upper() + said[1:]]
        else:
            contents = [empty.format(where)]
        return [there.format(with_article(kind)), *contents]

    def room(self, state: State, decorated: bool) -> str:
        """The room as it is seen; without its decoration an empty string stands in that place, as in the published game."""
        decoration, *_, ways = self.told[state.room]
        things = state.at(state.room)
        floor = [f"On the floor {'are' if len(things) > 1 else 'is'} {listed([*map(with_article, things)])}."] if things else []
        seen = " ".join([decoration if decorated else "", *self.furniture(state), *floor])
        return f"{seen}\n\n{ways.format(listed([*exits(state.room)]))}"

    def answer(self, command: str, after: State, decorated: bool) -> str:
        """What is said when a possible command has been carried out."""
        verb, _, name = command.partition(" ")
        if verb in ("go", "look"):
            return self.room(after, decorated)
        if verb == "inventory":
            return carried(after)
        if verb == "examine":
            holder = HOLDER_IN.get(after.room)
            is_holder = holder is not None and holder.name == name
            return " ".join(self.furniture(after)) if is_holder else f"The {name} looks as one would expect."
        return done(command, after)


@cache
def telling(seed: int) -> Telling:
    """The sentences that a seed picks."""
    rng = np.random.default_rng(seed)

    def pick(kinds: tuple[str, ...]) -> str:
        return kinds[rng.integers(len(kinds))]

    return Telling(
        MappingProxyType({r: (f"{pick(ROOM).format(r)} {pick(MOOD)}", pick(THERE), pick(EMPTY), pick(HOLDS), pick(WAYS)) for r in ROOMS})
    )
