"""`KeptBench`: a bench of cells that are kept in files, whose tables stand in documentation pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.options import option
from agentrl_jax.launch.sweeps.kept import Kept, run_missing


@dataclass
class KeptBench:
    """Subclasses say which cells `only` asks for, and what is published of those that are kept."""

    only: str = option("", "What to run, with commas between; empty: all. The tables have all of it.")
    print_only: bool = option(False, "Run nothing.")
    parallel: int = option(1, "Cells side by side.", 1)

    def prepare(self) -> None:
        """Nothing runs on this process's devices."""

    @property
    def _names(self) -> list[str]:
        """That `only` gives."""
        return [name.strip() for name in self.only.split(",") if name.strip()]

    def _publish(self) -> None:
        """Put the tables into their pages."""
        raise NotImplementedError(f"{type(self).__name__} must define _publish")

    def _printed(self) -> str:
        """What is shown at the end."""
        raise NotImplementedError(f"{type(self).__name__} must define _printed")

    def _make(self, asked: Sequence[Kept], runs: Path) -> None:
        """Run what is missing, publish after each cell, and print. Raises UserError where a cell failed."""
        self._publish()  # what is kept and the pages are read before minutes are spent
        failed = [] if self.print_only else run_missing(asked, runs, self.parallel, self._publish)
        print(self._printed())
        if failed:
            raise UserError(f"{len(failed)} cells failed; the same command runs them again, their logs are in {runs}")
