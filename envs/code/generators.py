"""The table of generators, their splits, and draws of problems that belong to a split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.envs.code import counting, numbers, planning, puzzles, strings
from agentrl_jax.envs.code.problem import Problem, ProblemGenerator
from agentrl_jax.envs.options import checked_choice
from agentrl_jax.errors import EnvironmentFailure, UserError

SPLITS = ("train", "test", "held_out")
_ONE_IN = 8  # texts of the trained generators that belong to the split "test"
_MAX_DRAWS = 1000


@dataclass(frozen=True)
class GeneratorEntry:
    """A generator of problems, its group, and whether it is never trained on."""

    name: str
    group: str
    generate: ProblemGenerator
    is_held_out: bool = False


def _entries(
    group: str, trained: Sequence[ProblemGenerator], held_out: Sequence[ProblemGenerator]
) -> list[GeneratorEntry]:
    entries = [(generator, False) for generator in trained]
    entries += [(generator, True) for generator in held_out]
    return [GeneratorEntry(g.__name__, group, g, is_out) for g, is_out in entries]  # type: ignore[attr-defined]


GENERATORS = {
    entry.name: entry
    for entry in (
        *_entries(
            "numbers",
            (
                numbers.product,
                numbers.power_remainder,
                numbers.common_divisor,
                numbers.digit_sum,
                numbers.divisor_count,
                numbers.next_primes,
                numbers.mean,
                numbers.base_digits,
                numbers.sum_of_multiples,
                numbers.two_numbers,
            ),
            (numbers.modular_inverse, numbers.collatz_steps),
        ),
        *_entries(
            "strings",
            (
                strings.backwards,
                strings.letter_count,
                strings.shifted_letters,
                strings.sorted_letters,
                strings.without_letter,
                strings.run_lengths,
                strings.common_letters,
                strings.letter_replacement,
            ),
            (strings.longest_run, strings.longest_palindrome),
        ),
        *_entries(
            "counting",
            (
                counting.multiples,
                counting.pairs,
                counting.subsets,
                counting.grid_paths,
                counting.arrangements,
                counting.change,
                counting.dice,
                counting.combinations_with_remainder,
            ),
            (counting.numbers_with_digit_sum, counting.inversions),
        ),
        *_entries(
            "planning",
            (
                planning.knapsack,
                planning.task_order,
                planning.fewest_coins,
                planning.shortest_path,
                planning.number_with,
                planning.free_hour,
            ),
            (planning.halves, planning.coloring),
        ),
        *_entries(
            "puzzles",
            (
                puzzles.ages,
                puzzles.sequence,
                puzzles.countdown,
                puzzles.small_sudoku,
                puzzles.weekday,
                puzzles.liars,
            ),
            (puzzles.bulls_and_cows, puzzles.lights_out),
        ),
    )
}
GROUPS = tuple(dict.fromkeys(entry.group for entry in GENERATORS.values()))


def split_generators(split: str, names: Sequence[str] = ()) -> tuple[GeneratorEntry, ...]:
    """The generators of a split, of those with these names or groups; empty: all.

    Raises:
        UserError: there is no such split, generator or group, or the split has none of them.
    """
    checked_choice("split", split, SPLITS)
    for name in names:
        if name not in GENERATORS and name not in GROUPS:
            raise UserError(
                f"there is no generator or group {name!r}: see docs/code.md; the groups are "
                f"{', '.join(GROUPS)}"
            )
    entries = tuple(
        entry
        for entry in GENERATORS.values()
        if entry.is_held_out == (split == "held_out")
        and (not names or entry.name in names or entry.group in names)
    )
    if not entries:
        raise UserError(f"no generator of {', '.join(names)} belongs to the split {split!r}")
    return entries


def split_of(entry: GeneratorEntry, question: str) -> str:
    """The split of a problem: by its generator, then by the hash of its text."""
    if entry.is_held_out:
        return "held_out"
    digest = hashlib.blake2b(question.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % _ONE_IN == 0 else "train"


def draw_problem(
    rng: np.random.Generator, entries: Sequence[GeneratorEntry], split: str, difficulty: float
) -> tuple[GeneratorEntry, Problem]:
    """A problem of the split, by a uniform generator.

    Raises:
        EnvironmentFailure: the generator has no problem of the split at this difficulty.
    """
    entry = entries[int(rng.integers(len(entries)))]
    for _ in range(_MAX_DRAWS):
        problem = entry.generate(rng, difficulty)
        if split_of(entry, problem.question) == split:
            return entry, problem
    raise EnvironmentFailure(
        f"{entry.name} drew no problem of the split {split!r} at difficulty {difficulty}"
    )


def shared_questions(problems: int, difficulty: float = 0.5, seed: int = 0) -> int:
    """How many questions of the splits test and held_out, of so many drawn in each, are also among
    those drawn for training.
    """
    questions: dict[str, set[str]] = {}
    for i, split in enumerate(SPLITS):
        rng = np.random.default_rng([seed, i])
        entries = split_generators(split)
        questions[split] = {
            draw_problem(rng, entries, split, difficulty)[1].question for _ in range(problems)
        }
    return len(questions["train"] & (questions["test"] | questions["held_out"]))
