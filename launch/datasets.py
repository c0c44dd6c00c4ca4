"""`DataSet`: a dataset of scripted episodes, and its statistics next to the published ones."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl_jax.envs.lmrl.published_statistics import PUBLISHED_DATASETS, PublishedDataset
from agentrl_jax.errors import UserError
from agentrl_jax.launch import dataclass_flags
from agentrl_jax.rollout import scripted_dataset
from agentrl_jax.storage.dataset_folder import DatasetManifest, dataset_index
from agentrl_jax.storage.folder_lock import exclusive_lock
from agentrl_jax.training.seeds import ENV_SEED_END, check_seed
from agentrl_jax.workers.pool import importable_env_name

TABLE_HEADER = (
    "| set | records | turns | success | return (std) | MB | records a second |\n"
    "|---|---|---|---|---|---|---|"
)
PROGRESS_INTERVAL = 5.0  # seconds between two progress lines


@dataclass
class DataSet:
    """Two folders of shards: train/, and validation/ with later episodes of the same seed."""

    task: str = dataclass_flags.option(
        "",
        f"A published dataset, with its size and scripted policy: {', '.join(PUBLISHED_DATASETS)}.",
    )
    environment: str = dataclass_flags.option(
        "", "Or a Gymnasium id, with `module:` before it where the environment is yours."
    )
    option: tuple[str, ...] = dataclass_flags.option(
        (), "name=value for the environment's constructor; may be repeated."
    )
    player: str = dataclass_flags.option(
        "", "A scripted policy of the environment; empty: the published data's, else mixture."
    )
    records: int = dataclass_flags.option(0, "Records of train/; 0: as many as were published.", 0)
    validation: int = dataclass_flags.option(
        -1, "Records of validation/; -1: a hundredth of train/; 0: none.", -1
    )
    seed: int = dataclass_flags.option(0, "Each seed gives other episodes.", 0)
    shards: int = dataclass_flags.option(0, "Files of train/; 0: one for 10,000 records.", 0)
    processes: int = dataclass_flags.option(
        2, "Worker processes; the records are the same for any number.", 1
    )
    out: str = dataclass_flags.option(
        "",
        "The folder; the same command again resumes in it, or prints the table of a complete one.",
    )

    def run(self) -> str:
        """Write the missing shards and return the table.

        Raises:
            UserError: the flags contradict each other, or the folder holds another dataset.
        """
        if not self.out:
            raise UserError("give the folder of the dataset with --out=data/wordle")
        check_seed("--seed", self.seed, ENV_SEED_END)
        train, published = self._train_manifest()
        validation_records = (
            max(1, train.records // 100) if self.validation < 0 else self.validation
        )
        parts = {"train": train}
        if validation_records:
            parts["validation"] = replace(
                train, records=validation_records, first=train.records, shards=0
            )
        out = Path(self.out)
        with exclusive_lock(out, "writing a dataset"):
            lines = [
                table_row(name, out / name, self._write(out / name, part))
                for name, part in parts.items()
            ]
        return "\n".join([TABLE_HEADER, *lines, *([published_row(published)] if published else [])])

    def _train_manifest(self) -> tuple[DatasetManifest, PublishedDataset | None]:
        if bool(self.task) == bool(self.environment):
            raise UserError(
                "name a dataset with one of --task=wordle and --environment=agentrl/Wordle-v0"
            )
        sizes = {"seed": self.seed, "shards": self.shards}
        if self.task:
            if self.task not in PUBLISHED_DATASETS:
                raise UserError(
                    f"--task={self.task}: there is no such dataset, only "
                    f"{', '.join(PUBLISHED_DATASETS)}"
                )
            published = PUBLISHED_DATASETS[self.task]
            return published.manifest(
                self.records, self.player, dataclass_flags.parse_literals(self.option), **sizes
            ), published
        if not self.records:
            raise UserError("--environment needs --records")
        name, player = importable_env_name(self.environment), self.player or "mixture"
        return DatasetManifest(
            name, player, self.records, dataclass_flags.parse_literals(self.option), **sizes
        ), None

    def _write(self, folder: Path, manifest: DatasetManifest) -> float | None:
        """Records written per second; None where none was missing."""
        began, before = (
            time.perf_counter(),
            sum(len(manifest.episodes(shard)) for shard in manifest.missing_shards(folder)),
        )
        scripted_dataset.write_dataset(
            folder, manifest, self.processes, progress_printer(str(folder), before)
        )
        return before / (time.perf_counter() - began) if before else None


def progress_printer(name: str, records: int) -> Callable[[int], None]:
    """A callback that counts written records and prints the progress to stderr."""
    began = last = time.perf_counter()
    done = 0

    def advance(count: int) -> None:
        nonlocal done, last
        done, now = done + count, time.perf_counter()
        if now - last > PROGRESS_INTERVAL:
            last = now
            left = (now - began) * (records - done) / done
            print(
                f"{name}: {done:,} of {records:,} records, {left:,.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    return advance


def table_row(name: str, folder: Path, rate: float | None) -> str:
    """A folder's row of the table."""
    index, size = dataset_index(folder), sum(path.stat().st_size for path in folder.iterdir())
    known = index["success"][index["success"] >= 0]
    success = f"{known.mean():.2f}" if len(known) else ""
    returns = index["return"]
    return (
        f"| {name} | {len(index):,} | {index['turns'].mean():.1f} | {success} | "
        f"{returns.mean():.3g} ({returns.std():.3g}) "
        f"| {size / 1e6:,.1f} | {'' if rate is None else f'{rate:,.0f}'} |"
    )


def published_row(published: PublishedDataset) -> str:
    return (
        f"| published | {published.records:,} | {published.mean_length:g} | "
        f"{published.success_rate:.2f} | {published.mean_return:g} ({published.std_return:g}) | | |"
    )
