"""Puzzles: ages, sequences, Countdown, small Sudoku, liars, codes."""

import ast
from itertools import product
from typing import Any

import numpy as np

from agentrl_jax.envs.code.checks import Constraint, ItemSet, integers_of
from agentrl_jax.envs.code.problem import (
    Problem,
    draw,
    draw_list,
    number_problem,
    scaled,
    text_problem,
)
from agentrl_jax.syntax_trees import parse_expression

_PEOPLE = ("Ann", "Bob", "Cid", "Dan", "Eve", "Fay")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SQUARES = ((0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15))
_ROWS = tuple(tuple(range(4 * i, 4 * i + 4)) for i in range(4))
_COLUMNS = tuple(tuple(range(i, 16, 4)) for i in range(4))
SUDOKU_UNITS = (*_ROWS, *_COLUMNS, *_SQUARES)


def ages(rng: np.random.Generator, difficulty: float) -> Problem:
    """a = k b + d and a + b = s, by algebra."""
    b, k = draw(rng, 3, scaled(difficulty, 60, 900)), draw(rng, 1, scaled(difficulty, 2, 9))
    d = draw(rng, 1, 40)
    total = (k + 1) * b + d
    first, second = (_PEOPLE[i] for i in rng.permutation(len(_PEOPLE))[:2])
    program = f"print(next(b for b in range({total}) if {k} * b + {d} + b == {total}))"
    times = f"{d} more than {k} times as old as" if k > 1 else f"{d} years older than"
    return number_problem(
        f"{first} is {times} {second}, together they are {total}. How old is {second}?",
        (total - d) // (k + 1),
        program,
        "Try all ages.",
    )


def sequence(rng: np.random.Generator, difficulty: float) -> Problem:
    """A term of a sequence with x_n = a x_(n-1) + b x_(n-2) + c, by powers of its matrix."""
    high = scaled(difficulty, 2, 4)
    a, b, c = draw(rng, 1, high), draw(rng, 0, high), draw(rng, 0, 9)
    x, y = draw(rng, 0, 9), draw(rng, 1, 9)
    n = draw(rng, 5, scaled(difficulty, 8, 15))
    matrix = np.array([[a, b, c], [1, 0, 0], [0, 0, 1]], np.int64)
    answer = int((np.linalg.matrix_power(matrix, n - 2) @ np.array([y, x, 1]))[0])
    program = (
        f"x, y = {x}, {y}\nfor _ in range({n - 2}):\n    x, y = y, {a} * y + {b} * x + {c}\n"
        "print(y)"
    )
    return number_problem(
        f"A sequence begins {x}, {y}. Each later term is {a} times the last plus {b} times the "
        f"one before plus {c}. What is term {n}?",
        answer,
        program,
        "Go from term to term.",
    )


def _value_of(node: Any, numbers: list[int]) -> int:
    """The value of an expression of + - *; its numbers are collected."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        numbers.append(node.value)
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _value_of(node.left, numbers), _value_of(node.right, numbers)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
    raise ValueError("an expression has whole numbers, +, -, * and brackets")


def _makes(answer: str, values: tuple[int, ...], target: int) -> bool:
    numbers: list[int] = []
    try:
        value = _value_of(parse_expression(answer.strip()[:200]), numbers)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return value == target and sorted(numbers) == sorted(values)


def countdown(rng: np.random.Generator, difficulty: float) -> Problem:
    """An expression of all given numbers with a value."""
    values = draw_list(rng, scaled(difficulty, 3, 4), 1, scaled(difficulty, 12, 20))
    expression, target = str(values[0]), values[0]
    for value in values[1:]:
        sign = "+-*"[draw(rng, 0, 2)]
        expression = f"({expression}){sign}{value}" if sign == "*" else f"{expression}{sign}{value}"
        target = {"+": target + value, "-": target - value, "*": target * value}[sign]
    mixed = [values[i] for i in rng.permutation(len(values))]
    program = (
        "from itertools import permutations, product\n"
        f"for x in permutations({mixed}):\n"
        f"    for s in product('+-*', repeat={len(values) - 1}):\n"
        "        e = str(x[0])\n"
        "        for a, b in zip(s, x[1:]):\n            e = f'({e}){a}{b}'\n"
        f"        if eval(e) == {target}:\n            best = e\nprint(best)"
    )
    return Problem(
        f"Write {target} with each of {', '.join(map(str, mixed))} once, and + - * and brackets.",
        expression,
        program,
        Constraint(_makes, (tuple(values), target)),
        "Try all orders and signs.",
    )


def _fills(answer: str, puzzle: str) -> bool:
    cells = answer.replace(" ", "").replace("\n", "").strip()
    return (
        len(cells) == 16
        and all(clue in (".", cell) for clue, cell in zip(puzzle, cells))
        and all(sorted(cells[i] for i in unit) == list("1234") for unit in SUDOKU_UNITS)
    )


def small_sudoku(rng: np.random.Generator, difficulty: float) -> Problem:
    """A Sudoku of 4 by 4 cells, from a solved one with permuted digits, rows and columns."""
    rows = [2 * band + row for band in rng.permutation(2) for row in rng.permutation(2)]
    columns = [2 * band + column for band in rng.permutation(2) for column in rng.permutation(2)]
    digits = rng.permutation(4) + 1
    solved = "".join(
        str(digits[(2 * (row % 2) + row // 2 + column) % 4]) for row in rows for column in columns
    )
    blanks = set(rng.permutation(16)[: scaled(difficulty, 3, 8)].tolist())
    puzzle = "".join("." if i in blanks else cell for i, cell in enumerate(solved))
    program = (
        f"from itertools import product\np = '{puzzle}'\n"
        "units = [range(i, i + 4) for i in (0, 4, 8, 12)] + [range(i, 16, 4) for i in range(4)]\n"
        "units += [(i, i + 1, i + 4, i + 5) for i in (0, 2, 8, 10)]\n"
        "for c in product('1234', repeat=p.count('.')):\n"
        "    c = list(c)\n    s = [d if d != '.' else c.pop() for d in p]\n"
        "    if all(len({s[i] for i in u}) == 4 for u in units):\n        break\n"
        "print(''.join(s))"
    )
    listed = " ".join(puzzle[i : i + 4] for i in range(0, 16, 4))
    return Problem(
        f"Fill the Sudoku of 4 rows with 1 to 4: {listed}. Write its 16 digits.",
        solved,
        program,
        Constraint(_fills, (puzzle,)),
        "Try all digits.",
    )


def weekday(rng: np.random.Generator, difficulty: float) -> Problem:
    """The day of the week after some days, by stepping weeks and days."""
    start, days = draw(rng, 0, 6), draw(rng, 8, 10 ** scaled(difficulty, 3, 6))
    weeks = days // 7
    answer = _DAYS[(start + days - 7 * weeks) % 7]
    program = (
        f"days = '{' '.join(_DAYS)}'.split()\n"
        f"print(days[(days.index('{_DAYS[start]}') + {days}) % 7])"
    )
    return text_problem(
        f"Today is {_DAYS[start]}. Which day is in {days} days?", answer, program, "Use weeks."
    )


def liars(rng: np.random.Generator, difficulty: float) -> Problem:
    """Who lies, where each person says that another lies or that two are alike; one solution."""
    count = scaled(difficulty, 4, 6)
    names = _PEOPLE[:count]
    while True:
        truth = [bool(value) for value in rng.integers(2, size=count)]
        claims = []
        for i in range(count):
            first, second = (int(j) for j in rng.permutation(count)[:2])
            claims.append((first, second, (truth[first] == truth[second]) == truth[i]))
        solutions = [
            world
            for world in product((False, True), repeat=count)
            if all(
                world[i] == ((world[a] == world[b]) == alike)
                for i, (a, b, alike) in enumerate(claims)
            )
        ]
        if len(solutions) == 1:
            break
    items = [name for name, is_true in zip(names, truth) if not is_true]
    program = (
        f"from itertools import product\nnames = {list(names)}\nsays = {claims}\n"
        f"for w in product((0, 1), repeat={count}):\n"
        "    if all(w[i] == ((w[a] == w[b]) == s) for i, (a, b, s) in enumerate(says)):\n"
        "        print(' '.join(n for n, t in zip(names, w) if not t) or 'none')"
    )
    listed = " ".join(
        f"{names[i]}: {names[a]} and {names[b]} are {'alike' if alike else 'different'}."
        for i, (a, b, alike) in enumerate(claims)
    )
    return Problem(
        f"Each person always lies or never does. {listed} Who lies? If nobody does, answer none.",
        ", ".join(items) or "none",
        program,
        ItemSet(frozenset(items)),
        "Try all worlds.",
    )


def _clue(guess: str, code: str) -> tuple[int, int]:
    """Digits at their place, and right digits elsewhere."""
    hits = sum(a == b for a, b in zip(guess, code))
    return hits, sum(digit in code for digit in guess) - hits


def _is_consistent(answer: str, clues: tuple[tuple[str, tuple[int, int]], ...]) -> bool:
    code, size = answer.strip(), len(clues[0][0])
    is_code = len(code) == size and set(code) <= set("123456789") and len(set(code)) == size
    return is_code and all(_clue(guess, code) == clue for guess, clue in clues)


def bulls_and_cows(rng: np.random.Generator, difficulty: float) -> Problem:
    """A code that fits all clues."""
    size = scaled(difficulty, 2, 4)

    def random_code() -> str:
        return "".join(str(digit) for digit in rng.permutation(np.arange(1, 10))[:size])

    code = random_code()
    clues = tuple((guess, _clue(guess, code)) for guess in (random_code() for _ in range(3)))
    program = (
        f"from itertools import permutations\nclues = {clues}\n"
        f"for c in permutations('123456789', {size}):\n"
        "    for g, (hits, near) in clues:\n"
        "        a = sum(x == y for x, y in zip(g, c))\n"
        "        if (a, sum(x in c for x in g) - a) != (hits, near):\n            break\n"
        "    else:\n        print(''.join(c))\n        break"
    )
    listed = "; ".join(f"{guess} has {hits} and {near}" for guess, (hits, near) in clues)
    return Problem(
        f"Name a code of {size} different digits from 1 to 9 that fits. A guess has so many "
        f"digits at their place, and so many elsewhere: {listed}.",
        code,
        program,
        Constraint(_is_consistent, (clues,)),
        "Try all codes.",
    )


def _turns_off(answer: str, lights: tuple[int, ...]) -> bool:
    state = list(lights)
    presses = integers_of(answer)
    if not all(1 <= press <= len(state) for press in presses):
        return False
    for press in presses:
        for place in range(max(press - 2, 0), min(press + 1, len(state))):
            state[place] ^= 1
    return bool(presses) and not any(state)


def lights_out(rng: np.random.Generator, difficulty: float) -> Problem:
    """Buttons in a row, each of which toggles its light and the two beside it."""
    count = scaled(difficulty, 9, 14)
    presses = sorted((rng.permutation(count)[: draw(rng, 2, count - 2)] + 1).tolist())
    lights = [0] * count
    for press in presses:
        for place in range(max(press - 2, 0), min(press + 1, count)):
            lights[place] ^= 1
    if not any(lights):
        return lights_out(rng, difficulty)
    row = "".join(map(str, lights))
    program = (
        f"from itertools import product\nrow = {lights}\n"
        f"for p in product((0, 1), repeat={count}):\n    q = (0, *p, 0)\n"
        f"    if all((q[i] + q[i + 1] + q[i + 2]) % 2 == row[i] for i in range({count})):\n"
        "        break\nprint(*(i + 1 for i, x in enumerate(p) if x))"
    )
    return Problem(
        f"Lights: {row}. Button i toggles light i and its neighbors, from 1 to {count}. Which "
        "buttons turn all lights off?",
        " ".join(map(str, presses)),
        program,
        Constraint(_turns_off, (tuple(lights),)),
        "Try all buttons.",
    )
