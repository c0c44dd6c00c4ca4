"""The comparisons on databases, tables and search, and their tables in docs/search.md."""

from pathlib import Path

import pytest
from support.comparison_tables import check_comparison_tables, check_sides

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.look_up_registry import LOOK_UP_COMPARISONS

ROOT = Path(__file__).parents[3]


def test_the_pages_tables_of_comparisons_are_those_of_the_cached_cells():
    page, cached = ROOT / "docs" / "search.md", ROOT / "benchmarks" / "results" / "look_up"
    check_comparison_tables(page, LOOK_UP_COMPARISONS, cached)


@pytest.mark.parametrize("comparison", LOOK_UP_COMPARISONS, ids=lambda comparison: comparison.name)
def test_the_sides_of_a_comparison_differ_in_the_method_alone(comparison: Comparison):
    check_sides(comparison)
