"""Problems of counting and combinatorics."""

import math
from collections import Counter
from functools import cache
from itertools import combinations

import numpy as np

from agentrl_jax.envs.code.checks import UnitTests
from agentrl_jax.envs.code.problem import Problem, draw, draw_list, number_problem, scaled
from agentrl_jax.envs.code.strings import draw_letters


def multiples(rng: np.random.Generator, difficulty: float) -> Problem:
    """Numbers that a or b divides, by inclusion and exclusion."""
    n = draw(rng, 20, 10 ** scaled(difficulty, 2, 5))
    a, b = draw(rng, 2, 15), draw(rng, 2, 15)
    return number_problem(
        f"How many numbers from 1 to {n} are multiples of {a} or {b}?",
        n // a + n // b - n // math.lcm(a, b),
        f"print(sum(k % {a} == 0 or k % {b} == 0 for k in range(1, {n} + 1)))",
        "Count them.",
    )


def pairs(rng: np.random.Generator, difficulty: float) -> Problem:
    """Pairs with a sum, by the numbers' frequencies."""
    values = draw_list(rng, scaled(difficulty, 5, 16), 1, scaled(difficulty, 9, 25))
    first, second = rng.permutation(len(values))[:2]
    total = values[first] + values[second]
    seen: Counter[int] = Counter()
    answer = 0
    for value in values:
        answer += seen[total - value]
        seen[value] += 1
    program = (
        f"from itertools import combinations\n"
        f"print(sum(a + b == {total} for a, b in combinations({values}, 2)))"
    )
    return number_problem(
        f"How many pairs of {', '.join(map(str, values))} have the sum {total}?",
        answer,
        program,
        "Try all pairs.",
    )


def subsets(rng: np.random.Generator, difficulty: float) -> Problem:
    """Subsets with a sum, by dynamic programming."""
    values = draw_list(rng, scaled(difficulty, 5, 12), 1, scaled(difficulty, 12, 40))
    total = sum(values[: draw(rng, 2, len(values) - 1)])
    ways = [1] + [0] * total
    for value in values:
        for part in range(total, value - 1, -1):
            ways[part] += ways[part - value]
    program = (
        f"from itertools import product\nx = {values}\n"
        "print(sum(sum(a * b for a, b in zip(x, m)) == "
        f"{total} for m in product((0, 1), repeat=len(x))))"
    )
    return number_problem(
        f"In how many ways can some of {', '.join(map(str, values))} have the sum {total}? "
        "Equal numbers at different places count apart.",
        ways[total],
        program,
        "Try all subsets.",
    )


def grid_paths(rng: np.random.Generator, difficulty: float) -> Problem:
    """Monotone paths that avoid a cell: all of them, without those through it."""
    high = scaled(difficulty, 7, 10)
    width, height = draw(rng, 3, high), draw(rng, 3, high)
    x, y = draw(rng, 0, width), draw(rng, 0, height)
    if (x, y) in ((0, 0), (width, height)):
        x, y = 1, 1
    through = math.comb(x + y, x) * math.comb(width - x + height - y, width - x)
    program = (
        "def paths(x, y):\n"
        f"    if x < 0 or y < 0 or (x, y) == ({x}, {y}):\n        return 0\n"
        "    return 1 if x == y == 0 else paths(x - 1, y) + paths(x, y - 1)\n"
        f"print(paths({width}, {height}))"
    )
    return number_problem(
        f"How many paths lead from (0, 0) to ({width}, {height}) by steps of 1 to the right or "
        f"up, and not over ({x}, {y})?",
        math.comb(width + height, width) - through,
        program,
        "Add the paths of both steps.",
    )


def arrangements(rng: np.random.Generator, difficulty: float) -> Problem:
    """Distinct arrangements of letters: n! over the factorials of their numbers."""
    word = draw_letters(rng, draw(rng, 4, scaled(difficulty, 6, 8)), "abcde")
    answer = math.factorial(len(word))
    for count in Counter(word).values():
        answer //= math.factorial(count)
    return number_problem(
        f"How many different words have the letters of {word}?",
        answer,
        f"from itertools import permutations\nprint(len(set(permutations('{word}'))))",
        "Collect the permutations.",
    )


def change(rng: np.random.Generator, difficulty: float) -> Problem:
    """Ways to pay an amount, by dynamic programming."""
    coins = sorted({int(c) for c in rng.permutation(np.arange(2, 12))[: scaled(difficulty, 2, 4)]})
    amount = draw(rng, 20, scaled(difficulty, 60, 150))
    ways = [1] + [0] * amount
    for coin in coins:
        for part in range(coin, amount + 1):
            ways[part] += ways[part - coin]
    program = (
        "def ways(rest, coins):\n    if not coins:\n        return rest == 0\n"
        "    return sum(ways(rest - k, coins[1:]) for k in range(0, rest + 1, coins[0]))\n"
        f"print(int(ways({amount}, {coins})))"
    )
    return number_problem(
        f"In how many ways can {amount} be paid with coins of {', '.join(map(str, coins))}?",
        ways[amount],
        program,
        "Take each coin some times.",
    )


def dice(rng: np.random.Generator, difficulty: float) -> Problem:
    """Rolls of dice with a sum, by convolution."""
    sides = sorted(draw_list(rng, draw(rng, 2, scaled(difficulty, 3, 5)), 3, 12))
    total = draw(rng, len(sides) + 1, sum(sides) - 1)
    counts = np.ones(1, np.int64)
    for side in sides:
        counts = np.convolve(counts, np.ones(side, np.int64))
    program = (
        f"from itertools import product\nsides = {sides}\n"
        f"print(sum(sum(r) == {total} for r in product(*(range(1, s + 1) for s in sides))))"
    )
    return number_problem(
        f"Dice have {', '.join(map(str, sides))} sides. How many rolls have the sum {total}?",
        int(counts[total - len(sides)]),
        program,
        "Try all rolls.",
    )


def numbers_with_digit_sum(rng: np.random.Generator, difficulty: float) -> Problem:
    """Numbers up to n whose digits have a sum, digit by digit."""
    n, total = draw(rng, 50, 10 ** scaled(difficulty, 3, 5)), draw(rng, 3, 18)
    digits = tuple(map(int, str(n)))

    @cache
    def count(place: int, rest: int, is_free: bool) -> int:
        if rest < 0:
            return 0
        if place == len(digits):
            return int(rest == 0)
        top = 9 if is_free else digits[place]
        return sum(count(place + 1, rest - d, is_free or d < top) for d in range(top + 1))

    return number_problem(
        f"How many numbers from 1 to {n} have the digit sum {total}?",
        count(0, total, False),
        f"print(sum(sum(map(int, str(k))) == {total} for k in range(1, {n} + 1)))",
        "Try all numbers.",
    )


def inversions(rng: np.random.Generator, difficulty: float) -> Problem:
    """Pairs in the wrong order, by insertion."""
    values = draw_list(rng, scaled(difficulty, 5, 25), 1, 99)
    ordered: list[int] = []
    answer = 0
    for value in values:
        place = sum(other <= value for other in ordered)
        answer += len(ordered) - place
        ordered.insert(place, value)
    program = (
        f"x = {values}\n"
        "print(sum(x[i] > x[j] for i in range(len(x)) for j in range(i + 1, len(x))))"
    )
    return number_problem(
        f"In how many pairs of {', '.join(map(str, values))} is the earlier number larger?",
        answer,
        program,
        "Try all pairs.",
    )


def combinations_with_remainder(rng: np.random.Generator, difficulty: float) -> Problem:
    """A function of a list: how many choices of its numbers have a sum with a remainder."""
    m, size = draw(rng, 5, scaled(difficulty, 60, 99)), draw(rng, 2, 3)
    rest = draw(rng, 0, m - 1)
    lists = [draw_list(rng, 7, 1, 60) for _ in range(4)]
    lists[0][:size] = [m, rest or m] + [m] * (size - 2)
    cases = tuple(
        ((tuple(values),), sum(sum(c) % m == rest for c in combinations(values, size)))
        for values in lists
    )
    program = (
        "from itertools import combinations\n"
        f"def f(x):\n    return sum(sum(c) % {m} == {rest} for c in combinations(x, {size}))"
    )
    question = (
        f"Write a Python function f(x): how many choices of {size} numbers of the list x, those at "
        f"different places apart, have a sum with the remainder {rest} when divided by {m}."
    )
    return Problem(question, program, program, UnitTests(cases), "Use combinations.")
