"""`methods`: claims of papers, tested over seeds. Generates the tables of docs/methods.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.cached_bench import CachedBench
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.registry import COMPARISONS
from agentrl_jax.launch.benchmarks.claims.table import configs_note, learning_table, methods_table
from agentrl_jax.launch.benchmarks.claims.training import training_table
from agentrl_jax.launch.benchmarks.claims.verdicts import load_verdicts
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.sweeps.table import MISSING

# section of a page -> its table
TABLES = {
    "methods": methods_table,
    "configs": configs_note,
    "learning": learning_table,
    "training": training_table,
}


@dataclass
class Methods(CachedBench):
    """A cell is a seed of a side of a comparison, cached in a file; an interrupted one resumes."""

    only: str = option(
        "", "The comparisons to run, separated by commas; empty: all. Tables always show all."
    )
    runs: str = option("runs/methods", "The folder of the run folders.")
    folder: str = option("benchmarks/results/methods", "The folder of the cached cells.")
    page: str = option("docs/methods.md", "The page with the tables.")
    comparisons: ClassVar[tuple[Comparison, ...]] = COMPARISONS

    def run(self) -> dict[str, Any]:
        """Run the missing cells, update the page, print the table and report.

        Raises:
            UserError: a cell failed.
        """
        known = [comparison.name for comparison in self.comparisons]
        names = self._selected_names or known
        if unknown := set(names) - set(known):
            raise UserError(
                f"--only={self.only}: there is no comparison {sorted(unknown)[0]!r}, only "
                f"{', '.join(known)}"
            )
        cached = [
            cell
            for comparison in self.comparisons
            if comparison.name in names
            for _, cell in comparison.cached_cells(Path(self.folder), Path(self.runs))
        ]
        self._run_missing(cached, Path(self.runs))
        return {
            "bench": "methods",
            "comparisons": self._verdicts(),
        }

    def _markdown(self) -> str:
        return methods_table(self.comparisons, Path(self.folder))

    def _write_tables(self) -> None:
        for section, table in TABLES.items():
            text = table(self.comparisons, Path(self.folder))
            doc_tables.replace_section(Path(self.page), section, text)

    def _verdicts(self) -> dict[str, str]:
        verdicts = load_verdicts(self.comparisons, Path(self.folder))
        known = {name: verdict.text for name, verdict in verdicts.items()}
        return {row.name: known.get(row.name, MISSING) for row in self.comparisons}
