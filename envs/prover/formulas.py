"""Propositional formulas as canonical texts: `decompose` reads them, `compose` makes them.

Atoms are letters; `&` and, `+` or, `>` implies, `=` is equivalent to. Only `>` chains, to the
right: a>b>c is a>(b>c).
"""

import functools
import itertools
from collections.abc import Iterable, Mapping

ATOMS = "abcdefghjkmnoptu"
MAX_FORMULA_LENGTH = 200  # characters that are parsed


@functools.lru_cache(65536)
def decompose(formula: str) -> tuple[str, str, str]:
    """(connective, left, right) of a canonical formula; ("", atom, "") of an atom."""
    if len(formula) == 1:
        return "", formula, ""
    depth = 0
    for i, letter in enumerate(formula):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter in "&+>=":
            return letter, _strip_brackets(formula[:i]), _strip_brackets(formula[i + 1 :])
    raise ValueError(f"{formula!r} is no formula")


def _strip_brackets(text: str) -> str:
    return (
        text[1:-1]
        if text.startswith("(") and _closing_bracket_index(text) == len(text) - 1
        else text
    )


def _closing_bracket_index(text: str) -> int:
    """Index of the bracket that closes the first one; -1 where none does."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i
    return -1


def compose(connective: str, left: str, right: str) -> str:
    """The canonical text of a compound formula."""
    chained = connective == ">" and decompose(right)[0] == ">"
    return _add_brackets(left) + connective + (right if chained else _add_brackets(right))


def _add_brackets(formula: str) -> str:
    return formula if len(formula) == 1 else f"({formula})"


def canonical_formula(text: str) -> str:
    """The canonical text of a formula.

    Raises:
        ValueError: the text is no formula.
    """
    text = text.strip()
    if len(text) > MAX_FORMULA_LENGTH:
        raise ValueError(f"a formula has at most {MAX_FORMULA_LENGTH} letters, not {len(text)}")
    formula, remainder = _parse(text)
    if remainder:
        raise ValueError(
            f"{remainder!r} is left over in {text!r}: brackets say what belongs together"
        )
    return formula


def _parse(text: str) -> tuple[str, str]:
    """The formula that a text begins with, and the remaining text."""
    left, remainder = _parse_unit(text)
    if not remainder or remainder[0] not in "&+>=":
        return left, remainder
    connective = remainder[0]
    right, remainder = _parse(remainder[1:]) if connective == ">" else _parse_unit(remainder[1:])
    return compose(connective, left, right), remainder


def _parse_unit(text: str) -> tuple[str, str]:
    if text.startswith("("):
        inner, remainder = _parse(text[1:])
        if not remainder.startswith(")"):
            raise ValueError(f"a bracket is not closed in {text!r}")
        return inner, remainder[1:]
    if not text or text[0] not in ATOMS:
        raise ValueError(f"a letter of {ATOMS} or a bracket must come where {text[:10]!r} does")
    return text[0], text[1:]


def substitute(formula: str, old: str, new: str) -> str:
    """The formula with every subformula `old` replaced by `new`."""
    if formula == old:
        return new
    connective, left, right = decompose(formula)
    return (
        compose(connective, substitute(left, old, new), substitute(right, old, new))
        if connective
        else formula
    )


def is_true(formula: str, assignment: Mapping[str, bool]) -> bool:
    """Whether the formula is true under a truth assignment."""
    connective, left, right = decompose(formula)
    if not connective:
        return assignment[left]
    a, b = is_true(left, assignment), is_true(right, assignment)
    return {"&": a and b, "+": a or b, ">": not a or b, "=": a == b}[connective]


def is_entailed(hypotheses: Iterable[str], goal: str) -> bool:
    """Whether the hypotheses entail the goal, by truth table."""
    premises = list(hypotheses)
    atoms = sorted({letter for text in (*premises, goal) for letter in text if letter in ATOMS})
    assignments = (
        dict(zip(atoms, values)) for values in itertools.product((False, True), repeat=len(atoms))
    )
    return all(
        is_true(goal, assignment)
        for assignment in assignments
        if all(is_true(text, assignment) for text in premises)
    )
