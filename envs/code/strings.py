"""Problems of letters and words."""

from collections import Counter

import numpy as np

from agentrl_jax.envs.code.checks import ItemSet, UnitTests
from agentrl_jax.envs.code.problem import Problem, draw, number_problem, scaled, text_problem

_CONSONANTS, _VOWELS = "bcdfghklmnprstvz", "aeiou"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def draw_word(rng: np.random.Generator, length: int) -> str:
    """Consonants and vowels in turn."""
    letters = (_CONSONANTS, _VOWELS)
    return "".join(letters[i % 2][int(rng.integers(len(letters[i % 2])))] for i in range(length))


def draw_letters(rng: np.random.Generator, length: int, letters: str) -> str:
    return "".join(letters[i] for i in rng.integers(len(letters), size=length))


def _word(rng: np.random.Generator, difficulty: float) -> str:
    return draw_word(rng, draw(rng, scaled(difficulty, 4, 10), scaled(difficulty, 6, 20)))


def backwards(rng: np.random.Generator, difficulty: float) -> Problem:
    """A word from its last letter to its first."""
    word, answer = _word(rng, difficulty), ""
    for letter in word:
        answer = letter + answer
    return text_problem(f"Write {word} backwards.", answer, f"print('{word}'[::-1])", "Slice it.")


def letter_count(rng: np.random.Generator, difficulty: float) -> Problem:
    """How often a letter is in a word."""
    word = draw_letters(rng, scaled(difficulty, 6, 40), "aeinst")
    letter = word[draw(rng, 0, len(word) - 1)]
    return number_problem(
        f"How often is the letter {letter} in {word}?",
        Counter(word)[letter],
        f"print('{word}'.count('{letter}'))",
        "Count it.",
    )


def shifted_letters(rng: np.random.Generator, difficulty: float) -> Problem:
    """Caesar's cipher."""
    word, shift = _word(rng, difficulty), draw(rng, 1, 25)
    table = str.maketrans(_ALPHABET, _ALPHABET[shift:] + _ALPHABET[:shift])
    program = f"print(''.join(chr((ord(c) - 97 + {shift}) % 26 + 97) for c in '{word}'))"
    return text_problem(
        f"Move each letter of {word} by {shift} in the alphabet, from z on to a.",
        word.translate(table),
        program,
        "Move the codes.",
    )


def sorted_letters(rng: np.random.Generator, difficulty: float) -> Problem:
    """The letters of a word from a to z."""
    word = _word(rng, difficulty)
    counts = Counter(word)
    answer = "".join(letter * counts[letter] for letter in _ALPHABET)
    program = f"print(''.join(sorted('{word}')))"
    return text_problem(f"Sort the letters of {word} from a to z.", answer, program, "Sort them.")


def longest_run(rng: np.random.Generator, difficulty: float) -> Problem:
    """The most equal letters in a row."""
    word = draw_letters(rng, scaled(difficulty, 12, 60), "ab")
    answer = max(map(len, word.replace("ab", "a b").replace("ba", "b a").split()))
    program = (
        f"best, run, last = 0, 0, ''\nfor c in '{word}':\n"
        "    run = run + 1 if c == last else 1\n    best, last = max(best, run), c\nprint(best)"
    )
    return number_problem(
        f"How many equal letters are in a row in {word}, at most?", answer, program, "Go along."
    )


def without_letter(rng: np.random.Generator, difficulty: float) -> Problem:
    """A word without one of its letters."""
    word = _word(rng, difficulty)
    letter = word[draw(rng, 0, len(word) - 1)]
    return text_problem(
        f"Write {word} without the letter {letter}.",
        "".join(c for c in word if c != letter),
        f"print('{word}'.replace('{letter}', ''))",
        "Replace it.",
    )


def run_lengths(rng: np.random.Generator, difficulty: float) -> Problem:
    """aaabb is a3b2."""
    runs: list[tuple[str, int]] = []
    for _ in range(draw(rng, scaled(difficulty, 3, 6), scaled(difficulty, 4, 12))):
        others = [c for c in "abcd" if not runs or c != runs[-1][0]]
        runs.append((others[draw(rng, 0, len(others) - 1)], draw(rng, 1, 5)))
    word = "".join(letter * count for letter, count in runs)
    program = (
        f"from itertools import groupby\n"
        f"print(''.join(c + str(len(list(g))) for c, g in groupby('{word}')))"
    )
    return text_problem(
        f"Write each run of equal letters of {word} as the letter and its number, as a3b2.",
        "".join(f"{letter}{count}" for letter, count in runs),
        program,
        "Group them.",
    )


def common_letters(rng: np.random.Generator, difficulty: float) -> Problem:
    """The letters of two words."""
    first, second = _word(rng, difficulty), _word(rng, difficulty)
    items = [letter for letter in _ALPHABET if letter in first and letter in second]
    program = f"print(' '.join(set('{first}') & set('{second}')) or 'none')"
    return Problem(
        f"Which letters are in both {first} and {second}? If there are none, answer none.",
        ", ".join(items) or "none",
        program,
        ItemSet(frozenset(items)),
        "Intersect the sets.",
    )


def longest_palindrome(rng: np.random.Generator, difficulty: float) -> Problem:
    """The length of the longest part that is the same backwards, from its middle outwards."""
    word = draw_letters(rng, scaled(difficulty, 11, 40), "abc")
    answer = 1
    for middle in range(2 * len(word) - 1):
        low, high = middle // 2, (middle + 1) // 2
        while low >= 0 and high < len(word) and word[low] == word[high]:
            answer, low, high = max(answer, high - low + 1), low - 1, high + 1
    program = (
        f"s = '{word}'\nparts = [s[i:j] for i in range(len(s)) for j in range(i + 1, len(s) + 1)]\n"
        "print(max(len(p) for p in parts if p == p[::-1]))"
    )
    return number_problem(
        f"How long is the longest part of {word} that reads the same backwards?",
        answer,
        program,
        "Try all parts.",
    )


def letter_replacement(rng: np.random.Generator, difficulty: float) -> Problem:
    """A function of a text: one letter for another, and some times over."""
    old, new = (_ALPHABET[int(i)] for i in rng.permutation(26)[:2])
    times = draw(rng, 1, scaled(difficulty, 3, 9))
    words = [draw_letters(rng, 6, old + "xyz") for _ in range(5)]
    cases = tuple(
        ((word,), "".join(new * times if c == old else c for c in word)) for word in words
    )
    program = f"def f(text):\n    return text.replace('{old}', '{new * times}')"
    question = f"Write a Python function f(text): the text with {new * times} for each {old}."
    return Problem(question, program, program, UnitTests(cases), "Use replace.")
