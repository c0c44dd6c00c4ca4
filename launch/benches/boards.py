"""`lmrl` and `hierarchical`: tasks and methods at a size for a CPU; each generates the tables of its pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.errors import UserError
from agentrl_jax.launch import pages
from agentrl_jax.launch.benches.kept import KeptBench
from agentrl_jax.launch.boards import hierarchical, lmrl
from agentrl_jax.launch.boards.entries import Entry
from agentrl_jax.launch.options import option

Table = Callable[[Path], str]  # folder of cells -> Markdown


@dataclass
class Board(KeptBench):
    """A cell is one seed of one method on one task, kept in a file and not run again; one that stopped goes on."""

    only: str = option("", "Tasks, methods or pairs to run (wordle, ilql, wordle-ilql), with commas between; empty: all.")
    runs: str = option("runs/boards", "Where the run folders live.")
    folder: str = option("benchmarks/results", "Where the cells are kept, in a folder named as the bench.")
    docs: str = option("docs", "Where the pages with the tables are.")
    name: ClassVar[str]
    entries: ClassVar[Sequence[Entry]]
    tables: ClassVar[Mapping[tuple[str, str], Table]]  # page and mark -> table

    def run(self) -> dict[str, Any]:
        """Run what is missing, put the tables into their pages, print them, and report. Raises UserError where a cell failed."""
        runs = Path(self.runs) / self.name
        kept = [one for entry in self._asked() for one in entry.kept(self._folder, runs)]
        self._make(kept, runs)
        return {"bench": self.name, "kept": sum(one.path.exists() for one in kept), "cells": len(kept)}

    @property
    def _folder(self) -> Path:
        return Path(self.folder) / self.name

    def _asked(self) -> list[Entry]:
        names = self._names
        for name in names:
            if not any(name in entry.names for entry in self.entries):
                raise UserError(f"--only={self.only}: {name!r} is no task, no method and no pair task-method of the tables")
        return [entry for entry in self.entries if not names or set(names) & set(entry.names)]

    def _printed(self) -> str:
        return "\n\n".join(table(self._folder) for table in self.tables.values())

    def _publish(self) -> None:
        for (page, mark), table in self.tables.items():
            pages.put(Path(self.docs) / page, mark, table(self._folder))


class LMRL(Board):
    """LMRL-Gym's tasks and baselines (arXiv 2311.18232)."""

    name = "lmrl"
    entries = tuple(lmrl.ENTRIES.values())
    tables: ClassVar = {("lmrl.md", "scores"): lmrl.scores_table, ("lmrl.md", "speed"): lmrl.speed_table}


class Hierarchical(Board):
    """ArCHer (arXiv 2402.19446) and REFUEL (arXiv 2410.04612) beside what they claim to beat."""

    name = "hierarchical"
    entries = tuple(hierarchical.ENTRIES.values())
    tables: ClassVar = {
        ("archer.md", "online"): hierarchical.online_table,
        ("archer.md", "samples"): hierarchical.samples_table,
        ("archer.md", "offline"): hierarchical.offline_table,
        ("archer.md", "ablations"): hierarchical.ablations_table,
        ("refuel.md", "turns"): hierarchical.turns_table,
        ("refuel.md", "iterations"): hierarchical.iterations_table,
    }
