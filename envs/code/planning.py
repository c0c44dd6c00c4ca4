"""Problems of plans and constraints; any solution that keeps them is right."""

from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from agentrl_jax.envs.code.checks import Constraint, integers_of, items_of
from agentrl_jax.envs.code.problem import Problem, draw, draw_list, number_problem, scaled

_NAMES = "ABCDEFGHIJ"
Edges = tuple[tuple[str, str], ...]


def _is_best_load(
    answer: str, items: tuple[tuple[str, int, int], ...], limit: int, best: int
) -> bool:
    chosen = items_of(answer)
    loads = [(weight, value) for name, weight, value in items if name in chosen]
    is_valid = len(set(chosen)) == len(chosen) == len(loads)
    return (
        is_valid
        and sum(weight for weight, _ in loads) <= limit
        and sum(value for _, value in loads) == best
    )


def knapsack(rng: np.random.Generator, difficulty: float) -> Problem:
    """The most valuable load, by dynamic programming over weights."""
    count = scaled(difficulty, 4, 9)
    weights, values = draw_list(rng, count, 1, 9), draw_list(rng, count, 1, 20)
    limit = draw(rng, max(weights), max(max(weights), sum(weights) - 1))
    best: list[tuple[int, str]] = [(0, "")] * (limit + 1)
    for name, weight, value in zip(_NAMES, weights, values):
        for room in range(limit, weight - 1, -1):
            before, names = best[room - weight]
            best[room] = max(best[room], (before + value, names + name))
    items = tuple(zip(_NAMES, weights, values))
    program = (
        "from itertools import product\n"
        f"w, v = {weights}, {values}\n"
        "loads = [m for m in product((0, 1), repeat=len(w))\n"
        f"    if sum(a * b for a, b in zip(w, m)) <= {limit}]\n"
        "m = max(loads, key=lambda m: sum(a * b for a, b in zip(v, m)))\n"
        f"print(' '.join(c for c, k in zip('{_NAMES}', m) if k))"
    )
    listed = "; ".join(f"{name} {weight} kg {value} $" for name, weight, value in items)
    return Problem(
        f"Which things of at most {limit} kg in all are worth most? {listed}",
        " ".join(best[limit][1]),
        program,
        Constraint(_is_best_load, (items, limit, best[limit][0])),
        "Try all choices.",
    )


def _is_order(answer: str, names: str, rules: Edges) -> bool:
    order = items_of(answer)
    return sorted(order) == sorted(names) and all(
        order.index(first) < order.index(second) for first, second in rules
    )


def task_order(rng: np.random.Generator, difficulty: float) -> Problem:
    """An order of tasks that keeps all rules."""
    count = scaled(difficulty, 4, 7)
    names = _NAMES[:count]
    hidden = [names[i] for i in rng.permutation(count)]
    possible = list(combinations(hidden, 2))
    chosen = sorted(rng.permutation(len(possible))[: draw(rng, count - 1, count + 2)])
    rules = tuple(possible[i] for i in rng.permutation(chosen))
    program = (
        f"from itertools import permutations\nrules = {list(map(''.join, rules))}\n"
        f"print(' '.join(next(p for p in permutations('{names}')\n"
        "    if all(p.index(a) < p.index(b) for a, b in rules))))"
    )
    listed = ", ".join(f"{first} before {second}" for first, second in rules)
    return Problem(
        f"Order the tasks {' '.join(names)}: {listed}.",
        " ".join(hidden),
        program,
        Constraint(_is_order, (names, rules)),
        "Try all orders.",
    )


def _is_payment(answer: str, coins: tuple[int, ...], amount: int, fewest: int) -> bool:
    paid = integers_of(answer)
    return set(paid) <= set(coins) and sum(paid) == amount and len(paid) == fewest


def fewest_coins(rng: np.random.Generator, difficulty: float) -> Problem:
    """The fewest coins of an amount, by dynamic programming."""
    coins = (1, *sorted(int(c) for c in rng.permutation(np.arange(3, 30))[:3]))
    amount = draw(rng, 15, scaled(difficulty, 60, 200))
    best: list[list[int]] = [[]]
    for total in range(1, amount + 1):
        options = [[*best[total - coin], coin] for coin in coins if coin <= total]
        best.append(min(options, key=len))
    program = (
        f"from itertools import combinations_with_replacement as choices\nk = 1\n"
        f"while True:\n    x = [c for c in choices({coins[::-1]}, k) if sum(c) == {amount}]\n"
        "    if x:\n        break\n    k += 1\nprint(*x[0])"
    )
    return Problem(
        f"Pay {amount} with the fewest coins of {', '.join(map(str, coins))}. Which coins?",
        " ".join(map(str, best[amount])),
        program,
        Constraint(_is_payment, (coins, amount, len(best[amount]))),
        "Try one coin, two coins and so on.",
    )


def _is_shortest_path(answer: str, edges: Edges, goal: str, length: int) -> bool:
    path = items_of(answer.replace("-", " ").replace(">", " "))
    steps = set(edges) | {(second, first) for first, second in edges}
    return (
        len(path) == length
        and path[0] == "A"
        and path[-1] == goal
        and all(step in steps for step in pairwise(path))
    )


def shortest_path(rng: np.random.Generator, difficulty: float) -> Problem:
    """A shortest way through roads, by breadth-first search."""
    count = scaled(difficulty, 5, 9)
    names = _NAMES[:count]
    tree = [(names[draw(rng, 0, i - 1)], names[i]) for i in range(1, count)]
    rest = [pair for pair in combinations(names, 2) if pair not in tree]
    extra = [rest[i] for i in rng.permutation(len(rest))[: draw(rng, 1, 3)]]
    edges = tuple((tree + extra)[i] for i in rng.permutation(len(tree) + len(extra)))
    paths, frontier = {"A": "A"}, ["A"]
    while frontier:
        node = frontier.pop(0)
        for pair in edges:
            if node in pair:
                other = pair[pair[0] == node]
                if other not in paths:
                    paths[other] = paths[node] + other
                    frontier.append(other)
    goal = max(paths, key=lambda name: (len(paths[name]), name))
    program = (
        f"roads = {list(map(''.join, edges))}\npaths = ['A']\n"
        f"while not any(p[-1] == '{goal}' for p in paths):\n"
        "    paths = [p + c for p in paths for r in roads for c in r\n"
        "        if p[-1] in r and c not in p]\n"
        f"print(*next(p for p in paths if p[-1] == '{goal}'))"
    )
    return Problem(
        f"Roads: {' '.join(map(''.join, edges))}. Name the places of a shortest way from A to "
        f"{goal}.",
        " ".join(paths[goal]),
        program,
        Constraint(_is_shortest_path, (edges, goal, len(paths[goal]))),
        "Extend all ways by a road.",
    )


def _is_number_with(answer: str, low: int, high: int, divisor: int, total: int) -> bool:
    numbers = integers_of(answer)
    return len(numbers) == 1 and _keeps(numbers[0], low, high, divisor, total)


def _keeps(n: int, low: int, high: int, divisor: int, total: int) -> bool:
    return low <= n <= high and n % divisor == 0 and sum(map(int, str(n))) == total


def number_with(rng: np.random.Generator, difficulty: float) -> Problem:
    """A number in a range with a divisor and a digit sum."""
    n, divisor = draw(rng, 20, 10 ** scaled(difficulty, 3, 5)), draw(rng, 3, 19)
    n += -n % divisor
    total = sum(map(int, str(n)))
    low, high = n - draw(rng, 1, n // 2), n + draw(rng, 1, n // 2)
    data = (low, high, divisor, total)
    program = (
        f"print(next(n for n in range({low}, {high} + 1)\n"
        f"    if n % {divisor} == 0 and sum(map(int, str(n))) == {total}))"
    )
    return Problem(
        f"Name a number from {low} to {high} that {divisor} divides, with the digit sum {total}.",
        str(n),
        program,
        Constraint(_is_number_with, data),
        "Try all numbers.",
    )


def _is_half(answer: str, values: tuple[int, ...]) -> bool:
    chosen, left = integers_of(answer), list(values)
    for value in chosen:
        if value not in left:
            return False
        left.remove(value)
    return bool(chosen) and sum(chosen) == sum(left)


def halves(rng: np.random.Generator, difficulty: float) -> Problem:
    """Numbers whose sum is that of the others."""
    first = draw_list(rng, scaled(difficulty, 2, 5), 4, scaled(difficulty, 15, 40))
    second = draw_list(rng, scaled(difficulty, 2, 5), 2, 6)
    second[-1] += max(0, sum(first) - sum(second))
    first[-1] += sum(second) - sum(first)
    values = [(first + second)[i] for i in rng.permutation(len(first) + len(second))]
    program = (
        f"from itertools import combinations\nx = {values}\n"
        "print(*next(c for k in range(1, len(x)) for c in combinations(x, k)\n"
        "    if 2 * sum(c) == sum(x)))"
    )
    return Problem(
        f"Choose some of {', '.join(map(str, values))} whose sum is that of the others.",
        " ".join(map(str, first)),
        program,
        Constraint(_is_half, (tuple(values),)),
        "Try all choices.",
    )


def free_hour(rng: np.random.Generator, difficulty: float) -> Problem:
    """The first hour at which nobody is busy, by marking hours."""
    starts = draw_list(rng, scaled(difficulty, 3, 8), 8, 16)
    busy = [(start, start + draw(rng, 1, 4)) for start in starts]
    hours = np.zeros(24, bool)
    for start, end in busy:
        hours[start:end] = True
    program = (
        f"busy = {busy}\n"
        "print(next(h for h in range(8, 24) if not any(a <= h < b for a, b in busy)))"
    )
    listed = ", ".join(f"{start}-{end}" for start, end in busy)
    return number_problem(
        f"Busy: {listed}. At which full hour from 8 on does the first free hour begin?",
        8 + int(np.argmin(hours[8:])),
        program,
        "Try all hours.",
    )


def _is_coloring(answer: str, names: str, edges: Edges) -> bool:
    colors: Any = items_of(answer)
    if len(colors) != len(names) or not set(colors) <= {"1", "2", "3"}:
        return False
    by_name = dict(zip(names, colors))
    return all(by_name[first] != by_name[second] for first, second in edges)


def coloring(rng: np.random.Generator, difficulty: float) -> Problem:
    """Three colours for places, different ones at the two ends of a border."""
    count = scaled(difficulty, 5, 8)
    names, hidden = _NAMES[:count], [0]
    while len(set(hidden)) < 3:
        hidden = draw_list(rng, count, 1, 3)
    color = dict(zip(names, hidden))
    possible = [pair for pair in product(names, names) if pair[0] < pair[1]]
    possible = [pair for pair in possible if color[pair[0]] != color[pair[1]]]
    chosen = rng.permutation(len(possible))[: draw(rng, count - 1, count + 4)]
    edges = tuple(possible[i] for i in chosen)
    program = (
        f"from itertools import product\nborders = {list(map(''.join, edges))}\n"
        f"for c in product('123', repeat={count}):\n"
        f"    color = dict(zip('{names}', c))\n"
        "    if all(color[a] != color[b] for a, b in borders):\n        break\nprint(*c)"
    )
    return Problem(
        f"Give each of {' '.join(names)} a color 1, 2 or 3, neighbors different colors: "
        f"{' '.join(map(''.join, edges))}. Name the colors in order.",
        " ".join(map(str, hidden)),
        program,
        Constraint(_is_coloring, (names, edges)),
        "Try all colors.",
    )
