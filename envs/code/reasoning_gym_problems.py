"""`ReasoningGym`: the generators of the package reasoning-gym as problems to solve with code."""

import functools
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.envs.code.checks import MAX_ANSWER, Runner
from agentrl_jax.envs.code.code_problems import CodeProblems
from agentrl_jax.envs.code.generators import SPLITS, GeneratorEntry
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.errors import UserError

# arc_agi leaves files open and composite wants other data sets; the others have no reference
# answer, or accept any text.
LEFT_OUT = frozenset(
    {
        "arc_agi",
        "boxnet",
        "composite",
        "game_of_life_halting",
        "graph_color",
        "propositional_logic",
        "rubiks_cube",
        "rush_hour",
    }
)
_ONE_IN = 5  # data sets that are held out


def _library() -> Any:
    """The package. Raises UserError where it is not installed."""
    try:
        import reasoning_gym  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise UserError(
            "ReasoningGym needs the package reasoning-gym: pip install 'agentrl_jax[reasoning-gym]'"
        ) from error
    return reasoning_gym


@functools.lru_cache(maxsize=32)
def _item(dataset: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """A data set of one item, and that item: a function of its name and seed."""
    data = _library().create_dataset(dataset, size=1, seed=seed)
    return data, data[0]


@dataclass(frozen=True)
class LibraryScore:
    """The library's own score of an answer is at least `threshold`."""

    dataset: str
    seed: int
    threshold: float = 0.99

    def __call__(self, answer: str, run: Runner) -> bool:
        if not answer.strip() or len(answer) > MAX_ANSWER:
            return False
        data, item = _item(self.dataset, self.seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of texts that are no answer
                return float(data.score_answer(answer, item)) >= self.threshold
        except Exception:  # some scores raise for texts that are no answer
            return False


def library_problem(dataset: str, rng: np.random.Generator, difficulty: float) -> Problem:
    """An item of a data set, in the library's default difficulty."""
    seed = int(rng.integers(2**31))
    _, item = _item(dataset, seed)
    answer = str(item["answer"])
    check = LibraryScore(dataset, seed)
    return Problem(item["question"], answer, f"print({answer!r})", check, "I compute it.")


def library_entries() -> dict[str, GeneratorEntry]:
    """All data sets of the library but those left out, by name; one in five is held out, by the
    hash of its name.

    Raises:
        UserError: the library is not installed.
    """
    from_names = sorted(set(_library().factory.DATASETS) - LEFT_OUT)
    return {
        name: GeneratorEntry(
            name,
            "reasoning_gym",
            functools.partial(library_problem, name),
            hashlib.blake2b(name.encode(), digest_size=1).digest()[0] % _ONE_IN == 0,
        )
        for name in from_names
    }


class ReasoningGym(CodeProblems):
    """`CodeProblems` with the data sets of reasoning-gym, which scores the answers.

    `generators` are names of data sets and `difficulty` has no effect: items have the library's
    default difficulty. The library has no programs: scripted experts print the reference answer,
    so their demonstrations show the form of an episode and not how to solve it.
    """

    def _entries(self, split: str, names: Sequence[str]) -> tuple[GeneratorEntry, ...]:
        entries = library_entries()
        unknown = [name for name in names if name not in entries]
        if split not in SPLITS or unknown:
            raise UserError(
                f"reasoning-gym has no split {split!r} or no usable data set {unknown}: splits are "
                f"{', '.join(SPLITS)}, data sets those of its documentation"
            )
        chosen = tuple(
            entry
            for name, entry in entries.items()
            if entry.is_held_out == (split == "held_out") and (not names or name in names)
        )
        if not chosen:
            raise UserError(f"no data set of {', '.join(names)} belongs to the split {split!r}")
        return chosen
