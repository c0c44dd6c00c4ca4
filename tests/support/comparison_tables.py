"""The tables of a page about comparisons."""

from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.table import configs_note, learning_table, methods_table


def check_comparison_tables(page: Path, comparisons: Sequence[Comparison], cached: Path) -> None:
    """The page's tables are those of the cached cells."""
    for section, table in (
        ("methods", methods_table),
        ("configs", configs_note),
        ("learning", learning_table),
    ):
        assert doc_tables.read_section(page, section) == table(comparisons, cached)
