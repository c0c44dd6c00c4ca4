"""The knowledge table of Twenty Questions: objects and their attributes."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from agentrl_jax.envs.lmrl.csv_tables import read_csv
from agentrl_jax.envs.lmrl.phrases import split_words

PACKAGE = "agentrl_jax.envs.lmrl.twenty_questions"


@dataclass(frozen=True)
class Item:
    """An object to guess.

    `size` is 1 (a coin) to 7 (a house): 2 a hand, 3 a shoebox, 4 a dog, 5 a person, 6 a car.
    """

    names: tuple[str, ...]  # ("Airplane", "Plane")
    category: str
    size: int
    attributes: frozenset[str]

    @property
    def listed_name(self) -> str:
        """As LMRL-Gym lists it: "Airplane;Plane"."""
        return ";".join(self.names)


@dataclass(frozen=True)
class Attribute:
    """A property with the question that asks for it.

    `phrases` in a question state it; those that begin with "!" state its opposite.
    """

    name: str
    question: str
    phrases: tuple[str, ...]


@cache
def all_items() -> tuple[Item, ...]:
    """All objects, grouped by category."""
    return tuple(
        Item(
            tuple(row["names"].split(";")),
            row["category"],
            int(row["size"]),
            frozenset(row["attributes"].split()),
        )
        for row in read_csv(PACKAGE, "things.csv")
    )


@cache
def attributes() -> tuple[Attribute, ...]:
    """All attributes, each with its question."""
    return tuple(
        Attribute(row["attribute"], row["question"], tuple(row["phrases"].split("|")))
        for row in read_csv(PACKAGE, "attributes.csv")
    )


@cache
def attribute_matrix() -> np.ndarray:
    """Which item (row) has which attribute (column): bool [items, attributes]."""
    table = np.array(
        [
            [attribute.name in thing.attributes for attribute in attributes()]
            for thing in all_items()
        ]
    )
    table.setflags(write=False)
    return table


@cache
def row_by_words() -> dict[tuple[str, ...], int]:
    """The row of every name, by its words: ("soccer", "ball") -> 2."""
    return {
        tuple(split_words(name)): row
        for row, thing in enumerate(all_items())
        for name in thing.names
    }


def row_by_name(name: str) -> int | None:
    """The row of an item by one of its names or its listed name ("Airplane;Plane")."""
    return row_by_words().get(tuple(split_words(name.split(";")[0])))


# Uncountable and plural nouns take no article in a question.
NO_ARTICLE_WORDS = frozenset(
    split_words(
        "pants scissors skates skis shoes socks gloves headphones sunglasses cards marbles "
        "earrings trousers drums grapes bread cheese "
        "chocolate rice water milk coffee tea beer wine lemonade garlic broccoli corn lettuce "
        "soap glue dice"
    )
)


def guess_question(item: Item) -> str:
    """The question that guesses an item: "Is it an apple?"."""
    name = item.names[0].lower()
    if name.split()[-1] in NO_ARTICLE_WORDS or name == "ice cream":
        return f"Is it {name}?"
    return f"Is it {'an' if name[0] in 'aeiou' else 'a'} {name}?"
