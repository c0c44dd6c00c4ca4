"""The comparisons on databases, tables and search, and their tables in docs/search.md."""

from pathlib import Path

import pytest
from support.comparison_tables import check_comparison_tables

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.look_up_registry import LOOK_UP_COMPARISONS
from agentrl_jax.launch.sweeps.grid import load_experiment

ROOT = Path(__file__).parents[3]


def test_the_pages_tables_of_comparisons_are_those_of_the_cached_cells():
    page, cached = ROOT / "docs" / "search.md", ROOT / "benchmarks" / "results" / "look_up"
    check_comparison_tables(page, LOOK_UP_COMPARISONS, cached)


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
@pytest.mark.parametrize("comparison", LOOK_UP_COMPARISONS, ids=lambda comparison: comparison.name)
def test_the_sides_of_a_comparison_differ_in_the_method_alone(
    comparison: Comparison, tmp_path: Path
):
    base, method = (load_experiment(cell) for _, cell in [*comparison.cells(tmp_path)][:2])
    assert base != method and base.seed == method.seed and len(comparison.seeds) == 10
    assert base.phases.keys() == method.phases.keys() and base.policy == method.policy
    phase = comparison.method.phase or list(method.phases)[-1]
    assert base.phases[phase].steps == method.phases[phase].steps
    assert base.evaluation.episodes == method.evaluation.episodes
