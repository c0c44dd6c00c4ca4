"""Cells whose results are cached in small files: a cached cell is not run again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.external_tool import shell_command
from agentrl_jax.launch.sweeps.cells import Cell, run_cells
from agentrl_jax.launch.sweeps.grid import check_cells
from agentrl_jax.storage.files import write_json


@dataclass(frozen=True, eq=False)
class CachedCell:
    """The file of a cell's results, identified by its command and `extra_identity`."""

    path: Path
    cell: Cell
    measure: Callable[[Path], Mapping[str, Any]]  # run folder -> what is cached
    extra_identity: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        return {
            "command": shell_command(["agentrl-train", *self.cell.flags]),
            **self.extra_identity,
        }

    def save(self) -> None:
        """Measure the finished run and write the file. Raises UserError where that fails."""
        measured = self.measure(self.cell.run_dir)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, {**self.identity, **measured})

    def load(self) -> dict[str, Any] | None:
        """The cached results; None: missing.

        Raises:
            UserError: the file is damaged, or holds the results of another cell.
        """
        if not self.path.exists():
            return None
        try:
            cached = json.loads(self.path.read_text())
            identity = {name: cached[name] for name in self.identity}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{self.path} is damaged: delete it to run the cell again") from error
        if identity != self.identity:
            raise UserError(
                f"{self.path} is of {', '.join(identity.values())}: delete it to run the "
                "current definition"
            )
        return cached


def run_missing(
    cached_cells: Sequence[CachedCell], runs: Path, parallel: int, on_saved: Callable[[], None]
) -> list[Cell]:
    """Run the cells that are not cached and return those that failed.

    Each is cached as it finishes, and `on_saved` called; several with one run folder share a run.
    """
    requested = dict[Path, list[CachedCell]]()
    for cached in cached_cells:
        if not cached.path.exists():
            requested.setdefault(cached.cell.run_dir, []).append(cached)
    cells = [same[0].cell for same in requested.values()]
    check_cells(cells)

    def save_results(cell: Cell) -> None:
        for cached in requested[cell.run_dir]:
            cached.save()
        on_saved()

    for cell in filter(lambda cell: cell.finished, cells):
        save_results(cell)
    return run_cells(cells, runs, parallel, save_results) if cells else []
