"""Cells whose results are cached in small files: a cached cell is not run again."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.external_tool import shell_command
from agentrl_jax.launch.sweeps.cells import Cell, run_cells
from agentrl_jax.launch.sweeps.grid import check_cells, load_experiment
from agentrl_jax.storage import config_json
from agentrl_jax.storage.files import write_json

CONFIG_DIGEST = "config_digest"  # in a file; None: measured before digests were kept


@functools.cache
def _config_digest(config: str, overrides: tuple[tuple[str, str], ...]) -> str:
    """Of the experiment as it is defined now. Its seed is 0, so that all seeds share one."""
    return config_json.digest(load_experiment(Cell(config, dict(overrides), 0, Path())))


@dataclass(frozen=True, eq=False)
class CachedCell:
    """The file of a cell's results, identified by its command and `extra_identity`.

    It is valid as long as the config that the command names is the one that was measured.
    """

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

    @property
    def config_digest(self) -> str:
        return _config_digest(self.cell.config, tuple(sorted(self.cell.overrides.items())))

    def save(self) -> None:
        """Measure the finished run and write the file. Raises UserError where that fails."""
        measured = self.measure(self.cell.run_dir)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        identity = {**self.identity, CONFIG_DIGEST: self.config_digest}
        write_json(self.path, {**identity, **measured})

    def load(self) -> dict[str, Any] | None:
        """The cached results; None: missing.

        Raises:
            UserError: the file is damaged, or holds the results of another cell or another config.
        """
        if not self.path.exists():
            return None
        try:
            cached = json.loads(self.path.read_text())
            identity = {name: cached[name] for name in self.identity}
            config_digest = cached[CONFIG_DIGEST]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{self.path} is damaged: delete it to run the cell again") from error
        if identity != self.identity:
            raise UserError(
                f"{self.path} is of {', '.join(identity.values())}: delete it to run the "
                "current definition"
            )
        if config_digest is not None and config_digest != self.config_digest:
            raise UserError(
                f"{self.path} was measured before {self.cell.config} changed: delete it to run the "
                "cell again"
            )
        return cached


def earlier_configs_note(results: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> str:
    """A sentence that names the rows of a page whose config may have changed since.

    Args:
        results: the cached results of the cells of each row; None: missing.
    """
    known = {row: [cell for cell in cells if cell is not None] for row, cells in results.items()}
    earlier = [
        row for row, cells in known.items() if any(cell[CONFIG_DIGEST] is None for cell in cells)
    ]
    if not earlier:
        return "Every figure was measured with the config of today."
    if len(earlier) == sum(map(bool, known.values())):
        return "Every figure was measured with an earlier config, of which no digest was kept."
    return f"Measured with an earlier config, of which no digest was kept: {', '.join(earlier)}."


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
