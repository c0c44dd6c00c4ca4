"""`Problem`: a question with a computed answer, a program that finds it, and a check of answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.envs.code.checks import Check, ExactText, NumberCheck

# A generator draws a problem of a difficulty from 0 to 1.
ProblemGenerator = Callable[[np.random.Generator, float], "Problem"]


@dataclass(frozen=True)
class Problem:
    """A question, and what is known about its answer.

    Args:
        question: what the agent reads.
        answer: a right answer, computed in another way than by the program.
        program: Python code that prints a right answer; where code is the answer, that code.
        check: whether an answer is right.
        thought: how a person would begin.
        files: in the folder where code runs; they need a session that is replayed.
        prelude: code that runs before the agent's.
        look: code by which a person would first look at the files.
    """

    question: str
    answer: str
    program: str
    check: Check
    thought: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    prelude: str = ""
    look: str = ""


def number_problem(
    question: str, answer: float, program: str, thought: str, tolerance: float = 0.0
) -> Problem:
    """A problem whose answer is a number, right within a relative tolerance."""
    text = str(answer) if isinstance(answer, int) else f"{answer:.2f}"
    return Problem(question, text, program, NumberCheck(answer, tolerance), thought)


def text_problem(question: str, answer: str, program: str, thought: str) -> Problem:
    """A problem whose answer is one text."""
    return Problem(question, answer, program, ExactText(answer), thought)


def draw(rng: np.random.Generator, low: int, high: int) -> int:
    """A uniform integer from `low` to `high`, both included."""
    return int(rng.integers(low, high + 1))


def draw_list(rng: np.random.Generator, count: int, low: int, high: int) -> list[int]:
    """Uniform integers from `low` to `high`, both included."""
    return [int(value) for value in rng.integers(low, high + 1, size=count)]


def scaled(difficulty: float, easiest: int, hardest: int) -> int:
    """An integer between that of difficulty 0 and that of difficulty 1."""
    return round(easiest + difficulty * (hardest - easiest))
