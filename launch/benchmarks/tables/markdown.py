"""Rows of Markdown tables."""

from agentrl_jax.launch.benchmarks.tables.entries import CellResults
from agentrl_jax.launch.sweeps.table import MISSING
from agentrl_jax.reporting.statistics import mean_interval


def table_header(*names: str) -> list[str]:
    """The header row and the line below it."""
    return [table_row(*names), "|---" * len(names) + "|"]


def table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def format_mean(cells: CellResults, field: str, number_format: str, suffix: str = "") -> str:
    """-7.03 ± 0.12 and `suffix`, over the seeds with results; a single one has no interval."""
    known = [cell[field] for cell in cells if cell is not None]
    if not known:
        return MISSING
    mean, half = mean_interval(known)
    interval = f" ± {half:{number_format}}" if len(known) > 1 else ""
    return f"{mean:{number_format}}{interval}{suffix}" + (
        f" ({len(cells) - len(known)} {MISSING})" if len(known) < len(cells) else ""
    )
