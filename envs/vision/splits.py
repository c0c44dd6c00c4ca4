"""Splits of generated tasks: by the generator, the phrasing and the seed of a task."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.envs.options import checked_choice
from agentrl_jax.errors import UserError

# train; other seeds and phrasings of the same generators; generators that are never trained on
SPLITS = ("train", "test", "held_out")
_TEST_SHARE = 8  # one of so many seeds belongs to the splits that are not trained on


@dataclass(frozen=True)
class TaskKey:
    """What a task is made from."""

    generator: str
    phrasing: str  # a template, filled with the task's words
    seed: int  # of the scene


@dataclass(frozen=True)
class Generators:
    """The generators of an environment and their phrasings.

    Args:
        phrasings: of each generator; the last one is never trained on.
        held_out: the generators that are never trained on.
    """

    phrasings: Mapping[str, Sequence[str]]
    held_out: tuple[str, ...]

    def names(self, split: str) -> tuple[str, ...]:
        """The generators of a split. Raises UserError where there is no such split."""
        checked_choice("split", split, SPLITS)
        is_held_out = split == "held_out"
        return tuple(name for name in self.phrasings if (name in self.held_out) == is_held_out)

    def checked(self, split: str, kinds: Sequence[str]) -> tuple[str, ...]:
        """The kinds that are asked for, by default all of the split.

        Raises:
            UserError: a kind is not a generator of the split.
        """
        names = self.names(split)
        chosen = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        for kind in chosen:
            if kind not in names:
                raise UserError(f"kinds of the split {split!r} are {', '.join(names)}, not {kind}")
        return chosen or names

    def draw(self, rng: np.random.Generator, split: str, kinds: Sequence[str]) -> TaskKey:
        """A uniform generator, phrasing and seed of a split."""
        generator = kinds[int(rng.integers(len(kinds)))]
        *trained, tested = self.phrasings[generator]
        phrasing = trained[int(rng.integers(len(trained)))] if split == "train" else tested
        while True:
            seed = int(rng.integers(2**31))
            if is_test_seed(seed) == (split != "train"):
                return TaskKey(generator, phrasing, seed)


def is_test_seed(seed: int) -> bool:
    """Whether a scene's seed belongs to the splits that are not trained on: one in 8 does."""
    return hashlib.blake2b(str(seed).encode()).digest()[0] % _TEST_SHARE == 0


def split_overlap(generators: Generators, split: str, tasks: int) -> dict[str, int]:
    """How many generators, phrasings and seeds `tasks` drawn tasks of a split share with as many of
    the training split.
    """
    keys = {name: list(_draw_tasks(generators, name, tasks)) for name in ("train", split)}
    return {
        "generator": len({k.generator for k in keys["train"]} & {k.generator for k in keys[split]}),
        "phrasing": len({k.phrasing for k in keys["train"]} & {k.phrasing for k in keys[split]}),
        "seed": len({k.seed for k in keys["train"]} & {k.seed for k in keys[split]}),
    }


def _draw_tasks(generators: Generators, split: str, tasks: int) -> Iterator[TaskKey]:
    rng, kinds = np.random.default_rng(0), generators.names(split)
    return (generators.draw(rng, split, kinds) for _ in range(tasks))
