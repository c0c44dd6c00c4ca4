"""`fine_tuning`: whether the base model learns a task sooner than its shape from scratch does.

Generates the tables of docs/base_model.md below the domains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.cached_bench import CachedBench
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.sweeps.cached_cells import CachedCell
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.measures import final_success
from agentrl_jax.launch.sweeps.table import MISSING, format_mean_interval
from agentrl_jax.reporting.statistics import difference_interval, mean_interval

STARTS = {
    "base model": "configs/price_list_base.py",
    "from scratch": "configs/price_list_base.py:scratch",
}
RATES = ("1e-3", "3e-3", "1e-2")
RATE_FIELD = "phases.sft.algorithm.optimizer.learning_rate"
TUNING_SEED = 0
SEEDS = tuple(range(1, 11))


@dataclass
class FineTuning(CachedBench):
    """A cell is a start with a learning rate and a seed. On one seed each start gets its best of
    all learning rates; the other seeds compare the two.
    """

    runs: str = option("runs/fine_tuning", "The folder of the run folders.")
    folder: str = option("benchmarks/results/fine_tuning", "The folder of the cached cells.")
    page: str = option("docs/base_model.md", "The page with the tables.")

    def run(self) -> dict[str, Any]:
        """Run the missing cells, tuning first, update the page, print the tables and report.

        Raises:
            UserError: a cell failed.
        """
        tuning = [self.cell(start, rate, TUNING_SEED) for start in STARTS for rate in RATES]
        self._run_missing(tuning, Path(self.runs))
        rates = self.best_rates()
        tested = [self.cell(x, rate, seed) for seed in SEEDS for x, rate in rates.items()]
        self._run_missing(tested, Path(self.runs))
        return {"bench": "fine_tuning", "rates": rates, "success": self.tested()}

    def cell(self, start: str, rate: str, seed: int) -> CachedCell:
        """The file of one run."""
        name = f"{start.replace(' ', '_')}-{rate}-{seed}"
        cell = Cell(STARTS[start], {RATE_FIELD: rate}, seed, Path(self.runs) / name)
        measure = {"measure": final_success.name}
        return CachedCell(Path(self.folder) / f"{name}.json", cell, _measure_run, measure)

    def success(self, start: str, rate: str, seed: int) -> float | None:
        """Of a cached run; None: missing."""
        cached = self.cell(start, rate, seed).load()
        return None if cached is None else float(cached["value"])

    def best_rates(self) -> Mapping[str, str]:
        """The learning rate of each start with the highest success on the tuning seed, the lower
        one of two that tie; only of starts with all results.
        """
        rates = {}
        for start in STARTS:
            values = {rate: self.success(start, rate, TUNING_SEED) for rate in RATES}
            known = {rate: value for rate, value in values.items() if value is not None}
            if len(known) == len(RATES):
                rates[start] = max(known, key=lambda rate: known[rate])
        return rates

    def tested(self) -> Mapping[str, list[float | None]]:
        """The success of each start at its best learning rate, by seed."""
        rates = self.best_rates()
        return {x: [self.success(x, rate, seed) for seed in SEEDS] for x, rate in rates.items()}

    def _markdown(self) -> str:
        return f"{self._tuning_table()}\n\n{self._tested_table()}"

    def _write_tables(self) -> None:
        page = Path(self.page)
        doc_tables.replace_section(page, "tuning", self._tuning_table())
        doc_tables.replace_section(page, "fine_tuning", self._tested_table())

    def _tuning_table(self) -> str:
        """Success on the tuning seed by start and learning rate."""
        lines = table_header("start", *(f"learning rate {rate}" for rate in RATES))
        for start in STARTS:
            values = [self.success(start, rate, TUNING_SEED) for rate in RATES]
            lines.append(table_row(start, *map(_format_success, values)))
        return "\n".join(lines)

    def _tested_table(self) -> str:
        """Success on the other seeds, with 95 % intervals, and the difference paired by seed."""
        lines = table_header("start", "learning rate", *(f"seed {x}" for x in SEEDS), "mean")
        tested = self.tested()
        complete: list[list[float]] = []
        for start, values in tested.items():
            known = [value for value in values if value is not None]
            complete += [known] if len(known) == len(SEEDS) else []
            mean = format_mean_interval(mean_interval(known) if known else None, ".3f")
            seeds = map(_format_success, values)
            lines.append(table_row(start, self.best_rates()[start], *seeds, mean))
        if len(complete) == len(STARTS):
            difference = format_mean_interval(difference_interval(*complete), "+.3f")
            lines.append(table_row("difference", "", *[""] * len(SEEDS), difference))
        return "\n".join(lines)


def _measure_run(run_dir: Path) -> Mapping[str, Any]:
    return {"value": final_success.compute(run_dir)}


def _format_success(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"
