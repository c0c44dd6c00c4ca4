"""The words of generated texts, and how they are drawn."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

PEOPLE = (
    "Ada", "Ben", "Cleo", "Dora", "Emil", "Fred", "Gina", "Hugo", "Ines", "Jack", "Kate", "Liam",
    "Mona", "Nora", "Otto", "Paul", "Rosa", "Sven", "Tina", "Vera", "Will", "Yara", "Zoe", "Omar",
)  # fmt: skip
CITIES = (
    "Oslo", "Rome", "Cairo", "Lima", "Paris", "Quito", "Tokyo", "Delhi", "Berlin", "Madrid",
    "Dublin", "Vienna", "Athens", "Lisbon", "Warsaw", "Prague",
)  # fmt: skip
COLORS = ("red", "blue", "green", "black", "white", "yellow", "brown", "purple")
THINGS = (
    "kite", "bike", "lamp", "boat", "drum", "coat", "clock", "chair", "piano", "radio", "tent",
    "ring", "mug", "sled", "vase", "harp",
)  # fmt: skip
ANIMALS = ("cat", "dog", "horse", "goat", "duck", "fox", "owl", "rabbit", "parrot", "turtle")
FOODS = (
    "apples", "pears", "plums", "onions", "beans", "eggs", "rolls", "lemons", "carrots", "melons",
    "grapes", "cakes",
)  # fmt: skip
JOBS = ("baker", "doctor", "farmer", "painter", "pilot", "teacher", "tailor", "singer", "cook")


def choice(rng: np.random.Generator, items: Sequence[T]) -> T:
    """One of the items, uniformly."""
    return items[int(rng.integers(len(items)))]


def sample(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """So many different items, in a random order."""
    return [items[int(i)] for i in rng.permutation(len(items))[:count]]


def integer(rng: np.random.Generator, low: int, high: int) -> int:
    """A uniform integer from `low` to `high`, both included."""
    return int(rng.integers(low, high + 1))


def number_of_digits(rng: np.random.Generator, digits: int) -> int:
    """A number with at most so many digits; each count of digits is as likely."""
    return integer(rng, 0, 10 ** integer(rng, 1, digits) - 1)
