"""The knowledge table: things, attributes, and which thing has which."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from agentrl_jax.envs.lmrl.phrases import words


@dataclass(frozen=True)
class Thing:
    """An object to guess. `size` is 1 (a coin) to 7 (a house): 2 a hand, 3 a shoebox, 4 a dog, 5 a person, 6 a car."""

    names: tuple[str, ...]  # ("Airplane", "Plane")
    category: str
    size: int
    attributes: frozenset[str]

    @property
    def word(self) -> str:
        """As LMRL-Gym lists it: "Airplane;Plane"."""
        return ";".join(self.names)


@dataclass(frozen=True)
class Attribute:
    """`phrases` are words of a question that ask for it; those that begin with "!" ask for its opposite."""

    name: str
    question: str
    phrases: tuple[str, ...]


def _rows(name: str) -> Iterator[list[str]]:
    text = files("agentrl_jax.envs.lmrl.twenty_questions").joinpath(name).read_text(encoding="ascii")
    rows = csv.reader(text.splitlines())
    next(rows)
    return rows


@cache
def things() -> tuple[Thing, ...]:
    """All objects, one category after the other."""
    return tuple(
        Thing(tuple(names.split(";")), category, int(size), frozenset(held.split())) for names, category, size, held in _rows("things.csv")
    )


@cache
def attributes() -> tuple[Attribute, ...]:
    """What can be asked for, each with a question of its own."""
    return tuple(Attribute(name, question, tuple(phrases.split("|"))) for name, question, phrases in _rows("attributes.csv"))


@cache
def matrix() -> np.ndarray:
    """Which thing (row) has which attribute (column): bool [things, attributes]."""
    table = np.array([[attribute.name in thing.attributes for attribute in attributes()] for thing in things()])
    table.setflags(write=False)
    return table


@cache
def places() -> dict[tuple[str, ...], int]:
    """The row of every name, by its words: ("soccer", "ball") -> 2."""
    return {tuple(words(name)): row for row, thing in enumerate(things()) for name in thing.names}


def row_of(name: str) -> int | None:
    """The row of the thing that is called so, by any of its names or as it is listed ("Airplane;Plane")."""
    return places().get(tuple(words(name.split(";")[0])))


# Uncountable or plural: a question has no article before them.
BARE = frozenset(
    words(
        "pants scissors skates skis shoes socks gloves headphones sunglasses cards marbles earrings trousers drums grapes bread cheese "
        "chocolate rice water milk coffee tea beer wine lemonade garlic broccoli corn lettuce soap glue dice"
    )
)


def guess(thing: Thing) -> str:
    """The question that guesses it: "Is it an apple?"."""
    name = thing.names[0].lower()
    if name.split()[-1] in BARE or name == "ice cream":
        return f"Is it {name}?"
    return f"Is it {'an' if name[0] in 'aeiou' else 'a'} {name}?"
