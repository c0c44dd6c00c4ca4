"""Propositional formulas as texts: one canonical text each, read by `parts` and made by `join`.

Atoms are letters; `&` and, `+` or, `>` implies, `=` is equivalent to. Only `>` chains, to the right: a>b>c is a>(b>c).
"""

import functools
import itertools
from collections.abc import Iterable, Mapping

ATOMS = "abcdefghjkmnoptu"
LONGEST = 200  # letters of a text that is read


@functools.lru_cache(65536)
def parts(formula: str) -> tuple[str, str, str]:
    """(connective, left, right) of a canonical text; ("", atom, "") of an atom."""
    if len(formula) == 1:
        return "", formula, ""
    depth = 0
    for i, letter in enumerate(formula):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter in "&+>=":
            return letter, _bare(formula[:i]), _bare(formula[i + 1 :])
    raise ValueError(f"{formula!r} is no formula")


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(") and _closes(text) == len(text) - 1 else text


def _closes(text: str) -> int:
    """Where the bracket closes that opens at the start; -1: nowhere."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i
    return -1


def join(connective: str, left: str, right: str) -> str:
    """The text of a compound formula."""
    chained = connective == ">" and parts(right)[0] == ">"
    return _unit(left) + connective + (right if chained else _unit(right))


def _unit(formula: str) -> str:
    return formula if len(formula) == 1 else f"({formula})"


def canonical(text: str) -> str:
    """The canonical text of what somebody typed. Raises ValueError where it is no formula."""
    text = text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"a formula has at most {LONGEST} letters, not {len(text)}")
    found, rest = _read(text)
    if rest:
        raise ValueError(f"{rest!r} is left over in {text!r}: brackets say what belongs together")
    return found


def _read(text: str) -> tuple[str, str]:
    """The formula that a text begins with, and the rest."""
    left, rest = _read_unit(text)
    if not rest or rest[0] not in "&+>=":
        return left, rest
    connective = rest[0]
    right, rest = _read(rest[1:]) if connective == ">" else _read_unit(rest[1:])
    return join(connective, left, right), rest


def _read_unit(text: str) -> tuple[str, str]:
    if text.startswith("("):
        inner, rest = _read(text[1:])
        if not rest.startswith(")"):
            raise ValueError(f"a bracket is not closed in {text!r}")
        return inner, rest[1:]
    if not text or text[0] not in ATOMS:
        raise ValueError(f"a letter of {ATOMS} or a bracket must come where {text[:10]!r} does")
    return text[0], text[1:]


def replaced(formula: str, old: str, new: str) -> str:
    """The formula with every part that is `old` replaced by `new`."""
    if formula == old:
        return new
    connective, left, right = parts(formula)
    return join(connective, replaced(left, old, new), replaced(right, old, new)) if connective else formula


def holds(formula: str, world: Mapping[str, bool]) -> bool:
    """Whether the formula is true where its atoms are as `world` says."""
    connective, left, right = parts(formula)
    if not connective:
        return world[left]
    a, b = holds(left, world), holds(right, world)
    return {"&": a and b, "+": a or b, ">": not a or b, "=": a == b}[connective]


def follows(hypotheses: Iterable[str], goal: str) -> bool:
    """Whether the goal is true wherever the hypotheses are, by its truth table."""
    given = list(hypotheses)
    atoms = sorted({letter for text in (*given, goal) for letter in text if letter in ATOMS})
    worlds = (dict(zip(atoms, values)) for values in itertools.product((False, True), repeat=len(atoms)))
    return all(holds(goal, world) for world in worlds if all(holds(text, world) for text in given))
