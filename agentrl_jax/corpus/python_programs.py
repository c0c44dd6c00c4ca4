"""Short Python programs with the output that running them gives."""

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from agentrl_jax.corpus.exercise import Exercise, text_exercise
from agentrl_jax.corpus.words import ANIMALS, COLORS, FOODS, THINGS, choice, integer, sample

NAMES = ("a", "b", "c", "k", "n", "s", "t", "x", "y", "z")
# All that a program can call: no file, no import, no attribute of the interpreter by name.
BUILTINS: Mapping[str, Any] = MappingProxyType(
    {f.__name__: f for f in (len, max, min, range, reversed, sorted, str, sum, list, enumerate)}
)


def python_programs(rng: np.random.Generator) -> Exercise:
    """A program of one to ten lines and what it prints."""
    make = choice(rng, (_variables, _loop, _sequence, _branch, _text, _function, _table, _while))
    program = make(rng)
    return text_exercise(f"Program:\n{program}\nOutput:\n", run_program(program))


def run_program(program: str) -> str:
    """What the program prints, without the last line feed."""
    lines: list[str] = []

    def write(*values: object) -> None:
        lines.append(" ".join(map(str, values)))

    exec(program, {"__builtins__": {**BUILTINS, "print": write}})
    return "\n".join(lines)


def _variables(rng: np.random.Generator) -> str:
    """Assignments, each from those before, then the last one printed."""
    names = sample(rng, NAMES, integer(rng, 2, 4))
    lines = [f"{names[0]} = {integer(rng, 0, 20)}"]
    for before, name in itertools.pairwise(names):
        lines.append(f"{name} = {before} {choice(rng, ('+', '-', '*'))} {integer(rng, 1, 9)}")
    return "\n".join([*lines, f"print({', '.join(names[-integer(rng, 1, 2) :])})"])


def _loop(rng: np.random.Generator) -> str:
    i, total = sample(rng, NAMES, 2)
    start, count = integer(rng, 0, 5), integer(rng, 2, 5)
    bounds = f"{count}" if rng.random() < 0.5 else f"{start}, {start + count}"
    if rng.random() < 0.5:
        work = f"print({i} {choice(rng, ('+', '*'))} {integer(rng, 1, 9)})"
        return f"for {i} in range({bounds}):\n    {work}"
    return f"{total} = 0\nfor {i} in range({bounds}):\n    {total} += {i}\nprint({total})"


def _sequence(rng: np.random.Generator) -> str:
    name, i = sample(rng, NAMES, 2)
    numbers = [integer(rng, 0, 30) for _ in range(integer(rng, 3, 6))]
    expression: str = choice(
        rng,
        (
            f"len({name})", f"max({name})", f"min({name})", f"sum({name})", f"sorted({name})",
            f"{name}[0]", f"{name}[-1]", f"{name}[1:3]", f"list(reversed({name}))",
            f"[{i} + {integer(rng, 1, 5)} for {i} in {name}]",
            f"[{i} for {i} in {name} if {i} > {integer(rng, 5, 20)}]",
        ),
    )  # fmt: skip
    return f"{name} = {numbers}\nprint({expression})"


def _branch(rng: np.random.Generator) -> str:
    name, (yes, no) = choice(rng, NAMES), sample(rng, COLORS, 2)
    condition: str = choice(
        rng,
        (
            f"{name} {choice(rng, ('>', '<', '=='))} {integer(rng, 0, 20)}",
            f"{name} % {integer(rng, 2, 4)} == 0",
        ),
    )
    return (
        f"{name} = {integer(rng, 0, 20)}\nif {condition}:\n    print('{yes}')\n"
        f"else:\n    print('{no}')"
    )


def _text(rng: np.random.Generator) -> str:
    name, word = choice(rng, NAMES), choice(rng, (*THINGS, *ANIMALS, *FOODS))
    expression: str = choice(
        rng,
        (
            f"{name}.upper()", f"{name} + '{choice(rng, COLORS)}'", f"len({name})", f"{name}[0]",
            f"{name}[-1]", f"{name}[:3]", f"{name}[::-1]", f"{name} * 2",
            f"{name}.replace('{word[0]}', '{choice(rng, 'aeiou')}')", f"'{word[1]}' in {name}",
        ),
    )  # fmt: skip
    return f"{name} = '{word}'\nprint({expression})"


def _function(rng: np.random.Generator) -> str:
    function, (x, y) = choice(rng, ("f", "g", "h")), sample(rng, NAMES, 2)
    body = f"{x} {choice(rng, ('+', '-', '*'))} {y}"
    body += choice(rng, ("", f" + {integer(rng, 1, 9)}"))
    call = f"{function}({integer(rng, 0, 12)}, {integer(rng, 0, 9)})"
    return f"def {function}({x}, {y}):\n    return {body}\n\nprint({call})"


def _table(rng: np.random.Generator) -> str:
    name, keys = choice(rng, NAMES), sample(rng, FOODS, integer(rng, 2, 4))
    table = {key: integer(rng, 1, 20) for key in keys}
    lines = [f"{name} = {table}"]
    if rng.random() < 0.5:
        lines.append(
            f"{name}['{choice(rng, keys)}'] {choice(rng, ('=', '+='))} {integer(rng, 1, 9)}"
        )
    query: str = choice(
        rng,
        (
            f"{name}['{choice(rng, keys)}']", f"len({name})", f"sorted({name})",
            f"sum({name}.values())", f"'{choice(rng, FOODS)}' in {name}",
        ),
    )  # fmt: skip
    return "\n".join([*lines, f"print({query})"])


def _while(rng: np.random.Generator) -> str:
    name, step = choice(rng, NAMES), integer(rng, 2, 6)
    return (
        f"{name} = {integer(rng, 1, 9)}\nwhile {name} < {integer(rng, 10, 24)}:\n"
        f"    {name} += {step}\nprint({name})"
    )
