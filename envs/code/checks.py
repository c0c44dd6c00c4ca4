"""Checks of answers: numbers, texts, sets, constraints, and functions that unit tests call."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl_jax.sandbox.snippet import Outcome

MAX_ANSWER = 2000  # characters; a longer answer is wrong
Runner = Callable[[str], Outcome]  # runs a program in a sandbox
_NUMBER = re.compile(r"[-+]?[0-9]{1,40}(?:\.[0-9]{1,20})?")
_LIST = re.compile(r"[\[({]?\s*([^\[\](){}]*?)\s*[\])}]?", re.DOTALL)


class Check(Protocol):
    """Whether an answer is right; `run` runs code that is part of an answer."""

    def __call__(self, answer: str, run: Runner) -> bool: ...


def items_of(answer: str) -> list[str]:
    """The items of "a, b", "[a, b]", "{a b}"; empty where it is no list."""
    match = _LIST.fullmatch(answer.strip()) if len(answer) <= MAX_ANSWER else None
    if match is None:
        return []
    return [item.strip("'\"") for item in re.split(r"[,\s]+", match[1]) if item.strip("'\"")]


def integers_of(answer: str) -> list[int]:
    """The integers of a list; empty where an item is none."""
    items = items_of(answer)
    is_valid = all(re.fullmatch(r"-?[0-9]{1,18}", item) for item in items)
    return [int(item) for item in items] if is_valid else []


@dataclass(frozen=True)
class NumberCheck:
    """|answer - value| <= tolerance max(1, |value|)."""

    value: float
    tolerance: float = 0.0

    def __call__(self, answer: str, run: Runner) -> bool:
        text = answer.strip().replace(",", "")
        if not _NUMBER.fullmatch(text):
            return False
        if self.tolerance == 0 and "." not in text:
            return int(text) == self.value
        bound = self.tolerance * max(1.0, abs(self.value))
        return math.isclose(float(text), self.value, rel_tol=0.0, abs_tol=bound)


@dataclass(frozen=True)
class ExactText:
    """The answer is this text, without quotes and space around it."""

    text: str

    def __call__(self, answer: str, run: Runner) -> bool:
        return answer.strip().strip("'\"") == self.text


@dataclass(frozen=True)
class ItemSet:
    """The answer lists these items, in any order; "none" stands for no item."""

    items: frozenset[str]

    def __call__(self, answer: str, run: Runner) -> bool:
        items = items_of(answer)
        if not self.items:
            return answer.strip().lower() in ("none", "[]", "set()")
        return len(items) == len(self.items) and set(items) == self.items


@dataclass(frozen=True)
class Constraint:
    """`predicate(answer, *data)`: any answer that solves the problem is right."""

    predicate: Callable[..., bool]
    data: tuple[Any, ...]

    def __call__(self, answer: str, run: Runner) -> bool:
        return len(answer) <= MAX_ANSWER and self.predicate(answer, *self.data)


@dataclass(frozen=True)
class UnitTests:
    """The answer is code that defines `f`; in a sandbox f(*arguments) has the expected values.

    The expected values stay outside the sandbox, so the code cannot read them.
    """

    cases: tuple[tuple[tuple[Any, ...], Any], ...]  # (arguments, value)

    def __call__(self, answer: str, run: Runner) -> bool:
        if len(answer) > MAX_ANSWER:
            return False
        arguments = [list(case[0]) for case in self.cases]
        program = f"{answer}\nprint()\nprint([f(*case) for case in {arguments!r}])\n"
        outcome = run(program)
        lines = outcome.stdout.rstrip("\n").rsplit("\n", 1)
        return outcome.succeeded and lines[-1] == repr([value for _, value in self.cases])
