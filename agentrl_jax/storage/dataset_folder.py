"""A dataset of demonstrations as a folder: a manifest, and shards of records with an index each.

A shard is complete when its index is there: the index is written last.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.storage.format_version import (
    DATASET_FORMAT_VERSION,
    VERSION_KEY,
    check_format_version,
)
from agentrl_jax.trajectories import Trajectory

# One row per record; success is -1 where the environment does not report it, 0 of a cut episode.
INDEX_DTYPE = np.dtype([("return", "<f8"), ("turns", "<i4"), ("success", "i1")])
IndexEntry = tuple[float, int, int]
FIRST_ENV_SEED = 2_000_000_000  # environment seeds from here on are used by no evaluation
MAX_SHARD_RECORDS = 10_000  # records of a shard, unless the manifest sets the number of shards
MANIFEST_FILE = "recipe.json"


@dataclass(frozen=True)
class DatasetManifest:
    """What a dataset is made of.

    Episode `i` is a function of `environment`, `options`, `player`, `seed` and `i` alone.

    Raises:
        UserError: the counts do not go together.
    """

    environment: str  # a Gymnasium id, with the module that registers it
    player: str  # a scripted policy of the environment
    records: int
    options: dict[str, Any] = field(default_factory=dict)  # of the environment's constructor
    seed: int = 0
    # The index of the first episode: datasets of one seed with disjoint ranges share no episode.
    first: int = 0
    shards: int = 0  # 0: as many as keep a shard at 10,000 records

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", self.shards or -(-self.records // MAX_SHARD_RECORDS))
        valid_shards = 1 <= self.shards <= self.records
        if self.records < 1 or not valid_shards or min(self.seed, self.first) < 0:
            raise UserError(
                "a dataset needs records >= 1, shards from 1 to its records, "
                f"seed and first >= 0, not {self}"
            )

    def episodes(self, shard: int) -> range:
        """The episodes that a shard holds; sizes differ by one at most."""
        return range(
            self.first + self.records * shard // self.shards,
            self.first + self.records * (shard + 1) // self.shards,
        )

    def env_seed(self, episode: int) -> int:
        """The environment seed of an episode."""
        return FIRST_ENV_SEED + (self.seed << 32) + episode

    def shard_path(self, folder: Path, shard: int) -> Path:
        return folder / f"records-{shard:05}-of-{self.shards:05}.array_record"

    def missing_shards(self, folder: Path) -> list[int]:
        """The shards that are not complete."""
        paths = [self.shard_path(folder, shard) for shard in range(self.shards)]
        return [
            shard
            for shard, path in enumerate(paths)
            if not (index_path(path).is_file() and path.is_file())
        ]


def index_entry_of(trajectory: Trajectory) -> IndexEntry:
    """The index entry of a record: return, number of turns, success."""
    succeeded = trajectory.succeeded
    success = -1 if succeeded is None else int(succeeded)
    return trajectory.total_reward, len(trajectory.turns), success


def index_path(path: Path) -> Path:
    """The index of a shard."""
    return path.with_suffix(".npy")


def write_index(path: Path, entries: np.ndarray) -> None:
    """Write the index of the shard `path`, atomically."""
    with atomic_write(index_path(path)) as unfinished, open(unfinished, "wb") as file:
        np.save(file, entries)


def read_index(path: Path, records: int) -> np.ndarray:
    """The index entries of a shard, [records] of `INDEX_DTYPE`.

    Raises:
        UserError: the index is missing, damaged, or has another number of entries.
    """
    try:
        entries = np.load(index_path(path), allow_pickle=False)
        if entries.dtype != INDEX_DTYPE or entries.shape != (records,):
            raise ValueError(
                f"{entries.dtype} {entries.shape} where {INDEX_DTYPE} ({records},) is expected"
            )
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"the index {index_path(path)} is missing or corrupt: "
            "delete it, and have the dataset written again"
        ) from error
    return entries


def dataset_index(folder: Path) -> np.ndarray:
    """The index entries of all shards, [records], in the order of the records."""
    manifest = read_complete_manifest(folder)
    return np.concatenate(
        [
            read_index(manifest.shard_path(folder, shard), len(manifest.episodes(shard)))
            for shard in range(manifest.shards)
        ]
    )


def bind_manifest(folder: Path, manifest: DatasetManifest) -> None:
    """Write the manifest into the folder, or check that the folder has an equal one.

    Raises:
        UserError: the folder holds another dataset, or one of another format version.
    """
    fields = dataclasses.asdict(manifest)
    if not (folder / MANIFEST_FILE).exists():
        text = json.dumps({VERSION_KEY: DATASET_FORMAT_VERSION, **fields}, indent=1) + "\n"
        with atomic_write(folder / MANIFEST_FILE) as unfinished:
            unfinished.write_text(text)
    stored, expected = dataclasses.asdict(read_manifest(folder)), json.loads(json.dumps(fields))
    if differing := [name for name in expected if stored[name] != expected[name]]:
        raise UserError(
            f"{folder} holds another dataset (it differs in {', '.join(differing)}): "
            "name another folder"
        )


def read_manifest(folder: Path) -> DatasetManifest:
    """The manifest of a folder, whether or not its shards are complete.

    Raises:
        UserError: there is none, or a damaged one, or one of another format version.
    """
    path = folder / MANIFEST_FILE
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise ValueError(f"an object was expected, not {type(data).__name__}")
        remedy = "read it with the version that wrote it, or write the dataset again elsewhere"
        check_format_version(data, DATASET_FORMAT_VERSION, folder, "dataset", remedy)
        return DatasetManifest(**{name: x for name, x in data.items() if name != VERSION_KEY})
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is missing or corrupt: {folder} is no dataset") from error


def read_complete_manifest(folder: Path) -> DatasetManifest:
    """The manifest of a folder whose shards are all complete; UserError otherwise."""
    manifest = read_manifest(folder)
    if missing := len(manifest.missing_shards(folder)):
        raise UserError(
            f"the dataset {folder} is not complete, {missing} of its {manifest.shards} shards "
            "are missing: write it to its end"
        )
    return manifest
