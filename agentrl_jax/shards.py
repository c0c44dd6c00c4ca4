"""A data set as a folder: its recipe, and shards of records with an index each, which are there when they are whole."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.replacing import replacing
from agentrl_jax.trajectories import Trajectory

FACTS = np.dtype([("return", "<f8"), ("turns", "<i4"), ("success", "i1")])  # of a record; success -1: the world does not say
Fact = tuple[float, int, int]
FIRST_WORLD = 2_000_000_000  # worlds' seeds that no evaluation uses
LARGEST = 10_000  # records of a shard, unless more are asked for
RECIPE = "recipe.json"


@dataclass(frozen=True)
class Recipe:
    """What a data set is made of. Episode `i` follows from `environment`, `options`, `player`, `seed` and `i` alone."""

    environment: str  # a Gymnasium id, with the module that registers it
    player: str  # of the environment
    records: int
    options: dict[str, Any] = field(default_factory=dict)  # of the environment's constructor
    seed: int = 0
    first: int = 0  # which episode is the first: sets of the same seed that do not overlap share none
    shards: int = 0  # 0: as many as keep a shard at 10,000 records

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", self.shards or -(-self.records // LARGEST))
        if self.records < 1 or not 1 <= self.shards <= self.records or min(self.seed, self.first) < 0:
            raise UserError(f"a data set needs records >= 1, shards from 1 to its records, seed and first >= 0, not {self}")

    def episodes(self, shard: int) -> range:
        """Which episodes a shard holds; sizes differ by one at most."""
        return range(self.first + self.records * shard // self.shards, self.first + self.records * (shard + 1) // self.shards)

    def world(self, episode: int) -> int:
        """The seed of an episode's world."""
        return FIRST_WORLD + (self.seed << 32) + episode

    def shard_path(self, folder: Path, shard: int) -> Path:
        return folder / f"records-{shard:05}-of-{self.shards:05}.array_record"

    def missing(self, folder: Path) -> list[int]:
        """The shards that are not whole: a shard's index comes last, and is nothing without it."""
        paths = [self.shard_path(folder, shard) for shard in range(self.shards)]
        return [shard for shard, path in enumerate(paths) if not (index_path(path).is_file() and path.is_file())]


def fact_of(trajectory: Trajectory) -> Fact:
    """What an index keeps of a record."""
    return fact(trajectory.total_reward, len(trajectory.turns), trajectory.success)


def fact(total: float, turns: int, success: bool | None) -> Fact:
    return total, turns, -1 if success is None else int(success)


def index_path(path: Path) -> Path:
    """The index of a shard."""
    return path.with_suffix(".npy")


def write_index(path: Path, facts: np.ndarray) -> None:
    """Put a shard's index beside it; it appears when it is whole."""
    with replacing(index_path(path)) as unfinished, open(unfinished, "wb") as file:
        np.save(file, facts)


def read_index(path: Path, records: int) -> np.ndarray:
    """The facts of a shard's records. Raises UserError where they are not those of so many records."""
    try:
        facts = np.load(index_path(path), allow_pickle=False)
        if facts.dtype != FACTS or facts.shape != (records,):
            raise ValueError(f"{facts.dtype} {facts.shape} where {FACTS} ({records},) is expected")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"the index {index_path(path)} is missing or corrupt: delete it, and have the data set written again") from error
    return facts


def facts_of(folder: Path) -> np.ndarray:
    """The facts of a whole data set, in the order of its records."""
    recipe = whole(folder)
    return np.concatenate([read_index(recipe.shard_path(folder, shard), len(recipe.episodes(shard))) for shard in range(recipe.shards)])


def claim(folder: Path, recipe: Recipe) -> None:
    """Say what a folder is to hold. Raises UserError where it holds another data set."""
    text = json.dumps(dataclasses.asdict(recipe), indent=1) + "\n"
    if not (folder / RECIPE).exists():
        with replacing(folder / RECIPE) as unfinished:
            unfinished.write_text(text)
    found, asked = dataclasses.asdict(read_recipe(folder)), json.loads(text)
    if differ := [name for name in asked if found[name] != asked[name]]:
        raise UserError(f"{folder} holds another data set (it differs in {', '.join(differ)}): name another folder")


def read_recipe(folder: Path) -> Recipe:
    """What a folder holds, or is to hold. Raises UserError where it does not say so."""
    try:
        return Recipe(**json.loads((folder / RECIPE).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{folder / RECIPE} is missing or corrupt: {folder} is no data set") from error


def whole(folder: Path) -> Recipe:
    """The recipe of a folder that holds all of it. Raises UserError otherwise."""
    recipe = read_recipe(folder)
    if missing := len(recipe.missing(folder)):
        raise UserError(f"the data set {folder} is not whole, {missing} of its {recipe.shards} shards are missing: write it to its end")
    return recipe
