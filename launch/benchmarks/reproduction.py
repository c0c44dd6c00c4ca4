"""`lmrl` and `hierarchical`: reproductions at a size for a CPU, with generated tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.cached_bench import CachedBench
from agentrl_jax.launch.benchmarks.tables import archer_refuel, lmrl_gym
from agentrl_jax.launch.benchmarks.tables.entries import TableEntry
from agentrl_jax.launch.dataclass_flags import option

Table = Callable[[Path], str]  # folder of cells -> Markdown


@dataclass
class TableBench(CachedBench):
    """A cell is one seed of a method on a task, cached in a file; an interrupted one resumes."""

    only: str = option(
        "",
        "Tasks, methods or pairs to run (wordle, ilql, wordle-ilql), separated by commas; "
        "empty: all.",
    )
    runs: str = option("runs/boards", "The folder of the run folders.")
    folder: str = option(
        "benchmarks/results", "The folder of the cached cells, with a subfolder for each benchmark."
    )
    docs: str = option("docs", "The folder of the pages with the tables.")
    name: ClassVar[str]
    entries: ClassVar[Sequence[TableEntry]]
    tables: ClassVar[Mapping[tuple[str, str], Table]]  # page and section -> table

    def run(self) -> dict[str, Any]:
        """Run the missing cells, update the pages, print the tables and report.

        Raises:
            UserError: a cell failed.
        """
        runs = Path(self.runs) / self.name
        cached = [
            cell
            for entry in self._selected_entries()
            for cell in entry.cached_cells(self._results_dir, runs)
        ]
        self._run_missing(cached, runs)
        return {
            "bench": self.name,
            "kept": sum(cell.path.exists() for cell in cached),
            "cells": len(cached),
        }

    @property
    def _results_dir(self) -> Path:
        return Path(self.folder) / self.name

    def _selected_entries(self) -> list[TableEntry]:
        names = self._selected_names
        for name in names:
            if not any(name in entry.selectors for entry in self.entries):
                raise UserError(
                    f"--only={self.only}: {name!r} is no task, no method and no pair "
                    "task-method of the tables"
                )
        return [entry for entry in self.entries if not names or set(names) & set(entry.selectors)]

    def _markdown(self) -> str:
        return "\n\n".join(table(self._results_dir) for table in self.tables.values())

    def _write_tables(self) -> None:
        for (page, section), table in self.tables.items():
            doc_tables.replace_section(Path(self.docs) / page, section, table(self._results_dir))


class LMRL(TableBench):
    """LMRL-Gym's tasks and baselines (arXiv 2311.18232)."""

    name = "lmrl"
    entries = tuple(lmrl_gym.ENTRIES.values())
    tables: ClassVar = {
        ("lmrl.md", "scores"): lmrl_gym.scores_table,
        ("lmrl.md", "configs"): lmrl_gym.scores_note,
        ("lmrl.md", "speed"): lmrl_gym.speed_table,
    }


class Hierarchical(TableBench):
    """ArCHer (arXiv 2402.19446) and REFUEL (arXiv 2410.04612) against their baselines."""

    name = "hierarchical"
    entries = tuple(archer_refuel.ENTRIES.values())
    tables: ClassVar = {
        ("archer.md", "online"): archer_refuel.online_table,
        ("archer.md", "configs"): archer_refuel.archer_note,
        ("archer.md", "samples"): archer_refuel.samples_table,
        ("archer.md", "offline"): archer_refuel.offline_table,
        ("archer.md", "ablations"): archer_refuel.ablations_table,
        ("refuel.md", "turns"): archer_refuel.turns_table,
        ("refuel.md", "configs"): archer_refuel.refuel_note,
        ("refuel.md", "iterations"): archer_refuel.iterations_table,
    }
