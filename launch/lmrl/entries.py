"""`Entry`: a task of LMRL-Gym and a baseline, over seeds; a cell is one seed, kept as a small file."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.kept import Kept
from agentrl_jax.launch.sweeps.measures import first_row, last_row, values_of

CONFIG = "configs/lmrl.py"
METHODS = ("filtered", "mc", "ilql", "ppo", "online_filtered")
BC = "mc"  # plain cloning is where its runs begin
THREE = (0, 1, 2)
SEEDS: dict[str, tuple[int, ...]] = {
    "maze_fo": THREE, "maze_po": THREE, "nav_fo": (0,), "nav_po": (0,), "wordle": THREE, "chess": (0,), "endgames": THREE,
    "questions": THREE, "city": (0,), "dealer": (0,),
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A place of the table."""

    task: str
    method: str

    @property
    def name(self) -> str:
        return f"{self.task}-{self.method}"

    def kept(self, folder: Path, runs: Path = Path()) -> Iterator[Kept]:
        """The file of each seed's cell."""
        for seed in SEEDS[self.task]:
            cell = Cell(f"{CONFIG}:{self.name}", {}, seed, runs / f"{self.name}-{seed}")
            yield Kept(folder / self.name / f"{seed}.json", cell, measured)


ENTRIES = tuple(Entry(task, method) for task in SEEDS for method in METHODS)


def measured(run_dir: Path) -> dict[str, Any]:
    """Return and score at the end and after imitation, the tokens that a second of the last phase trains, and seconds in all."""
    last, first = last_row(run_dir), first_row(run_dir)
    speed = [n / t for n, t in zip(values_of(run_dir, "tokens"), values_of(run_dir, "time/update")) if t > 0]
    seconds = json.loads((run_dir / "summary.json").read_text())["seconds"]
    return {
        "return": last["mean_return"], "score": last["score"], "success": last["win_rate"],
        "imitated": first and {"return": first["mean_return"], "score": first["score"], "success": first["win_rate"]},
        "tokens_per_second": round(median(speed)), "seconds": round(sum(seconds.values()), 1),
    }  # fmt: skip


def found(entry: Entry, folder: Path) -> list[dict[str, Any] | None]:
    """What each seed's cell measured; None: missing."""
    return [one.read() for one in entry.kept(folder)]


def imitated(cells: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """The same of plain cloning, from the cells that began with it."""
    return [cell and cell["imitated"] for cell in cells]
