"""Arithmetic, worked out digit by digit or step by step."""

import itertools

import numpy as np

from agentrl_jax.corpus.exercise import Exercise, text_exercise
from agentrl_jax.corpus.words import choice, integer, number_of_digits


def arithmetic(rng: np.random.Generator) -> Exercise:
    """A sum, difference, product or chain of additions; the answer's last line is the result."""
    make = choice(rng, (_addition, _addition, _subtraction, _product, _chain))
    question, lines, result = make(rng)
    return text_exercise(f"{question} = ?\n", "\n".join([*lines, f"= {result}"]))


def digits_of(number: int) -> list[int]:
    """342 -> [2, 4, 3]"""
    return [int(digit) for digit in reversed(str(number))]


def _addition(rng: np.random.Generator) -> tuple[str, list[str], int]:
    """347 + 85: 7 + 5 + 0 = 12, then 4 + 8 + 1 = 13, then 3 + 0 + 1 = 4."""
    a, b = number_of_digits(rng, 4), number_of_digits(rng, 4)
    lines, carry = [], 0
    for x, y in itertools.zip_longest(digits_of(a), digits_of(b), fillvalue=0):
        total = x + y + carry
        lines.append(f"{x} + {y} + {carry} = {total}")
        carry = total // 10
    return f"{a} + {b}", lines, a + b


def _subtraction(rng: np.random.Generator) -> tuple[str, list[str], int]:
    """342 - 85: 12 - 5 - 0 = 7 borrows, then 14 - 8 - 1 = 5 borrows, then 3 - 0 - 1 = 2."""
    b, a = sorted((number_of_digits(rng, 4), number_of_digits(rng, 4)))
    lines, borrow = [], 0
    for x, y in itertools.zip_longest(digits_of(a), digits_of(b), fillvalue=0):
        top = x + 10 if x - y - borrow < 0 else x
        lines.append(f"{top} - {y} - {borrow} = {top - y - borrow}")
        borrow = int(top != x)
    return f"{a} - {b}", lines, a - b


def _product(rng: np.random.Generator) -> tuple[str, list[str], int]:
    """347 * 6: 7 * 6 + 0 = 42, then 4 * 6 + 4 = 28, then 3 * 6 + 2 = 20."""
    a, b = number_of_digits(rng, 3), integer(rng, 2, 9)
    lines, carry = [], 0
    for x in digits_of(a):
        total = x * b + carry
        lines.append(f"{x} * {b} + {carry} = {total}")
        carry = total // 10
    return f"{a} * {b}", lines, a * b


def _chain(rng: np.random.Generator) -> tuple[str, list[str], int]:
    """3 + 14 + 8: 3 + 14 = 17, then 17 + 8 = 25."""
    numbers = [integer(rng, 0, 20) for _ in range(integer(rng, 2, 5))]
    sums = list(itertools.accumulate(numbers))
    lines = [f"{s} + {n} = {t}" for s, n, t in zip(sums, numbers[1:], sums[1:])]
    return " + ".join(map(str, numbers)), lines, sums[-1]
