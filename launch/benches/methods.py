"""`methods`: claims of papers, tested over seeds; generates the table of docs/methods.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.errors import UserError
from agentrl_jax.launch import pages
from agentrl_jax.launch.benches.kept import KeptBench
from agentrl_jax.launch.methods.comparison import Comparison
from agentrl_jax.launch.methods.comparisons import COMPARISONS
from agentrl_jax.launch.methods.table import learning_table, methods_table
from agentrl_jax.launch.options import option
from agentrl_jax.launch.sweeps.table import MISSING


@dataclass
class Methods(KeptBench):
    """A cell is one seed of one side of a comparison, kept in a file and not run again; one that stopped goes on."""

    only: str = option("", "The comparisons to run, with commas between; empty: all. The table has all of them.")
    runs: str = option("runs/methods", "Where the run folders live.")
    folder: str = option("benchmarks/results/methods", "Where the cells are kept.")
    page: str = option("docs/methods.md", "The page with the table.")
    comparisons: ClassVar[tuple[Comparison, ...]] = COMPARISONS

    def run(self) -> dict[str, Any]:
        """Run what is missing, put the table into the page, print it, and report. Raises UserError where a cell failed."""
        known = [comparison.name for comparison in self.comparisons]
        names = self._names or known
        if unknown := set(names) - set(known):
            raise UserError(f"--only={self.only}: there is no comparison {sorted(unknown)[0]!r}, only {', '.join(known)}")
        asked = [kept for one in self.comparisons if one.name in names for _, kept in one.kept(Path(self.folder), Path(self.runs))]
        self._make(asked, Path(self.runs))
        return {"bench": "methods", "comparisons": {one.name: self._verdict(one) for one in self.comparisons}}

    def _printed(self) -> str:
        return methods_table(self.comparisons, Path(self.folder))

    def _publish(self) -> None:
        pages.put(Path(self.page), "methods", self._printed())
        pages.put(Path(self.page), "learning", learning_table(self.comparisons, Path(self.folder)))

    def _verdict(self, comparison: Comparison) -> str:
        judged = comparison.verdict(comparison.found(Path(self.folder)))
        return judged[1] if judged else MISSING
