"""`Entry`: a task and a method of a table, over seeds; a cell is one seed, kept as a small file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.kept import Kept
from agentrl_jax.launch.sweeps.measures import first_row, last_row

Found = Sequence[dict[str, Any] | None]  # what each seed's cell measured; None: missing


def measured(run_dir: Path) -> dict[str, Any]:
    """Return, score and success at the end and after imitation, and seconds in all."""
    first, summary = first_row(run_dir), json.loads((run_dir / "summary.json").read_text())
    return {**_of(last_row(run_dir)), "imitated": first and _of(first), "seconds": round(sum(summary["seconds"].values()), 1)}


def _of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"return": row["mean_return"], "score": row["score"], "success": row["win_rate"]}


@dataclass(frozen=True)
class Entry:
    """A place of a table."""

    task: str
    method: str
    config: str  # file.py:variant
    seeds: tuple[int, ...]
    measure: Callable[[Path], Mapping[str, Any]] = measured
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.task}-{self.method}"

    @property
    def names(self) -> tuple[str, str, str]:
        """What it is asked for by."""
        return self.task, self.method, self.name

    def kept(self, folder: Path, runs: Path = Path()) -> Iterator[Kept]:
        """The file of each seed's cell."""
        for seed in self.seeds:
            cell = Cell(self.config, self.overrides, seed, runs / f"{self.name}-{seed}")
            yield Kept(folder / self.name / f"{seed}.json", cell, self.measure)

    def found(self, folder: Path) -> Found:
        """What is kept."""
        return [one.read() for one in self.kept(folder)]


def imitated(cells: Found) -> Found:
    """The same of plain cloning, from the cells that began with it."""
    return [cell and cell["imitated"] for cell in cells]
