"""Problems of whole numbers and their digits."""

import math

import numpy as np

from agentrl_jax.envs.code.checks import Constraint, UnitTests, integers_of
from agentrl_jax.envs.code.problem import (
    Problem,
    draw,
    draw_list,
    number_problem,
    scaled,
    text_problem,
)


def product(rng: np.random.Generator, difficulty: float) -> Problem:
    """a b, by the schoolbook's partial products."""
    a = draw(rng, 11, 10 ** scaled(difficulty, 2, 4) - 1)
    b = draw(rng, 2, 10 ** scaled(difficulty, 1, 4) - 1)
    answer = sum(int(digit) * a * 10**place for place, digit in enumerate(reversed(str(b))))
    return number_problem(f"What is {a} * {b}?", answer, f"print({a} * {b})", "Multiply.")


def power_remainder(rng: np.random.Generator, difficulty: float) -> Problem:
    """a^b mod m, by squaring."""
    a, b = draw(rng, 2, 30), draw(rng, 3, scaled(difficulty, 12, 400))
    m = draw(rng, 5, scaled(difficulty, 30, 999))
    return number_problem(
        f"What is the remainder of {a} ** {b} divided by {m}?",
        pow(a, b, m),
        f"print({a} ** {b} % {m})",
        "Take the power and its remainder.",
    )


def common_divisor(rng: np.random.Generator, difficulty: float) -> Problem:
    """gcd(a, b), by Euclid."""
    high = 10 ** scaled(difficulty, 1, 3)
    divisor = draw(rng, 2, scaled(difficulty, 9, 60))
    a, b = (divisor * draw(rng, 2, high + 10) for _ in range(2))
    program = f"a, b = {a}, {b}\nprint(max(d for d in range(1, a + 1) if a % d == b % d == 0))"
    return number_problem(
        f"What is the greatest common divisor of {a} and {b}?",
        math.gcd(a, b),
        program,
        "Try all divisors.",
    )


def digit_sum(rng: np.random.Generator, difficulty: float) -> Problem:
    """The sum of the digits of a^b, by division."""
    a, b = draw(rng, 2, 99), draw(rng, 2, scaled(difficulty, 12, 60))
    rest, answer = a**b, 0
    while rest:
        rest, digit = divmod(rest, 10)
        answer += digit
    return number_problem(
        f"What is the sum of the digits of {a} ** {b}?",
        answer,
        f"print(sum(map(int, str({a} ** {b}))))",
        "Add the digits of the power.",
    )


def divisor_count(rng: np.random.Generator, difficulty: float) -> Problem:
    """The number of divisors, by the exponents of the primes."""
    n = draw(rng, 10, 10 ** scaled(difficulty, 3, 5))
    answer, rest, prime = 1, n, 2
    while rest > 1:
        exponent = 0
        while rest % prime == 0:
            rest, exponent = rest // prime, exponent + 1
        answer, prime = answer * (exponent + 1), prime + 1
    return number_problem(
        f"How many divisors has {n}?",
        answer,
        f"n = {n}\nprint(sum(n % d == 0 for d in range(1, n + 1)))",
        "Count the divisors.",
    )


def next_primes(rng: np.random.Generator, difficulty: float) -> Problem:
    """The k-th prime above n, by a sieve."""
    n, k = draw(rng, 10, 10 ** scaled(difficulty, 2, 4)), draw(rng, 1, scaled(difficulty, 5, 9))
    size = n + 400
    sieve = np.ones(size, bool)
    sieve[:2] = False
    for d in range(2, math.isqrt(size) + 1):
        sieve[d * d :: d] = False
    answer = int(np.flatnonzero(sieve[n + 1 :])[k - 1]) + n + 1
    program = (
        f"n, left = {n}, {k}\nwhile left:\n    n += 1\n"
        "    left -= all(n % d for d in range(2, n))\nprint(n)"
    )
    return number_problem(
        f"Which is prime number {k} of those above {n}?", answer, program, "Try one after another."
    )


def mean(rng: np.random.Generator, difficulty: float) -> Problem:
    """The mean of a list, to two decimals."""
    values = draw_list(rng, scaled(difficulty, 3, 9), 1, 10 ** scaled(difficulty, 2, 4))
    program = f"x = {values}\nprint(round(sum(x) / len(x), 2))"
    question = f"What is the mean of {', '.join(map(str, values))}, to two decimals?"
    answer = float(np.mean(np.asarray(values, np.float64)))
    return number_problem(question, answer, program, "Divide the sum.", tolerance=0.005)


def base_digits(rng: np.random.Generator, difficulty: float) -> Problem:
    """n in base b, from the highest digit on."""
    n, base = draw(rng, 10, 10 ** scaled(difficulty, 3, 6)), draw(rng, 2, 9)
    answer, rest = "", n
    for power in range(int(math.log(n, base)) + 1, -1, -1):
        digit, rest = divmod(rest, base**power)
        answer += str(digit)
    program = (
        f"n, text = {n}, ''\nwhile n:\n    text = str(n % {base}) + text\n    n //= {base}\n"
        "print(text)"
    )
    return text_problem(
        f"Write {n} in base {base}.", answer.lstrip("0"), program, "Divide again and again."
    )


def two_numbers(rng: np.random.Generator, difficulty: float) -> Problem:
    """Two numbers of a sum and a product, by the square root of the discriminant."""
    low, high = sorted(draw_list(rng, 2, 2, 10 ** scaled(difficulty, 2, 3)))
    total, area = low + high, low * high
    gap = round((total * total - 4 * area) ** 0.5)
    first, second = (total - gap) // 2, (total + gap) // 2
    program = (
        f"print(*next((a, {total} - a) for a in range({total}) if a * ({total} - a) == {area}))"
    )
    return Problem(
        f"Which two numbers have the sum {total} and the product {area}?",
        f"{first} {second}",
        program,
        Constraint(_has_sum_and_product, (total, area)),
        "Try all numbers.",
    )


def _has_sum_and_product(answer: str, total: int, area: int) -> bool:
    numbers = integers_of(answer)
    return len(numbers) == 2 and sum(numbers) == total and numbers[0] * numbers[1] == area


def modular_inverse(rng: np.random.Generator, difficulty: float) -> Problem:
    """x with a x = 1 mod m, by extended Euclid."""
    while True:
        m = draw(rng, 20, 10 ** scaled(difficulty, 2, 4))
        a = draw(rng, 2, m - 1)
        if math.gcd(a, m) == 1:
            break
    program = f"print(next(x for x in range(1, {m}) if {a} * x % {m} == 1))"
    return number_problem(
        f"Which x from 1 to {m - 1} has the remainder 1 when {a} * x is divided by {m}?",
        pow(a, -1, m),
        program,
        "Try all x.",
    )


def collatz_steps(rng: np.random.Generator, difficulty: float) -> Problem:
    """How often a number is halved, or tripled and raised by one, until it is 1."""
    n = draw(rng, 3, 10 ** scaled(difficulty, 3, 6))
    steps, rest = 0, n
    while rest != 1:
        odd = rest & 1
        rest = (3 * rest + 1) >> 1 if odd else rest >> 1
        steps += 1 + odd
    program = (
        f"n, steps = {n}, 0\nwhile n > 1:\n    n = 3 * n + 1 if n % 2 else n // 2\n"
        "    steps += 1\nprint(steps)"
    )
    return number_problem(
        f"Halve an even number; else multiply by 3 and add 1. How many steps from {n} to 1?",
        steps,
        program,
        "Follow the steps.",
    )


def sum_of_multiples(rng: np.random.Generator, difficulty: float) -> Problem:
    """A function of n: the sum of the multiples of a or b below n."""
    a, b = draw(rng, 2, scaled(difficulty, 40, 90)), draw(rng, 2, scaled(difficulty, 40, 90))

    def triangle(step: int, n: int) -> int:
        count = (n - 1) // step
        return step * count * (count + 1) // 2

    sizes = draw_list(rng, 5, 1, 300)
    cases = tuple(
        ((n,), triangle(a, n) + triangle(b, n) - triangle(math.lcm(a, b), n)) for n in sizes
    )
    program = f"def f(n):\n    return sum(k for k in range(n) if k % {a} == 0 or k % {b} == 0)"
    question = (
        f"Write a Python function f(n): the sum of the numbers below n that {a} or {b} divides."
    )
    return Problem(question, program, program, UnitTests(cases), "Add those of a range.")
