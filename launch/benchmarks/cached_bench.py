"""`CachedBench`: a benchmark with cells cached in files and tables in documentation pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.sweeps.cached_cells import CachedCell, run_missing


@dataclass
class CachedBench:
    """Subclasses define the cells that `only` selects and the tables of all cached ones."""

    only: str = option("", "What to run, separated by commas; empty: all. Tables always show all.")
    print_only: bool = option(False, "Run nothing.")
    parallel: int = option(1, "Cells at a time.", 1)

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    @property
    def _selected_names(self) -> list[str]:
        """The names in `only`."""
        return [name.strip() for name in self.only.split(",") if name.strip()]

    def _write_tables(self) -> None:
        """Put the tables into their pages."""
        raise NotImplementedError(f"{type(self).__name__} must define _write_tables")

    def _markdown(self) -> str:
        """The tables to print at the end."""
        raise NotImplementedError(f"{type(self).__name__} must define _markdown")

    def _run_missing(self, selected: Sequence[CachedCell], runs: Path) -> None:
        """Run the missing cells, update the pages after each, and print the tables.

        Raises:
            UserError: a cell failed.
        """
        self._write_tables()  # a damaged cache or page raises before any cell runs
        failed = (
            []
            if self.print_only
            else run_missing(selected, runs, self.parallel, self._write_tables)
        )
        print(self._markdown())
        if failed:
            raise UserError(
                f"{len(failed)} cells failed; the same command runs them again, their logs are "
                f"in {runs}"
            )
