"""`TableEntry`: a task and a method of a results table; each seed's results are a small file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.launch.sweeps.cached_cells import CachedCell, earlier_configs_note
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.measures import last_row, start_row
from agentrl_jax.storage.run_folder import read_summary

CellResults = Sequence[dict[str, Any] | None]  # per seed; None: missing


def measure_run(run_dir: Path) -> dict[str, Any]:
    """Return, score and success after the last phase and after imitation, and total seconds."""
    imitated, summary = start_row(run_dir), read_summary(run_dir)
    return {
        **_scores(last_row(run_dir)),
        "imitated": imitated and _scores(imitated),
        "seconds": round(sum(summary["seconds"].values()), 1),
    }


def _scores(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"return": row["mean_return"], "score": row["score"], "success": row["win_rate"]}


@dataclass(frozen=True)
class TableEntry:
    """A task and a method, with the config and the seeds of its cells."""

    task: str
    method: str
    config: str  # file.py:variant
    seeds: tuple[int, ...]
    measure: Callable[[Path], Mapping[str, Any]] = measure_run
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.task}-{self.method}"

    @property
    def selectors(self) -> tuple[str, str, str]:
        """The names by which --only selects it."""
        return self.task, self.method, self.name

    def cached_cells(self, folder: Path, runs: Path = Path()) -> Iterator[CachedCell]:
        """The file of each seed's cell."""
        for seed in self.seeds:
            cell = Cell(self.config, self.overrides, seed, runs / f"{self.name}-{seed}")
            yield CachedCell(folder / self.name / f"{seed}.json", cell, self.measure)

    def load_results(self, folder: Path) -> CellResults:
        """The cached results of each seed."""
        return [cell.load() for cell in self.cached_cells(folder)]


def imitation_results(cells: CellResults) -> CellResults:
    """The results after plain behavior cloning, the phase before the method in the same cells."""
    return [cell and cell["imitated"] for cell in cells]


def configs_note(entries: Iterable[TableEntry], folder: Path) -> str:
    """Which of these entries were measured with an earlier config."""
    return earlier_configs_note({entry.name: entry.load_results(folder) for entry in entries})
