"""`lmrl`: LMRL-Gym's tasks and baselines (arXiv 2311.18232) at a size for a CPU; generates the tables of docs/lmrl.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.errors import UserError
from agentrl_jax.launch import pages
from agentrl_jax.launch.lmrl.entries import ENTRIES, Entry
from agentrl_jax.launch.lmrl.table import scores_table, speed_table
from agentrl_jax.launch.options import option
from agentrl_jax.launch.sweeps.kept import run_missing


@dataclass
class LMRL:
    """A cell is one seed of one method on one task, kept in a file and not run again; one that stopped goes on."""

    only: str = option("", "Tasks, methods or pairs to run (wordle, ilql, wordle-ilql), with commas between; empty: all.")
    print_only: bool = option(False, "Run nothing.")
    parallel: int = option(1, "Cells side by side.", 1)
    runs: str = option("runs/lmrl", "Where the run folders live.")
    folder: str = option("benchmarks/results/lmrl", "Where the cells are kept.")
    page: str = option("docs/lmrl.md", "The page with the tables.")
    entries: ClassVar[tuple[Entry, ...]] = ENTRIES

    def prepare(self) -> None:
        """Nothing runs on this process's devices."""

    def run(self) -> dict[str, Any]:
        """Run what is missing, put the tables into the page, print them, and report. Raises UserError where a cell failed."""
        asked = self._asked()
        self._publish()  # what is kept and the page are read before minutes are spent
        kept = [one for entry in asked for one in entry.kept(Path(self.folder), Path(self.runs))]
        failed = [] if self.print_only else run_missing(kept, Path(self.runs), self.parallel, self._publish)
        print(scores_table(Path(self.folder)))
        if failed:
            raise UserError(f"{len(failed)} cells failed; the same command runs them again, their logs are in {self.runs}")
        return {"bench": "lmrl", "kept": sum(one.path.exists() for one in kept), "cells": len(kept)}

    def _asked(self) -> list[Entry]:
        names = [name.strip() for name in self.only.split(",") if name.strip()]
        for name in names:
            if not any(name in _names(entry) for entry in self.entries):
                raise UserError(f"--only={self.only}: {name!r} is no task, no method and no pair task-method of the table")
        return [entry for entry in self.entries if not names or any(name in _names(entry) for name in names)]

    def _publish(self) -> None:
        pages.put(Path(self.page), "scores", scores_table(Path(self.folder)))
        pages.put(Path(self.page), "speed", speed_table(Path(self.folder)))


def _names(entry: Entry) -> tuple[str, str, str]:
    return entry.task, entry.method, entry.name
