"""Cells whose numbers are kept in small files: what is kept is not run again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import in_shell
from agentrl_jax.launch.sweeps.cells import Cell, run_cells
from agentrl_jax.launch.sweeps.grid import check
from agentrl_jax.run import write_json


@dataclass(frozen=True, eq=False)
class Kept:
    """A file with what a cell measured, known by the command that made it and by `marks`."""

    path: Path
    cell: Cell
    measure: Callable[[Path], Mapping[str, Any]]  # run folder -> what is kept
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        return {"command": in_shell(["agentrl-train", *self.cell.flags]), **self.marks}

    def keep(self) -> None:
        """Write what the finished cell measured. Raises UserError where its run cannot be measured."""
        measured = self.measure(self.cell.run_dir)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, {**self.identity, **measured})

    def read(self) -> dict[str, Any] | None:
        """What is kept; None: missing. Raises UserError where the file is damaged or another cell's."""
        if not self.path.exists():
            return None
        try:
            kept = json.loads(self.path.read_text())
            identity = {name: kept[name] for name in self.identity}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{self.path} is damaged: delete it to run it anew") from error
        if identity != self.identity:
            raise UserError(f"{self.path} is of {', '.join(identity.values())}: delete it to run what is declared now")
        return kept


def run_missing(declared: Sequence[Kept], runs: Path, parallel: int, after: Callable[[], None]) -> list[Cell]:
    """Keeps each cell as it finishes, and calls `after`; a run that several ask for is one. Returns the cells that failed."""
    asked = dict[Path, list[Kept]]()
    for one in declared:
        if not one.path.exists():
            asked.setdefault(one.cell.run_dir, []).append(one)
    cells = [same[0].cell for same in asked.values()]
    check(cells)

    def keep(cell: Cell) -> None:
        for one in asked[cell.run_dir]:
            one.keep()
        after()

    for cell in filter(lambda cell: cell.finished, cells):
        keep(cell)
    return run_cells(cells, runs, parallel, keep) if cells else []
