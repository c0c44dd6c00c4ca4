"""Lists of words, numbers and letters: repeated, reversed, sorted, searched.

Little of an answer can be guessed without reading its prompt, so copying is learned here first.
"""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.corpus.exercise import Exercise, text_exercise
from agentrl_jax.corpus.words import (
    ANIMALS,
    CITIES,
    COLORS,
    FOODS,
    JOBS,
    PEOPLE,
    THINGS,
    choice,
    integer,
    sample,
)

WORDS = (*PEOPLE, *CITIES, *COLORS, *THINGS, *ANIMALS, *FOODS, *JOBS)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lists(rng: np.random.Generator) -> Exercise:
    """Half of the exercises repeat their list."""
    items = _sample_items(rng)
    task, answer = ("Repeat", " ".join(items)) if rng.random() < 0.5 else _other_task(rng, items)
    return text_exercise(f"{task}: {' '.join(items)}\n", answer)


def _sample_items(rng: np.random.Generator) -> list[str]:
    """Three to twelve different words, numbers or strings of letters."""
    count = integer(rng, 3, 12)
    make = choice(rng, (_words, _words, _numbers, _strings))
    return make(rng, count)


def _words(rng: np.random.Generator, count: int) -> list[str]:
    return sample(rng, WORDS, count)


def _numbers(rng: np.random.Generator, count: int) -> list[str]:
    return [str(number) for number in sample(rng, range(100), count)]


def _strings(rng: np.random.Generator, count: int) -> list[str]:
    strings: dict[str, None] = {}
    while len(strings) < count:
        strings["".join(sample(rng, LETTERS, integer(rng, 1, 4)))] = None
    return list(strings)


def _other_task(rng: np.random.Generator, items: Sequence[str]) -> tuple[str, str]:
    at = integer(rng, 0, len(items) - 2)
    return choice(
        rng,
        (
            ("Reverse", " ".join(reversed(items))),
            ("Sort", " ".join(sorted(items, key=_order))),
            ("Last", items[-1]),
            (f"After {items[at]}", items[at + 1]),
        ),
    )


def _order(item: str) -> tuple[int, str]:
    """Numbers by their value, others by their letters."""
    return (int(item), "") if item.isdecimal() else (0, item)
